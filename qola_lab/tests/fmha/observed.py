"""Kernels that CK's generators of the pinned tree emit, observed in this process."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qola.aiter.tree import read_tree
from qola.codegen.ck.observe import Recording
from qola.codegen.ck.output import record
from qola.codegen.ck.rows import Dispatch, Kernel, read_base

ARCHS = ("gfx942", "gfx950")


@dataclass(frozen=True)
class Observed:
    """A kernel, and CK's object for it."""

    direction: str
    kernel: Kernel
    item: Any


def recorded(
    aiter_tree: Path, direction: str, receipt: int = 600, archs: Sequence[str] = ARCHS
) -> Recording:
    """Run CK's generator for a direction."""
    script = aiter_tree / read_tree(aiter_tree).fmha_dir / "generate.py"
    with TemporaryDirectory() as scratch, quiet():
        return record(script, direction, receipt, archs, Path(scratch))


def kernels(
    aiter_tree: Path, direction: str, receipt: int = 600, archs: Sequence[str] = ARCHS
) -> list[Observed]:
    """Return all kernels of a direction, including kernels that no dispatch row calls."""
    recording = recorded(aiter_tree, direction, receipt, archs)
    base = read_base(direction, recording, Dispatch(recording))
    found = {kernel.name: kernel for kernel in base.kernels}
    return [Observed(direction, k, recording.kernels[f"{k.name}.cpp"]) for k in found.values()]


@contextmanager
def quiet() -> Iterator[None]:
    """Do not write bytecode to the shared tree, and ignore CK's deprecation warnings."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CK's
            yield
    finally:
        sys.dont_write_bytecode = before
