"""Runs programs in their own process groups, which end with this process or with a block."""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path


class TooLongError(Exception):
    """A program exceeded its timeout."""


class TooMuchError(Exception):
    """A program exceeded the limit of its output."""


@dataclass(frozen=True)
class Ended:
    """The exit code of a program, negative for a signal, and its output."""

    code: int
    out: bytes
    err: bytes


class _Running:
    """Process groups of a block of code and of its inner blocks."""

    def __init__(self, outer: _Running | None) -> None:
        self._outer, self._lock = outer, threading.Lock()
        self._groups: set[int] = set()
        self._over = False

    def add(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            if self._over:
                _kill(group)
        if self._outer:
            self._outer.add(group)

    def remove(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
        if self._outer:
            self._outer.remove(group)

    def end(self) -> None:
        with self._lock:
            self._over = True
            for group in self._groups:
                _kill(group)


_running: ContextVar[_Running | None] = ContextVar("_running", default=None)


@contextmanager
def thread_pool(workers: int | None) -> Iterator[ThreadPoolExecutor]:
    """Create a pool of threads; an exception that leaves the block ends the threads' programs.

    Without this, an interrupt would reach only the main thread, which waits for the other threads.
    """
    running = _Running(_running.get())
    with ThreadPoolExecutor(workers, initializer=_running.set, initargs=(running,)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            running.end()
            raise


def run_group(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    limit: int,
    merged: bool = False,
) -> Ended:
    """Run a program in its own session without a terminal, and end all its processes.

    Its standard input is a silent pipe, which closes when this process ends, even by SIGKILL.

    Args:
        timeout: seconds.
        limit: maximum bytes of standard output and standard error together.
        merged: redirect standard error to standard output.

    Raises:
        TooLongError: the timeout was exceeded.
        TooMuchError: the limit was exceeded.
        OSError: the program cannot be started.
    """
    end = time.monotonic() + timeout
    running = _running.get() or _Running(None)
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        start_new_session=True,
    ) as process:
        running.add(process.pid)
        try:
            out, err = _read(process, end, limit)
            _wait(process.pid, end)
        finally:
            _kill(process.pid)
            running.remove(process.pid)
    return Ended(process.returncode, out, err)


def _read(process: subprocess.Popen[bytes], end: float, limit: int) -> tuple[bytes, bytes]:
    """Return the output of a program until it closes it."""
    found: dict[int, bytearray] = {}
    with selectors.DefaultSelector() as selector:
        pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe]
        for pipe in pipes:
            found[pipe.fileno()] = bytearray()
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(end - time.monotonic(), 0))
            if not ready:
                raise TooLongError
            for key, _ in ready:
                if chunk := os.read(key.fd, 1 << 16):
                    found[key.fd] += chunk
                else:
                    selector.unregister(key.fileobj)
            if sum(map(len, found.values())) > limit:
                raise TooMuchError
            if end < time.monotonic():
                raise TooLongError
    out, err = (*map(bytes, found.values()), b"")[:2]
    return out, err


def _wait(pid: int, end: float) -> None:
    """Wait for a program that has closed its output, without releasing its process id."""
    with suppress(ChildProcessError):  # where SIGCHLD is ignored
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if end < time.monotonic():
                raise TooLongError
            time.sleep(0.005)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def available_cores(cgroup: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the number of cores for this process, by affinity and the container's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # macOS
        cores = os.cpu_count() or 1
    try:
        quota, period = cgroup.read_text(encoding="ascii").split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no quota
    return max(1, cores)
