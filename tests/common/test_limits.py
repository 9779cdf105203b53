"""What qola says where a system gives it no memory, no thread or no process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qola.system_errors import system_error

#: A little more memory than the process has, and then the work.
_PROGRAM = """
import resource, sys, threading
from qola.rule_main import run_main
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
def test_a_system_that_gives_nothing(work: str, found: str) -> None:
    """Prevents: a traceback where a container has few threads or little memory."""
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


def test_no_further_process() -> None:
    """Prevents: a file named, and a disk looked at, where a process was not given."""
    told = system_error(BlockingIOError(11, "Resource temporarily unavailable"))
    assert "error: this machine" in str(told)
    assert "a container has its own limits" in str(told)
    waiting = system_error(BlockingIOError(11, "Resource temporarily unavailable", "/dev/fuse"))
    assert "error: /dev/fuse" in str(waiting)


def test_faults_of_ours_stay() -> None:
    """Prevents: a mistake in qola told as one of the machine's."""
    for error in (RuntimeError("dictionary changed size"), RecursionError(), KeyError("a")):
        assert system_error(error) is None
