"""Says how far a build of kernels is: a bar where there is a terminal, else lines."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TextIO

from qola.progress import Passing


@dataclass(frozen=True)
class Step:
    """How far a build is.

    Attributes:
        done: libraries that are built or have failed, of `total`.
        text: what is done now.
    """

    done: int
    total: int
    text: str


Tell = Callable[[Step], None]


@contextmanager
def told(tell: Tell | None, err: TextIO | None = None) -> Iterator[Tell]:
    """Yield what is to be told of each step: what is given, else a bar or lines on stderr."""
    stream = sys.stderr if err is None else err
    if tell is not None:
        yield tell
    elif stream.isatty() and find_spec("rich"):
        # Imported where it is of use alone.
        with importlib.import_module("qola.fmha.bar_rich").bar(stream) as update:
            yield update
    else:
        yield lambda step: _log(step, stream)


def _log(step: Step, stream: TextIO) -> None:
    if not isinstance(step.text, Passing):
        print(f"qola: {step.done} of {step.total}: {step.text}", file=stream)
