"""hip_binary on the emulator, and the files of hip_code_object."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path


def test_a_failed_kernel_fails_the_program() -> None:
    """Prevents: a test that passes although its kernel writes to memory of others."""
    run = subprocess.run(
        [os.environ["QOLA_TEST_FAULT"]], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1, run.stderr
    assert "unmapped" in run.stderr
    assert "beyond" in run.stderr
    assert "exit code 1, because a kernel failed" in run.stderr


def test_metadata() -> None:
    """Prevents: metadata by which a program cannot lay out the arguments of a kernel."""
    found = json.loads(Path(os.environ["QOLA_TEST_MODULE"]).read_text("utf-8"))
    (kernel,) = found["kernels"]
    assert (found["arch"], kernel["symbol"]) == ("gfx950", "fill")
    assert kernel["arguments"][:2] == [
        {"kind": "global_buffer", "offset": 0, "size": 8},
        {"kind": "by_value", "offset": 8, "size": 4},
    ]
    assert kernel["lds"] == 0
    assert kernel["max_block"] == 1024
