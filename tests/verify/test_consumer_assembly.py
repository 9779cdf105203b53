"""Assembly (v3) kernels through the public entry points."""

from __future__ import annotations

import pytest

from tests.verify.run_consumer import ROWS, devices, outcomes, run
from tests.verify.table import Device


@pytest.mark.parametrize("directory", ["/nonsense", ""])
@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_aiter_asm_dir_changes_nothing(device: Device, directory: str) -> None:
    """Prevents: code objects looked up in a directory of the environment."""
    rows = [row for row in ROWS if row.device == device]
    found = run(rows, device, AITER_ASM_DIR=directory).outcomes
    usual = [outcomes(device)[row] for row in rows]
    assert [o.without_arguments for o in found] == [o.without_arguments for o in usual]
