"""Has AITER's own Python name the libraries of csrc/cpp_itfs, and write their sources."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from qola.aiter.template_functions import TemplateFunction
from qola.aiter.tree import AiterTree
from qola.codegen.cpp_itfs.run import Answer, Call, Request, Result
from qola.codegen.process import run_module
from qola.manifest.values import quote
from qola_base.errors import CodegenError, Finding
from qola_base.json_types import WrongValueError, json_fields, parse_json, reader

_PLACE = "the functions of csrc/cpp_itfs"
_OFFLOAD = "--offload-arch="
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
"""The name of a function in C, of which a file, a target and a linker script are made."""
#: OPTIONAL_FLAGS of rules_hip/rocm/flags.bzl: each compile has those that its compiler accepts, and
#: LLVM refuses an option that is given twice.
OPTIONAL_FLAGS = (
    "-fgpu-flush-denormals-to-zero",
    "-fno-offload-uniform-block",
    "-mllvm --amdgpu-kernarg-preload-count=16",
    "-mllvm --lsr-drop-solution=1",
    "-mllvm -enable-post-misched=0",
    "-mllvm -amdgpu-early-inline-all=true",
    "-mllvm -amdgpu-function-calls=false",
    "-mllvm -amdgpu-coerce-illegal-types=1",
)


@dataclass(frozen=True)
class FunctionCall:
    """A function of csrc/cpp_itfs with its arguments."""

    function: TemplateFunction
    arguments: Mapping[str, str | int | bool]

    @property
    def text(self) -> str:
        """The call as Python writes it: ``top_k_renorm_probs(d=128256)``."""
        words = (f"{key}={value!r}" for key, value in self.arguments.items())
        return f"{self.function.name}({', '.join(words)})"


@dataclass(frozen=True)
class RenderedFunction:
    """The library of a call, as AITER's JIT would compile it.

    Attributes:
        name: of the library and of its function: the function's, and a digest of the arguments.
        flags: compiler flags, without archs and those that each compile of the toolchain has.
        include_dirs: in the order in which they are searched, relative to the tree.
        error: why AITER's Python does not make the library from a template alone, else "".
    """

    name: str = ""
    source: str = ""
    flags: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class RenderedFunctions:
    """The libraries of calls, in their order, and the files of the tree that they come from."""

    functions: tuple[RenderedFunction, ...]
    inputs: tuple[str, ...]


def render_functions(
    tree: AiterTree, calls: Sequence[FunctionCall], archs: Iterable[str], rocm: str
) -> RenderedFunctions:
    """Run the `compile` of functions, up to the call of the compiler.

    Args:
        rocm: version of the ROCm that compiles.

    Raises:
        CodegenError: AITER's JIT cannot be imported.
    """
    answers = {arch: _run(tree, calls, arch, rocm) for arch in archs}
    found = [[_rendered(tree, result) for result in of.results] for of in answers.values()]
    opened = {path for answer in answers.values() for path in answer.opened}
    return RenderedFunctions(
        tuple(_same(results, [*answers]) for results in zip(*found, strict=True)),
        tuple(sorted(tree.files_among(opened))),
    )


def _run(tree: AiterTree, calls: Sequence[FunctionCall], arch: str, rocm: str) -> Answer:
    request = Request(
        os.path.abspath(tree.root / tree.meta_dir),
        os.path.abspath(tree.root / tree.ck_dir),
        arch,
        rocm,
        tuple(Call(_module(tree, call.function.file), call.arguments) for call in calls),
    )
    with tempfile.TemporaryDirectory() as name:
        files = Path(name, "request.json"), Path(name, "result.json")
        files[0].write_text(json.dumps(request, default=json_fields), encoding="utf-8")
        cwd = Path(name, "cwd")
        cwd.mkdir()
        run_module("qola.codegen.cpp_itfs.run", [*map(str, files)], cwd=cwd, place=_PLACE)
        try:
            answer: Answer = reader(Answer)(parse_json(files[1].read_bytes()))
        except (OSError, WrongValueError) as error:
            # AITER's Python ends the process, or a template has control characters.
            found, expected = f"an answer that cannot be read: {error}", "names, flags and sources"
            raise CodegenError(Finding(_PLACE, found, expected)) from None
    return answer


def _module(tree: AiterTree, file: str) -> str:
    """Return the name by which AITER imports a file: csrc.cpp_itfs.pa.pa."""
    below = PurePosixPath(file).relative_to(tree.meta_dir)
    return ".".join(below.with_suffix("").parts)


def _rendered(tree: AiterTree, result: Result) -> RenderedFunction:
    if result.error:
        root = os.path.join(os.path.abspath(tree.root), "")
        return RenderedFunction(error=result.error.replace(root, ""))
    if not _NAME.fullmatch(result.name):
        return RenderedFunction(error=f"it names its library {quote(result.name)}")
    given = set(result.flags) - {*OPTIONAL_FLAGS}
    # AITER's JIT takes them from a set, so in any order.
    flags = sorted(flag for flag in given if not flag.startswith(_OFFLOAD))
    try:
        words = [word for flag in flags for word in shlex.split(flag)]
    except ValueError:
        return RenderedFunction(error=f"its flags have an open quote: {quote(flags)}")
    # One directory gets copies of all: a later file replaces an earlier one of the same name.
    places = dict.fromkeys(_include_dir(tree, path) for path in reversed(result.copied))
    dirs = tuple(filter(None, places))
    return RenderedFunction(result.name, result.source, tuple(words), dirs)


def _include_dir(tree: AiterTree, path: str) -> str:
    """Return the directory of the tree whose files a copy of a path would give; "" outside."""
    if not os.path.isabs(path):
        return ""
    directory = path if os.path.isdir(path) else os.path.dirname(path)
    below = posixpath.normpath(os.path.relpath(directory, os.path.abspath(tree.root)))
    return "" if below.startswith("..") else below


def _same(results: Sequence[RenderedFunction], archs: Sequence[str]) -> RenderedFunction:
    """Return the one library for all archs."""
    first, *others = results
    if failed := [result for result in results if result.error]:
        return failed[0]
    if any(result != first for result in others):
        return RenderedFunction(error=f"another source for each of {', '.join(archs)}")
    return first
