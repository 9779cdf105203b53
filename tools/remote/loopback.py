"""Programs that listen on a TCP port, for as long as a block of code needs them."""

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
    """Return a TCP port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def answers(address: str, port: int) -> bool:
    """Return whether somebody listens there."""
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
    """Run a program that listens on a port; it ends with the context.

    Args:
        log: file that gets what it says; None: it says it where this process does.
        cwd: its working directory; None: this one.
        env: its environment; None: this one.

    Raises:
        RuntimeError: another program listens there; it ended, or does not answer in time, with the
            end of the log.
    """
    if answers(address, port):
        raise RuntimeError(
            f"{name}: another program listens at {address}:{port}; name another port"
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
                said = log.read_text("utf-8", "replace").splitlines() if log else []
                raise RuntimeError(
                    "\n".join([f"{name} does not answer at {address}:{port}", *said[-_TAIL_LINES:]])
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
