"""Classifies modules of AITER: attention, without PyTorch, or with PyTorch."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from qola.aiter.attention import ATTENTION
from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.tree import AiterTree, ModuleConfig

Kind = Literal["attention", "torch_free", "needs_torch"]

SOURCE_SUFFIXES = (".cu", ".cpp", ".cc")
"""Suffixes of the files that AITER compiles of a source directory."""

_TORCH = re.compile(r"(torch|ATen|c10)/")
_PYTHON = re.compile(r"pybind11/|Python\.h$")
#: ROCm's libraries in addition to HIP.
_ROCM = re.compile(r"(hip(?:blas(?:lt)?|cub|rand|solver)|roc(?:blas|prim|rand|solver))/")

# Sources and include directories determine the kind. Other keys may query PyTorch
# (module_moe_ck2stages) or tables that AITER merges at run time (module_gemm_a8w8_blockscale).
_DECIDING = ("srcs", "extra_include")
_IRRELEVANT = ("flags_extra_cc", "flags_extra_hip", "extra_ldflags", "blob_gen_cmd", "third_party")


@dataclass(frozen=True)
class Include:
    """A line ``#include <name>`` of a tree-relative file."""

    file: str
    name: str


@dataclass(frozen=True)
class ModuleKind:
    """The kind of a module, and the libraries that it needs.

    Attributes:
        kind: ``attention``: one of `ATTENTION`; ``torch_free``: AITER builds it without PyTorch;
            ``needs_torch``: AITER builds it with PyTorch.
        torch: the first include of PyTorch's headers, for ``needs_torch``.
        python: the first include of Python's or pybind11's headers, for ``torch_free``.
        rocm: ROCm's libraries whose headers it includes, except HIP, sorted; not for attention.
    """

    kind: Kind
    torch: Include | None = None
    python: Include | None = None
    rocm: tuple[str, ...] = ()


def classify(
    tree: AiterTree,
    name: str,
    *,
    overrides: Iterable[tuple[str, object]] = (),
    drop_srcs: Collection[str] = (),
) -> ModuleKind:
    """Return the kind of a module, from its sources and all that they include.

    Includes count under any ``#if``. With ``torch_exclude`` AITER builds a module without PyTorch.
    `overrides` and `drop_srcs` are the manifest's.

    Raises:
        AiterError: sources or include directories of the entry cannot be read.
    """
    if name in ATTENTION:
        return ModuleKind("attention")
    config = deciding_config(tree, name, overrides)
    includes_of = list(_includes(tree, config, frozenset(drop_srcs)))
    rocm = rocm_libraries(found.name for found in includes_of)
    torch = None if config.torch_exclude else _first(_TORCH, includes_of)
    if torch is not None:
        return ModuleKind("needs_torch", torch=torch, rocm=rocm)
    return ModuleKind("torch_free", python=_first(_PYTHON, includes_of), rocm=rocm)


def rocm_libraries(included: Iterable[str]) -> tuple[str, ...]:
    """Return ROCm's libraries whose headers are included, except HIP, sorted."""
    return tuple(sorted({match[1] for name in included if (match := _ROCM.match(name))}))


def _first(pattern: re.Pattern[str], includes_of: Iterable[Include]) -> Include | None:
    return next((found for found in includes_of if pattern.match(found.name)), None)


def deciding_config(
    tree: AiterTree, name: str, overrides: Iterable[tuple[str, object]] = ()
) -> ModuleConfig:
    """Evaluate the keys of an entry that determine its kind, as `AiterTree.module` does."""
    own = [(key, value) for key, value in overrides if key in _DECIDING]
    return tree.module(name, overrides=[*((key, ()) for key in _IRRELEVANT), *own])


def sources(tree: AiterTree, config: ModuleConfig, dropped: Collection[str]) -> Iterator[str]:
    """Yield the tree-relative sources of a module in the entry's order."""
    for src in config.srcs:
        path = tree.root / src
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            if file.suffix in SOURCE_SUFFIXES and file.name not in dropped and file.is_file():
                yield file.relative_to(tree.root).as_posix()


def names_word(tree: AiterTree, config: ModuleConfig, word: str) -> bool:
    """Return whether a source, a header or a generator's script of a module contains a word."""
    files = [*_source_files(tree, config, frozenset())]
    for call in config.generators:
        scripts = (tree.root / call.script).parent.rglob("*.py")
        files += [path.relative_to(tree.root).as_posix() for path in scripts]
    pattern = re.compile(rf"\b{re.escape(word)}\b")
    return any(pattern.search(tree.text(file)) for file in files)


def _source_files(tree: AiterTree, config: ModuleConfig, dropped: frozenset[str]) -> Iterator[str]:
    """Yield each source of a module, followed by the headers that it reaches first."""
    dirs = include_dirs(tree, config)
    seen: set[str] = set()
    for src in sources(tree, config, dropped):
        yield src
        direct = [name for name, _ in _read(tree, src)]
        for header in closure(tree.root, [posixpath.dirname(src), *dirs], direct):
            if header not in seen:
                seen.add(header)
                yield header


def _includes(tree: AiterTree, config: ModuleConfig, dropped: frozenset[str]) -> Iterator[Include]:
    for file in _source_files(tree, config, dropped):
        yield from (Include(file, name) for name, _ in _read(tree, file))


def _read(tree: AiterTree, path: str) -> list[tuple[str, bool]]:
    return includes(tree.text(path))
