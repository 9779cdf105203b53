"""Runs parts of a launch in processes of their own, which share the device's memory."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qola.emulate.faults import EmulationError, Fault


@dataclass(frozen=True)
class Share:
    """The result of a part of a launch: number of instructions of waves, and faults."""

    instructions: int
    faults: tuple[Fault, ...]


def in_processes(parts: Sequence[Callable[[], Share]]) -> list[Share]:
    """Run functions side by side, the first one in this process.

    Their writes count only in memory that is shared between processes.

    Raises:
        EmulationError: that of the first part that failed so.
        RuntimeError: a process ended without an answer.
    """
    children = [_start(part) for part in parts[1:]]
    failed: BaseException | None = None
    shares: list[Share] = []
    try:
        shares.append(parts[0]())
    except BaseException as error:  # The children are waited for first
        failed = error
    for process, reader in children:
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(process, 0)
        share = pickle.loads(answer) if answer else "a process ended without an answer"
        if isinstance(share, Fault):
            failed = failed or EmulationError(share)
        elif isinstance(share, str):
            failed = failed or RuntimeError(share)
        else:
            shares.append(share)
    if failed is not None:
        raise failed
    return shares


def _start(part: Callable[[], Share]) -> tuple[int, int]:
    """Start a process that answers through a pipe: its number, and the pipe's end to read from."""
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader
    try:
        answer = _answer(part)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
    finally:
        # Nothing else of this process may run: no handler, no destructor of a library.
        os._exit(0)


def _answer(part: Callable[[], Share]) -> bytes:
    """Return the pickled result of a part, its fault, or an error with its traceback."""
    try:
        return pickle.dumps(part())
    except EmulationError as error:
        return pickle.dumps(error.fault)
    except BaseException:
        return pickle.dumps(traceback.format_exc())
