"""Runs `compile` of functions of csrc/cpp_itfs up to the call of the compiler.

Run as ``python -B -S -m qola.codegen.cpp_itfs.run REQUEST RESULT``; both files are JSON. AITER's
own Python makes the name of each library, its source, its flags and its include directories.
Programs (make, hipcc, hipconfig) and PyTorch, which this process lacks, have stand-ins, and copies
of headers are noted instead.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from qola.codegen.asm.run_script import chip_info, note_opened
from qola.codegen.process import ignore_bytecode, offer_packages, prepare_generator
from qola_base.json_types import json_fields, parse_json, reader

_JIT = "csrc.cpp_itfs.utils"
_MAX_ERROR = 2000
"""Maximal characters of an error of AITER's Python."""


@dataclass(frozen=True)
class Call:
    """A call of a module's `compile`; `module` is the name by which AITER imports it."""

    module: str
    arguments: Mapping[str, str | int | bool]


@dataclass(frozen=True)
class Request:
    """Calls for one arch.

    Attributes:
        root, ck_dir: absolute paths of AITER's directory with csrc/ and of Composable Kernel.
        rocm: version of the ROCm that compiles.
    """

    root: str
    ck_dir: str
    arch: str
    rocm: str
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Result:
    """The library that a call would compile.

    Attributes:
        error: why AITER's Python does not make the library from a template alone, else "".
        flags: compiler flags, in any order.
        copied: absolute paths of files and directories that were copied for includes.
    """

    error: str = ""
    name: str = ""
    source: str = ""
    flags: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The results of the calls, in their order, and the absolute paths of the files read."""

    results: tuple[Result, ...]
    opened: tuple[str, ...]


class Absent:
    """A value of PyTorch, which functions may pass on and never use for a name or a source."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *_args: object, **_kwargs: object) -> Absent:
        """Stand for the result of a function, or an object of a class."""
        return Absent(f"{self._name}()")

    def __or__(self, _other: object) -> Absent:
        return self

    def _use(self) -> str:
        raise RuntimeError(f"it asks PyTorch for {self._name}")

    __str__ = __repr__ = _use
    __bool__ = __int__ = __float__ = _use


def _module(name: str, **values: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(values)
    return module


def _torch() -> dict[str, ModuleType]:
    """Return a PyTorch without any value: modules by name."""

    def absent(name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"torch.{name}")

    return {name: _module(name, __getattr__=absent) for name in ("torch", "torch.library")}


class Programs:
    """Stands for the programs that AITER's JIT runs.

    Attributes:
        flags: the compiler flags of the last library.
        sources: its sources.
        copied: the files and directories that were copied for its includes.
    """

    def __init__(self, arch: str, rocm: str) -> None:
        self._arch, self._rocm = arch, rocm
        self.flags: list[str] = []
        self.sources: list[str] = []
        self.copied: list[str] = []

    def run(self, command: str | Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        """Answer as the program would, without running it."""
        words = command if isinstance(command, str) else " ".join(command)
        for part, answer in (
            ("amdgpu-arch", self._arch),
            ("hipconfig", self._rocm),
            ("make build", ""),
        ):
            if part in words:
                return subprocess.CompletedProcess(words, 0, answer, "")
        raise RuntimeError(f"it runs {words}")

    def render(self, *, sources: list[str], cxxflags: list[str], **_: object) -> str:
        """Note the content of a Makefile, in the place of its template."""
        self.sources, self.flags = [*sources], [*cxxflags]
        return ""

    def copy(self, source: str | os.PathLike[str], *_: object, **__: object) -> None:
        """Note a file or a directory that AITER copies."""
        self.copied.append(os.fspath(source))


def _no_program(*_: object, **__: object) -> str:
    # As where git is not installed.
    raise FileNotFoundError


def _prepare(request: Request) -> tuple[ModuleType, Programs]:
    """Import AITER's JIT with stand-ins; return it with its programs."""
    programs = Programs(request.arch, request.rocm)
    os.environ.update(
        AITER_ROOT_DIR=os.path.abspath("jit"),
        CK_DIR=request.ck_dir,
        GPU_ARCHS=request.arch,
        HOME=os.getcwd(),
    )
    ignore_bytecode()
    offer_packages()
    sys.modules.update(_torch(), chip_info=chip_info([request.arch]))
    vars(os).update(system=lambda _command: 0)
    vars(shutil).update(copy=programs.copy, copytree=programs.copy, which=lambda name: name)
    vars(subprocess).update(run=programs.run, check_output=_no_program)
    sys.path.insert(0, request.root)
    jit = importlib.import_module(_JIT)
    vars(jit).update(
        makefile_template=programs,
        mp_lock=lambda lock_path, main_func, **_: main_func(),
        run_lib=lambda func_name, folder=None: (func_name, folder or func_name),
    )
    return jit, programs


def _compile(jit: ModuleType, programs: Programs, call: Call) -> Result:
    """Call a function's `compile`; return the files that it compiles, or an error."""
    programs.copied = []
    programs.sources = []
    try:
        module = importlib.import_module(call.module)
        name, folder = module.compile(**call.arguments)
    except ModuleNotFoundError as error:
        return Result(f"it imports {error.name}")
    except Exception as error:
        words = error if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"
        return Result(str(words)[:_MAX_ERROR])
    if name != folder or programs.sources != [f"{name}.cpp"]:
        further = [source for source in programs.sources if source != f"{name}.cpp"]
        return Result(f"it compiles further sources: {', '.join(further) or folder}")
    source = Path(jit.BUILD_DIR, folder, f"{name}.cpp").read_text(encoding="utf-8")
    return Result("", name, source, tuple(programs.flags), tuple(programs.copied))


def main(argv: Sequence[str]) -> None:
    """Answer a request: see `qola.codegen.cpp_itfs.render`."""
    request: Request = reader(Request)(parse_json(Path(argv[0]).read_bytes()))
    opened: dict[str, None] = {}
    sys.addaudithook(lambda event, args: note_opened(opened, event, args))
    jit, programs = _prepare(request)
    results = tuple(_compile(jit, programs, call) for call in request.calls)
    answer = json.dumps(Answer(results, tuple(opened)), default=json_fields)
    Path(argv[1]).write_text(answer, encoding="utf-8")


if __name__ == "__main__":
    prepare_generator()
    main(sys.argv[1:])
