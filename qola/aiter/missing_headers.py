"""Quoted includes that lead nowhere: a compile would fail there, long after a plan said yes.

What a tree has, what a generator makes, and what belongs to a system, to ROCm or to Python are all
there is. An include that depends on a macro which is not known is left alone.
"""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.aiter.includes import find, includes
from qola.aiter.preprocess import Macros, lines
from qola.files import lossy_text

#: First directories of headers that compilers and packages bring, which people quote, too.
_ELSEWHERE = re.compile(
    r"(hip|hsa|hsakmt|rocm|amd|roc[a-z_]+|hip[a-z_-]+|rccl|miopen|migraphx|thrust|cub|sys|bits|linux|"
    r"torch|ATen|c10|pybind11|gtest|gmock|llvm|clang)/"
)
#: Plain names that are no file of a project: C++'s have no suffix, and these are C's and Python's.
_SYSTEM = re.compile(
    r"(assert|complex|ctype|dlfcn|errno|fcntl|fenv|float|inttypes|iso646|limits|locale|math|memory|"
    r"pthread|setjmp|signal|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|strings?|"
    r"tgmath|threads|time|uchar|unistd|wchar|wctype|Python|numa|omp|immintrin|rccl|mpi)\.h"
)
_LARGE = 1 << 20
"""Generated dispatch of more than this many characters has its includes at its top, always."""


@dataclass(frozen=True)
class Includer:
    """A text whose includes have to lead somewhere.

    Attributes:
        place: what it is called, such as ``csrc/cpp_itfs/mha_fwd.cu``.
        folder: directory in which the compiler looks first, relative to the tree; "" for none.
    """

    place: str
    text: str
    folder: str = ""


@dataclass(frozen=True)
class MissingHeader:
    """A quoted include of a file that is nowhere.

    Attributes:
        place: the includer with its line, ``csrc/cpp_itfs/mha_bwd.cu:3``.
    """

    place: str
    name: str


def missing_headers(
    root: Path,
    dirs: Sequence[str],
    includers: Iterable[Includer],
    macros: Macros,
    generated: Collection[str] = (),
) -> tuple[MissingHeader, ...]:
    """Return the quoted includes that lead nowhere, from some texts and all that these include.

    Args:
        dirs: tree-relative directories in the compiler's order.
        macros: those known; an include under a condition on others is not asked for.
        generated: headers that generators make, as sources include them.
    """
    return tuple(_Search(root, dirs, frozenset(generated)).missing(list(includers), macros))


class _Search:
    def __init__(self, root: Path, dirs: Sequence[str], generated: Collection[str]) -> None:
        self._root, self._dirs, self._generated = root, dirs, generated
        self._headers: dict[str, Includer] = {}
        self._found: dict[tuple[str, str], str | None] = {}

    def missing(self, start: Sequence[Includer], macros: Macros) -> dict[MissingHeader, None]:
        """Return what is missing, in the order in which it is met."""
        leading = self._leading(start)
        found: dict[MissingHeader, None] = {}
        seen: set[str] = set()
        pending = deque(includer for includer in start if id(includer) in leading)
        while pending:
            includer = pending.popleft()
            for name, quoted, line in _asked(includer.text, macros):
                path = self._path(includer, name, quoted)
                if path is None and self._is_missing(name, quoted):
                    found.setdefault(MissingHeader(f"{includer.place}:{line}", name))
                elif path is not None and path not in seen:
                    seen.add(path)
                    header = self._header(path)
                    if id(header) in leading:
                        pending.append(header)
        return found

    def _leading(self, start: Sequence[Includer]) -> set[int]:
        """Return the ids of texts from which some include leads nowhere, whatever its condition.

        Conditions are worked out for these few alone.
        """
        users: dict[str, list[Includer]] = {}
        leading: list[Includer] = []
        pending = list(start)
        while pending:
            includer = pending.pop()
            for name, quoted in dict.fromkeys(includes(includer.text[:_LARGE])):
                path = self._path(includer, name, quoted)
                if path is None and self._is_missing(name, quoted):
                    leading.append(includer)
                elif path is not None:
                    if path not in users:
                        pending.append(self._header(path))
                    users.setdefault(path, []).append(includer)
        found: set[int] = set()
        while leading:
            includer = leading.pop()
            if id(includer) not in found:
                found.add(id(includer))
                leading += users.get(includer.place, [])
        return found

    def _header(self, path: str) -> Includer:
        if path not in self._headers:
            text = lossy_text(self._root / path)
            self._headers[path] = Includer(path, text, posixpath.dirname(path) or ".")
        return self._headers[path]

    def _path(self, includer: Includer, name: str, quoted: bool) -> str | None:
        folder = includer.folder if quoted else ""
        if (name, folder) not in self._found:
            dirs = [folder, *self._dirs] if folder else self._dirs
            self._found[name, folder] = find(self._root, name, dirs)
        return self._found[name, folder]

    def _is_missing(self, name: str, quoted: bool) -> bool:
        return quoted and name not in self._generated and not elsewhere(name)


def elsewhere(name: str) -> bool:
    """Whether a header by its name is a compiler's, a system's, ROCm's or Python's."""
    known = _ELSEWHERE.match(name) or _SYSTEM.fullmatch(name)
    return known is not None or "." not in posixpath.basename(name)


def _asked(text: str, macros: Macros) -> Iterator[tuple[str, bool, int]]:
    """Yield (name, is it quoted, line) of the includes that count."""
    if len(text) > _LARGE:
        yield from ((name, quoted, 1) for name, quoted in includes(text[:_LARGE]))
        return
    for line in lines(text, macros):
        if line.counts and line.text.lstrip().startswith("#"):
            yield from ((name, quoted, line.number) for name, quoted in includes(line.text))
