"""Assembly (v3) kernels, launched through the public entry points."""

from __future__ import annotations

import pytest

from qola_lab.tests.verify.run_consumer import ROWS, devices, outcomes, run
from qola_lab.tests.verify.table import Device


@pytest.mark.parametrize("directory", ["/nonsense", ""])
@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_aiter_asm_dir_changes_nothing(device: Device, directory: str) -> None:
    """Prevents: code objects read from the directory in AITER_ASM_DIR."""
    rows = [row for row in ROWS if row.device == device]
    outcomes_ = run(rows, device, AITER_ASM_DIR=directory).outcomes
    expected = [outcomes(device)[row] for row in rows]
    assert [outcome.without_arguments for outcome in outcomes_] == [
        outcome.without_arguments for outcome in expected
    ]
