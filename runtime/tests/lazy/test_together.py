"""Several processes and threads request the same kernels, and some processes are killed."""

from __future__ import annotations

import fcntl
import os
import random
import re
import socket
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from runtime.tests.lazy.lazy import (
    ARCH,
    FILL,
    FILLED,
    SCALE,
    SCALED,
    UNAVAILABLE,
    Answer,
    Toy,
    finish,
    kill,
    preloaded,
    processes_with,
)
from tests.support.waiting import wait_for

_NO_LOCKS = """\
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
int fcntl(int fd, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    long value = va_arg(rest, long);
    va_end(rest);
    if(command >= 36 && command <= 38)
        return errno = ENOLCK, -1;
    return syscall(SYS_fcntl, fd, command, value);
}
int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));
"""


def has_open(process: subprocess.Popen[str], path: str) -> bool:
    """Return whether a process has a file open."""
    with suppress(OSError):
        return any(os.readlink(fd) == path for fd in Path(f"/proc/{process.pid}/fd").iterdir())
    return False


def test_processes_compile_once(toy: Toy) -> None:
    """Prevents: all ranks of a machine compile the same kernel."""
    running = [toy.start(SCALE) for _ in range(16)]
    answers = [finish(process) for process in running]
    assert [answer.values for answer in answers] == [[SCALED]] * 16
    assert toy.compiles() == 1
    assert toy.leftovers() == []


def test_owner_killed(toy: Toy) -> None:
    """Prevents: a killed process blocks other processes, or its compiler keeps running."""
    slow = toy.compiler("sleep 1234.5 & wait")
    owner = toy.start(SCALE, QOLA_COMPILER=slow)
    wait_for(toy.compiles)
    wait_for(lambda: processes_with("sleep 1234.5"))
    waiting = toy.start(SCALE, QOLA_COMPILER=toy.compiler())
    wait_for(lambda: has_open(waiting, f"{toy.entry(SCALE)}.lock"))
    kill(owner)
    assert finish(waiting).values == [SCALED]
    wait_for(lambda: not processes_with("sleep 1234.5"))
    assert not processes_with(str(toy.path))
    assert toy.compiles() == 2
    assert toy.leftovers() == []


def test_wait_ends(toy: Toy) -> None:
    """Prevents: a process waits forever for the compile of another process."""
    owner = toy.start(SCALE, QOLA_COMPILER=toy.compiler("sleep 1234.5 & wait"))
    wait_for(toy.compiles)
    try:
        settings = {"QOLA_COMPILER": toy.compiler(), "QOLA_WAIT": "1"}
        answer = toy.ask(SCALE, **settings)
        later = toy.start(SCALE, times="20", **settings)
        assert later.stderr is not None
        assert any("waited 1 s" in line for line in later.stderr)
    finally:
        kill(owner)
    assert answer.values == [UNAVAILABLE]
    # After a timeout, the process tries the lock again.
    values = finish(later).values
    assert (values[0], values[-1]) == (UNAVAILABLE, SCALED)
    waited = f"waited 1 s for {toy.entry(SCALE)}.lock, held by process {owner.pid} on"
    assert waited in answer.errors
    assert "QOLA_WAIT" in answer.errors


def test_owner_killed_whose_child_lives(toy: Toy) -> None:
    """Prevents: a child of a killed process holds the lock and blocks other processes."""
    lock = Path(f"{toy.entry(SCALE)}.lock")
    lock.parent.mkdir(parents=True, mode=0o700)
    toy.cache.chmod(0o700)
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    with lock.open("w") as stream:
        # F_OFD_SETLK: the fcntl module does not always define it.
        fcntl.fcntl(stream, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        for host, settings in ((socket.gethostname(), {}), ("another.host", {"QOLA_WAIT": "1"})):
            lock.write_text(f"process {gone.pid} on {host}\n")
            answer = toy.check_available(SCALE, **settings)
            assert f"not kept: {'waited 1 s for ' if settings else ''}{lock}" in answer.errors
            assert f"process {gone.pid} on {host}" in answer.errors
    assert toy.entries() == []


def test_lock_removed_while_waiting(toy: Toy) -> None:
    """Prevents: a process waits for a deleted lock file."""
    owner = toy.start(SCALE, QOLA_COMPILER=toy.compiler("sleep 1234.5 & wait"))
    wait_for(toy.compiles)
    waiting = toy.start(SCALE, QOLA_COMPILER=toy.compiler())
    wait_for(lambda: has_open(waiting, f"{toy.entry(SCALE)}.lock"))
    Path(f"{toy.entry(SCALE)}.lock").unlink()
    try:
        assert finish(waiting).values == [SCALED]
    finally:
        kill(owner)


def test_killed_and_cleaned(toy: Toy) -> None:
    """Prevents: killed processes and concurrent `clean` runs lose kernels."""
    rng = random.Random(1)
    running: list[tuple[subprocess.Popen[str], float]] = []
    answers: list[Answer] = []
    end = time.monotonic() + 8
    while running or time.monotonic() < end:
        while len(running) < 6 and time.monotonic() < end:
            killed_in = rng.choice([rng.random(), 1000.0])
            running.append((toy.start(SCALE, FILL), time.monotonic() + killed_in))
        if rng.random() < 0.2:
            toy.check_tool(0, "clean", "--all")
        for process, killed_at in list(running):
            if process.poll() is not None:
                answers.append(finish(process))
            elif time.monotonic() > killed_at:
                kill(process)
            else:
                continue
            running.remove((process, killed_at))
        if running:
            with suppress(subprocess.TimeoutExpired):
                running[0][0].wait(0.02)
    assert answers
    assert {tuple(answer.values) for answer in answers} == {(SCALED, FILLED)}
    wait_for(lambda: not processes_with(str(toy.path)))
    verified = toy.tool("verify")
    assert (verified.returncode, verified.stdout) == (0, "")


def test_compile_timeout(toy: Toy) -> None:
    """Prevents: a compiler that hangs also hangs the process."""
    slow = toy.compiler("sleep 1234.5 & wait")
    answer = toy.check_unavailable(SCALE, QOLA_COMPILER=slow, QOLA_COMPILE_TIMEOUT="1")
    assert "no end within 1 s (QOLA_COMPILE_TIMEOUT)" in answer.errors
    wait_for(lambda: not processes_with("sleep 1234.5"))
    assert toy.leftovers() == []


def test_progress_is_logged(toy: Toy) -> None:
    """Prevents: a process seems to hang while a compiler runs."""
    owner = toy.start(SCALE, QOLA_COMPILER=toy.compiler("sleep 3"))
    wait_for(toy.compiles)
    waiting = finish(toy.start(SCALE, QOLA_COMPILER=toy.compiler("sleep 3")))
    errors = finish(owner).errors
    assert f"qola: compiling {SCALE} for {ARCH} ...\n" in errors
    assert re.search(rf"qola: compiled {SCALE} for {ARCH} in [0-9.]+ s\n", errors)
    assert f"qola: waiting for {SCALE} for {ARCH}, which process {owner.pid} on" in waiting.errors


def test_signals_of_the_process(toy: Toy) -> None:
    """Prevents: a process that ignores SIGCHLD waits forever for its compiler."""
    ignoring = ["env", "--ignore-signal=CHLD", *toy.command(str(toy.row(SCALE)))]
    assert finish(toy.launch(ignoring)).values == [SCALED]


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1, 2)])
def test_closed_descriptors(toy: Toy, closed: tuple[int, ...]) -> None:
    """Prevents: in a process without standard streams, the compiler gets wrong streams."""
    streams = toy.path / "told"
    compiler = toy.compiler(f"readlink /proc/$$/fd/0 /proc/$$/fd/1 > {streams}")
    close = " ".join(f"{fd}>&-" for fd in closed)
    command = ["/bin/sh", "-c", f'exec "$@" {close}', "sh", *toy.command(str(toy.row(SCALE)))]
    subprocess.run(command, env=toy.environment(QOLA_COMPILER=compiler), check=True)
    assert toy.entry(SCALE).exists()
    stdin, stdout = streams.read_text().split()
    assert (stdin, stdout.endswith("/log")) == ("/dev/null", True)


def test_without_locks(toy: Toy) -> None:
    """Prevents: no kernel is available on a file system without locks."""
    shim = preloaded(toy, _NO_LOCKS)
    running = [toy.start(SCALE, FILL, LD_PRELOAD=shim) for _ in range(3)]
    answers = [finish(process) for process in running]
    assert [answer.values for answer in answers] == [[SCALED, FILLED]] * 3
    assert [answer.errors.count("qola: no locks in ") for answer in answers] == [1] * 3
    toy.check_available(SCALE, QOLA_LAZY="never")
    toy.check_tool(0, "verify")


def test_without_locks_overlapping_compiles(toy: Toy) -> None:
    """Prevents: without locks, a process deletes files of another process's compile."""
    shim = preloaded(toy, _NO_LOCKS)
    first = toy.start(SCALE, QOLA_COMPILER=toy.compiler("sleep 3"), LD_PRELOAD=shim)
    wait_for(toy.compiles)
    # The first process ends while the second still compiles.
    second = toy.start(SCALE, QOLA_COMPILER=toy.compiler("sleep 5"), LD_PRELOAD=shim)
    wait_for(lambda: toy.compiles() == 2)
    toy.check_tool(0, "clean", "--stalled", LD_PRELOAD=shim)
    for process in (first, second):
        answer = finish(process)
        assert answer.values == [SCALED]
        assert "not kept" not in answer.errors
    assert toy.compiles() == 2
    assert toy.leftovers() == []


def test_leftovers_of_other_machines(toy: Toy) -> None:
    """Prevents: files of a compile on another machine are deleted, or stay forever."""
    entry = toy.entry(SCALE)
    entry.parent.mkdir(parents=True, mode=0o700)
    toy.cache.chmod(0o700)
    local, young, old = (
        Path(f"{entry}.tmp.{name}")
        for name in (f"999999999.0.{socket.gethostname()}", "1.0.other.host", "1.1.other.host")
    )
    for path in (local, young, old):
        path.mkdir()
    os.utime(old, (0, 0))
    toy.check_available(SCALE)
    assert toy.leftovers() == [young]
    toy.tool("clean", "--stalled")
    assert toy.leftovers() == [young]
    os.utime(young, (0, 0))
    toy.tool("clean", "--stalled")
    assert toy.leftovers() == []
