"""Errors if the system provides no memory, thread or process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qola_base.system_errors import system_error

#: Limits the address space to 2 MiB more than the process uses, and then runs the work.
_PROGRAM = """
import resource, sys, threading
from qola_base.rule_main import run_main
pages = int(open("/proc/self/statm").read().split()[0])
most = (pages << 12) + (2 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
sys.exit(run_main(lambda: {}))
"""


@pytest.mark.parametrize(
    ("work", "found"),
    [
        ("threading.Thread(target=int).start()", "no further thread"),
        ("bytearray(1 << 30)", "no memory left"),
    ],
)
def test_exhausted_resources(work: str, found: str) -> None:
    """Prevents: a traceback in a container with few threads or little memory."""
    root = Path(sys.modules["qola"].__path__[0]).parent
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(work)],
        env={"PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])},
        text=True,
        capture_output=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (1, ""), run.stderr
    assert "Traceback" not in run.stderr
    assert f"found     {found}" in run.stderr
    assert "pids" in run.stderr


def test_exhausted_processes() -> None:
    """Prevents: an error that blames a file or disk if the system cannot start a process."""
    without_file = system_error(BlockingIOError(11, "Resource temporarily unavailable"))
    assert "error: this machine" in str(without_file)
    assert "a container has its own limits" in str(without_file)
    with_file = system_error(BlockingIOError(11, "Resource temporarily unavailable", "/dev/fuse"))
    assert "error: /dev/fuse" in str(with_file)


def test_bugs_are_not_system_errors() -> None:
    """Prevents: a bug of qola reported as an error of the machine."""
    for error in (RuntimeError("dictionary changed size"), RecursionError(), KeyError("a")):
        assert system_error(error) is None
