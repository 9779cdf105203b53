"""Finds headers and types that sources use and no file provides, before a compile would fail.

Headers come from the tree, from generators, or from a system, ROCm or Python. AITER and Composable
Kernel are a pair, by a submodule's commit: with another CK, types are missing.
"""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.aiter.includes import closure, find, include_dirs, includes
from qola.aiter.preprocess import Macros, code_lines, lines, without_comments
from qola.aiter.tree import AiterTree, ModuleConfig
from qola_base.files import lossy_text

#: First directories of headers of compilers and packages, which are quoted at times.
_ELSEWHERE = re.compile(
    r"(hip|hsa|hsakmt|rocm|amd|roc[a-z_]+|hip[a-z_-]+|rccl|miopen|migraphx|thrust|cub|sys|bits|linux|"
    r"torch|ATen|c10|pybind11|gtest|gmock|llvm|clang)/"
)
#: Headers of C and Python without a directory; those of C++ have no suffix.
_SYSTEM = re.compile(
    r"(assert|complex|ctype|dlfcn|errno|fcntl|fenv|float|inttypes|iso646|limits|locale|math|memory|"
    r"pthread|setjmp|signal|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|strings?|"
    r"tgmath|threads|time|uchar|unistd|wchar|wctype|Python|numa|omp|immintrin|rccl|mpi)\.h"
)
_LARGE = 1 << 20
"""Characters after which a text has no more includes: generated dispatch has them at its top."""


_USED = re.compile(r"\bck_tile::(\w+)|\b(\w+_enum|fmha_\w+_(?:traits|args|launcher))\b")
_DECLARED = re.compile(
    r"\b(?:struct|class|enum|union|using|typename)\s+(?:(?:class|struct)\s+)?"
    r"(?:__attribute__\s*\(\(\w+\)\)\s*)?(\w+)"
)
#: The name after a type is declared: a variable, a parameter, or a function.
_NAMED = re.compile(
    r"(?<![\w:])(?!(?:return|new|delete|throw|case|else|typename|const|static|extern|inline"
    r"|constexpr|volatile|mutable|using|operator|goto|co_return|sizeof)\b)"
    r"[A-Za-z_][\w:]*(?:<[^;{}()]*>)?(?:\s+|\s*[*&]+\s*)(\w+_enum)\s*[=;({,)\[]"
)
_WORD = re.compile(r"\w+")
_MACRO = re.compile(r"\s*#\s*define\s+(\w+)(?![\w(])\s*(.*)")
_OF_ARCH = re.compile(r"__gfx\w+__")

ARCH_HEADER = "ck_tile/core/config.hpp"
"""Composable Kernel's header that defines macros by arch."""


@dataclass(frozen=True)
class Includer:
    """A text whose includes must exist.

    Attributes:
        place: its name in findings, such as ``csrc/cpp_itfs/mha_fwd.cu``.
        folder: the first directory of the search, relative to the tree; "" for none.
    """

    place: str
    text: str
    folder: str = ""


@dataclass(frozen=True)
class MissingName:
    """A header or type that no file provides, at its first use: ``csrc/cpp_itfs/mha_bwd.cu:3``."""

    place: str
    name: str


def missing_headers(
    root: Path,
    dirs: Sequence[str],
    includers: Iterable[Includer],
    macros: Macros,
    generated: Collection[str] = (),
) -> tuple[MissingName, ...]:
    """Return the quoted includes without a file, of the texts and of all that they include.

    Args:
        macros: known macros; includes under conditions on other macros do not count.
        generated: headers of generators, as sources include them.
    """
    search = _Search(root, dirs, frozenset(generated))
    start = list(includers)
    # Conditions are only evaluated if something is missing without them.
    return tuple(search.missing(start, macros) if search.missing(start, None) else ())


class _Search:
    def __init__(self, root: Path, dirs: Sequence[str], generated: Collection[str]) -> None:
        self._root, self._dirs, self._generated = root, dirs, generated
        self._found: dict[tuple[str, str], str | None] = {}
        self._headers: dict[str, Includer] = {}

    def missing(self, start: Iterable[Includer], macros: Macros | None) -> dict[MissingName, None]:
        """Return the missing headers in the order of their first use.

        Args:
            macros: known macros; None for all includes, whatever their conditions are.
        """
        found: dict[MissingName, None] = {}
        seen: set[str] = set()
        pending = deque(start)
        while pending:
            includer = pending.popleft()
            for name, quoted, line in _asked(includer.text, macros):
                path = self._path(includer, name, quoted)
                if path is None and quoted and name not in self._generated and not elsewhere(name):
                    found.setdefault(MissingName(f"{includer.place}:{line}", name))
                elif path is not None and path not in seen:
                    seen.add(path)
                    pending.append(self._header(path))
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


def missing_macros(
    tree: AiterTree, files: Iterable[str], archs: Iterable[str], arch: str
) -> tuple[MissingName, ...]:
    """Return the macros that headers use for an arch, and that CK defines only for other archs.

    Args:
        files: the headers of kernels, relative to the tree.
        archs: archs that CK may know.
    """
    headers = [tree.text(file) for file in files if file.endswith(f"/{ARCH_HEADER}")]
    if not headers:
        return ()
    defined = {name: _arch_macros(headers, name) for name in {*archs, arch}}
    every = {macro for macros in defined.values() for macro in macros}
    # Macros of archs themselves are undefined for other archs.
    known: Macros = {**dict.fromkeys(filter(_OF_ARCH.fullmatch, every)), **defined[arch]}
    wanted = {name for name in every - {*known} if not _OF_ARCH.fullmatch(name)}
    found: dict[str, str] = {}
    for file in files if wanted else ():
        text = tree.text(file)
        if wanted.isdisjoint(_WORD.findall(text)):
            continue
        for line in lines(text, known):
            if line.counts and not line.text.lstrip().startswith("#"):
                for name in sorted(wanted.intersection(_WORD.findall(line.text))):
                    found.setdefault(name, f"{file}:{line.number}")
    return tuple(MissingName(place, name) for name, place in sorted(found.items()))


def _arch_macros(headers: Iterable[str], arch: str) -> dict[str, str | None]:
    """Return the macros that headers define in device code for an arch."""
    device = ("__HIPCC__", "__HIP_DEVICE_COMPILE__", f"__{arch}__")
    macros: dict[str, str | None] = {"__cplusplus": "202002L", **dict.fromkeys(device, "1")}
    for text in headers:
        for line in lines(text, macros, complete=True):
            if line.counts and (match := _MACRO.match(line.text)):
                macros[match[1]] = match[2].strip()
    return macros


def elsewhere(name: str) -> bool:
    """Return whether a header's name is one of a compiler, system, ROCm or Python."""
    known = _ELSEWHERE.match(name) or _SYSTEM.fullmatch(name)
    return known is not None or "." not in posixpath.basename(name)


def _asked(text: str, macros: Macros | None) -> Iterator[tuple[str, bool, int]]:
    """Yield (name, is it quoted, line) of the includes that count."""
    if macros is None or len(text) > _LARGE:
        yield from ((name, quoted, 1) for name, quoted in includes(text[:_LARGE]))
        return
    for line in lines(text, macros):
        if line.counts and line.text.lstrip().startswith("#"):
            yield from ((name, quoted, line.number) for name, quoted in includes(line.text))


def unknown_names(
    tree: AiterTree, config: ModuleConfig, sources: Iterable[Includer], macros: Macros
) -> tuple[MissingName, ...]:
    """Return the types of Composable Kernel that sources and AITER's headers use undeclared.

    Lines that the macros of the compile exclude do not count.
    """
    own_folder = f"{tree.csrc_dir}/include/"
    texts = list(sources)
    known: set[str] = set()
    roots = {name for source in texts for name, _ in includes(source.text)}
    for file in closure(tree.root, include_dirs(tree, config), sorted(roots)):
        header = tree.text(file)
        if file.startswith(own_folder) and "namespace ck_tile" not in header:
            texts.append(Includer(file, header))
        else:
            known.update(_WORD.findall(header))
    for text in texts:
        known.update(_DECLARED.findall(text.text), _NAMED.findall(without_comments(text.text)))
    found: dict[str, str] = {}
    for text in texts:
        for line in code_lines(text.text, macros):
            for match in _USED.finditer(line.text):
                name = match[1] or match[2]
                if name not in known:
                    found.setdefault(name, f"{text.place}:{line.number}")
    return tuple(MissingName(place, name) for name, place in found.items())
