"""hip_binary on the emulator, and the output files of hip_code_object."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import running
from tests.support.pythons import path_with_other_python

_PUT = r"void put<int>\(int\*, int\) at \S*fault.hip:16, block \(0,0,0\), thread \(3,2,0\)"
_PAST_800 = "0 bytes behind an allocation of 800 bytes"
#: By case of fault.hip, the report.
FAULTS = {
    "read": r"invalid read of 4 bytes by cases::copy\(int const\*, int\*\) at \S*fault.hip:9, "
    rf"block \(1,0,0\), thread \(72,0,0\), {_PAST_800}",
    "write": r"invalid write of 1 byte by void put<char>\(char\*, int\) at \S*fault.hip:16, "
    r"block \(0,0,0\), thread \(3,2,0\), 5 bytes before an allocation of 4096 bytes",
    # Another allocation begins there if allocations are not kept apart.
    "page": f"invalid write of 4 bytes by {_PUT}, 0 bytes behind an allocation of 4096 bytes",
    # The instruction is in a function of HIP's headers.
    "atomic": r"invalid atomic access of 4 bytes by count\(int\*\) at \S*fault.hip:19, "
    rf"block \(0,0,0\), thread \(200,0,0\), {_PAST_800}",
    "null": r"invalid write of 8 bytes by void put<double>\(double\*, int\) at .*, "
    "at a null pointer plus 32 bytes",
    "heap": f"invalid write of 4 bytes by {_PUT}, in host memory that HIP did not allocate, at 0x",
    "stack": rf"invalid write of 4 bytes by {_PUT}, in host memory \(stack\) that HIP did not",
    "freed": f"invalid write of 4 bytes by {_PUT}, 40 bytes into a freed allocation of 4096 bytes",
    "lds": r"invalid write of 4 bytes of LDS by spread\(int\*, int\) at \S*fault.hip:24, "
    r"block \(0,0,0\), thread \(64,0,0\), 0 bytes behind the block's 512 bytes of LDS",
    "crooked": r"misaligned by crooked\(char\*\) at \S*fault.hip:36, block \(0,0,0\), thread \(0,",
    "race": r"race: read of LDS at byte 1020 by reverse\(int\*\) at \S*fault.hip:33, "
    r"block \(0,0,0\), thread \(0,0,0\), written without a barrier in between by "
    r"threads \(192,0,0\) to \(255,0,0\) at \S*fault.hip:32",
}


def run(program: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program of QOLA_TEST_..."""
    command = [os.environ[f"QOLA_TEST_{program}"], *arguments]
    return running.run(command, env={**os.environ, **env})


def test_faults_name_line_thread_and_allocation() -> None:
    """Prevents: a report without source line, thread or allocation, or that blames the emulator."""
    ran = run("FAULT", *FAULTS)
    reports = re.findall(r"^qola: emulated kernel: (.*)\n  instruction \S+\(", ran.stderr, re.M)
    assert len(reports) == len(FAULTS), ran.stderr
    for report, expected in zip(reports, FAULTS.values(), strict=True):
        assert re.match(expected, report), report
    assert "cannot be emulated" not in ran.stderr
    assert "EXEC_HI" not in ran.stderr
    assert ran.returncode == 1
    assert "exit code 1, because a kernel failed" in ran.stderr


def test_waiting_for_a_failed_launch_returns_its_error() -> None:
    """Prevents: hipDeviceSynchronize succeeds after a kernel failed or a launch was refused."""
    ran = run("FAULT", "refused", "pinned", "write", "pinned")
    assert ran.stdout.splitlines() == [
        "refused: hipErrorInvalidConfiguration",
        "pinned: hipSuccess",
        "write: hipErrorLaunchFailure",
        # As on a GPU, the fault of a kernel lasts until hipDeviceReset.
        "pinned: hipErrorLaunchFailure",
    ]


def test_a_program_without_faults_reports_none() -> None:
    """Prevents: memory of hipHostMalloc, or the last bytes of an allocation, counted as a fault."""
    ran = run("FAULT", "pinned")
    assert (ran.returncode, ran.stderr) == (0, "")


_AT = r"block \(0,0,0\), thread"
#: By case of unwritten.hip, the report.
UNWRITTEN = {
    "part": r"uninitialised read of 4 bytes by copy\(int const\*, int\*\) at \S*unwritten.hip:7, "
    rf"{_AT} \(63,0,0\), at byte 252 of an allocation of 256 bytes",
    # Copied on the device.
    "copied": rf"uninitialised read of 4 bytes by copy\(.* {_AT} \(0,0,0\), at byte 0 of an",
    "scalar": r"uninitialised read of 4 bytes by broadcast\(.*:9, .*, at byte 28 of an allocation",
    "atomic": r"uninitialised read of 4 bytes by sum\(.* at byte 0 of an allocation of 256 bytes",
    "lds": rf"uninitialised read of 4 bytes of LDS by shared\(.*:19, {_AT} \(5,0,0\), at byte 20",
    "register": r"hint: uninitialised read of a register by registers\(.*:25, .*: v99 was never",
}


@pytest.mark.parametrize("checked", [False, True])
def test_reads_of_unwritten_memory(checked: bool) -> None:
    """Prevents: a silent read of memory, LDS or a register that nothing wrote."""
    ran = run("UNWRITTEN_CHECKED" if checked else "UNWRITTEN", *UNWRITTEN, "written")
    reports = re.findall(r"^qola: emulated kernel: (.*)$", ran.stderr, re.M)
    expected = UNWRITTEN if checked else {}
    assert len(reports) == len(expected), ran.stderr
    for report, pattern in zip(reports, expected.values(), strict=True):
        assert re.match(pattern, report), report
    statuses = dict(line.split(": ") for line in ran.stdout.splitlines())
    failed = {case for case, status in statuses.items() if status == "hipErrorLaunchFailure"}
    assert failed == ({*UNWRITTEN} - {"register"} if checked else set())
    assert ran.returncode == (1 if checked else 0)


def test_a_program_starts_beside_another_python(tmp_path: Path) -> None:
    """Prevents: `bazel-bin/<program>` runs the python3 of PATH with packages for another Python."""
    ran = run("PRINTF_HOSTCALL", PATH=path_with_other_python(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("before\n")


@pytest.mark.parametrize("kind", ["HOSTCALL", "BUFFERED", "WAVE32"])
def test_printf(kind: str) -> None:
    """Prevents: output of kernels is lost, mixed up or printed after the output of the host."""
    ran = run(f"PRINTF_{kind}")
    assert ran.returncode == 0, ran.stderr
    lines = [f"block {block} lane {lane} of 66" for block in (0, 1) for lane in range(66)]
    name = "it  is a text that one packet of seven words with eight bytes each does not hold: "
    text = [*lines, f"{name}%|   -3|0xff|2.50|{1 << 40}|c"]
    printed = ran.stdout.splitlines()
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
    ran = run("PRINTF_BUFFERED", "fail")
    # hipDeviceSynchronize fails.
    assert ran.returncode == 2, ran.stderr
    message = "Device-side assertion `threadIdx.x < limit' failed."
    place = r"trap by .*\) at \S+:\d+, block \(0,0,0\), thread \(1,0,0\): "
    assert re.search(rf"{place}.*{re.escape(message)}$", ran.stderr, re.M), ran.stderr


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
