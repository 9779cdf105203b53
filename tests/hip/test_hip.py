"""hip_binary on the emulator, and the output files of hip_code_object."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.pythons import path_with_other_python


def test_a_failed_kernel_fails_the_program() -> None:
    """Prevents: a test passes although its kernel writes outside of its memory."""
    run = subprocess.run(
        [os.environ["QOLA_TEST_FAULT"]], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1, run.stderr
    assert "unmapped" in run.stderr
    assert "beyond" in run.stderr
    assert "exit code 1, because a kernel failed" in run.stderr


def test_a_program_starts_beside_another_python(tmp_path: Path) -> None:
    """Prevents: `bazel-bin/<program>` runs the python3 of PATH with packages for another Python."""
    program = os.environ["QOLA_TEST_PRINTF_HOSTCALL"]
    environ = {**os.environ, "PATH": path_with_other_python(tmp_path)}
    run = subprocess.run([program], capture_output=True, text=True, check=False, env=environ)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("before\n")


@pytest.mark.parametrize("kind", ["HOSTCALL", "BUFFERED", "WAVE32"])
def test_printf(kind: str) -> None:
    """Prevents: output of kernels is lost, mixed up or printed after the output of the host."""
    run = subprocess.run(
        [os.environ[f"QOLA_TEST_PRINTF_{kind}"]], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    lines = [f"block {block} lane {lane} of 66" for block in (0, 1) for lane in range(66)]
    name = "it  is a text that one packet of seven words with eight bytes each does not hold: "
    text = [*lines, f"{name}%|   -3|0xff|2.50|{1 << 40}|c"]
    printed = run.stdout.splitlines()
    # Waves of several workgroups run concurrently, so their order may differ.
    assert (printed[0], sorted(printed[1:-1]), printed[-1]) == ("before", sorted(text), "after")
    lanes = 32 if kind == "WAVE32" else 64
    for wave in (range(first, min(first + lanes, 66)) for first in range(0, 66, lanes)):
        for block in (0, 1):
            expected = [f"block {block} lane {lane} of 66" for lane in wave]
            start = printed.index(expected[0])
            assert printed[start : start + len(wave)] == expected


def test_a_failed_assert_fails_the_program() -> None:
    """Prevents: a failed assert in a kernel prints no message, or is ignored."""
    run = subprocess.run(
        [os.environ["QOLA_TEST_PRINTF_BUFFERED"], "fail"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    message = "Device-side assertion `threadIdx.x < limit' failed."
    assert re.search(r"s_trap\(2\), workgroup 0, wave 0, lane 1$", run.stderr, re.M), run.stderr
    assert re.search(rf"found +trap: .*{re.escape(message)}$", run.stderr, re.M), run.stderr


def test_metadata() -> None:
    """Prevents: a program cannot compute the layout of a kernel's arguments from the metadata."""
    metadata = json.loads(Path(os.environ["QOLA_TEST_MODULE"]).read_text("utf-8"))
    (kernel,) = metadata["kernels"]
    assert (metadata["arch"], kernel["symbol"]) == ("gfx950", "fill")
    assert kernel["arguments"][:2] == [
        {"kind": "global_buffer", "offset": 0, "size": 8},
        {"kind": "by_value", "offset": 8, "size": 4},
    ]
    assert kernel["lds"] == 0
    assert kernel["max_block"] == 1024
