"""Runs programs that listen on a TCP port, for the duration of a block."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

START_SECONDS = 60
END_SECONDS = 20
_TAIL_LINES = 25


def free_port(address: str = "127.0.0.1") -> int:
    """Return a free TCP port."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def answers(address: str, port: int) -> bool:
    """Return whether a program listens on a TCP port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0


@contextmanager
def listening(
    command: Sequence[str | Path],
    port: int,
    *,
    name: str,
    address: str = "127.0.0.1",
    log: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that listens on a port, until the end of the context.

    Args:
        log: file for the program's output; None for this process's output.

    Raises:
        RuntimeError: another program listens on the port; or the program ended or does not answer
            in time, with the end of the log.
    """
    if answers(address, port):
        raise RuntimeError(
            f"{name}: another program listens at {address}:{port}; choose another port"
        )
    with ExitStack() as stack:
        output = stack.enter_context(log.open("ab")) if log else None
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd, env=env
        )
        stack.callback(_end, process)
        deadline = time.monotonic() + START_SECONDS
        while not answers(address, port):
            if process.poll() is not None or time.monotonic() > deadline:
                lines = log.read_text("utf-8", "replace").splitlines() if log else []
                raise RuntimeError(
                    "\n".join(
                        [f"{name} does not answer at {address}:{port}", *lines[-_TAIL_LINES:]]
                    )
                )
            time.sleep(0.05)
        yield process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
