"""Assembly (v3) kernels through the public entry points."""

from __future__ import annotations

import pytest

from tests.verify.run_consumer import PLAN, ROWS, devices, expected, outcomes, run
from tests.verify.table import Device


@pytest.mark.parametrize("directory", ["/nonsense", ""])
@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_aiter_asm_dir_changes_nothing(device: Device, directory: str) -> None:
    """Prevents: code objects looked up in a directory of the environment."""
    rows = [row for row in ROWS if row.device == device]
    found = run(rows, device, AITER_ASM_DIR=directory).outcomes
    usual = [outcomes(device)[row] for row in rows]
    assert [o.without_arguments for o in found] == [o.without_arguments for o in usual]


def test_rows_reach_every_size_and_refusal() -> None:
    """Prevents: a table in which assembly kernels are never asked, never serve or never refuse."""
    problems = [row.problem for row in ROWS if row.problem.use_ext_asm]
    served = {
        identity[1]
        for row in ROWS
        for identity in expected(row).identities
        if identity[0] == "module"
    }
    called = {f"libmha_{problem.direction}" for problem in problems}
    embedded = {
        planned["sha256"]
        for module in PLAN["modules"]
        if module["name"] in called
        for planned in module["code_objects"]
    }
    assert served == embedded
    checks = {expected(row).status for row in ROWS if row.problem.v3_api_check}
    assert checks >= {1.0, -1.0}
