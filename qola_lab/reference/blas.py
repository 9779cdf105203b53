"""Keeps BLAS on the thread that calls it.

OpenBLAS, which NumPy's wheels contain, divides a product among all cores, and threads without work
spin: the products of the reference are small, so this takes twice the CPU time. Kernels are tried
by a process for each core anyway.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any


@cache
def _openblas() -> tuple[Callable[[], int], Any] | None:
    """Return the functions of the loaded OpenBLAS that get and set its number of threads."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    for path in sorted({line.split()[-1] for line in lines if "openblas" in line}):
        library = ctypes.CDLL(path)
        for prefix, suffix in product(("scipy_", ""), ("64_", "")):
            names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
            if all(hasattr(library, name) for name in names):
                get, set_ = (library[name] for name in names)
                return get, set_
    return None


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute products of matrices with one thread, if the BLAS is OpenBLAS."""
    found = _openblas()
    if found is None:
        yield
        return
    get, set_ = found
    before = get()
    set_(1)
    try:
        yield
    finally:
        set_(before)
