"""Lists the device code of a library, whoever built it, and checks that one compiler made it."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.report.data import ReportError
from qola.report.library import embedded_code, open_library, registered_code
from qola_base.code_object.elf import NEEDED, RPATH, RUNPATH
from qola_base.code_object.reader import CodeObject, parse_code_object
from qola_base.errors import Finding, visible
from qola_base.json_types import JsonObject

SCHEMA = 1
"""Version of the JSON, increased with each incompatible change."""

ASSEMBLY = "not named"
"""Stands for the compiler of a code object that names none, such as an assembly kernel."""

_LIBRARY = "a library (.so), or a code object (.hsaco)"
_PLACE = "name such a file, or the directory of a bundle"


@dataclass(frozen=True)
class Inspection:
    """A library and its device code.

    Attributes:
        file: path of the library, as given.
        hip: soname of HIP's runtime that it needs, "" if it needs none.
        runpath: directories that the loader searches for it.
        code: code objects that the library registers with HIP, in the order of the file.
        embedded: code objects that it contains as data, such as assembly kernels.
    """

    file: str
    size: int
    sha256: str
    hip: str
    runpath: tuple[str, ...]
    code: tuple[CodeObject, ...]
    embedded: tuple[CodeObject, ...]

    @property
    def every(self) -> tuple[CodeObject, ...]:
        """All code objects."""
        return self.code + self.embedded

    @property
    def archs(self) -> list[str]:
        """The archs of all code objects, sorted."""
        return sorted({code.arch for code in self.every})

    @property
    def compilers(self) -> Counter[str]:
        """The number of code objects by their device compiler; assembly is not counted."""
        return Counter(compiler_of(code) for code in self.every if code.compilers)

    def to_json(self) -> JsonObject:
        """Return the JSON of the library (docs/guide/report.md)."""
        return {
            "archs": self.archs,
            "bytes": self.size,
            "code_objects": [
                _code_json(code, embedded=embedded)
                for embedded, group in ((False, self.code), (True, self.embedded))
                for code in group
            ],
            "compilers": sorted(self.compilers),
            "file": self.file,
            "hip": self.hip,
            "runpath": list(self.runpath),
            "sha256": self.sha256,
        }


def _code_json(code: CodeObject, *, embedded: bool) -> JsonObject:
    return {
        "arch": code.arch,
        "bytes": code.size,
        "compiler": compiler_of(code) if code.compilers else None,
        "embedded": embedded,
        "kernels": list(code.kernels),
        "sha256": code.sha256,
        "version": code.version,
    }


def compiler_of(code: CodeObject) -> str:
    """Return the version of the clang that compiled a code object.

    Device libraries, which another clang may have compiled, do not count.
    """
    return code.compilers[0] if code.compilers else ASSEMBLY


class InspectionError(ReportError, title="the file cannot be inspected"):
    """A file that cannot be read, or that is not a library or code object."""


def inspect_library(path: Path) -> Inspection:
    """Read a library, or a code object in a file of its own (.hsaco).

    Raises:
        InspectionError: the file cannot be read, or is not a library.
    """
    with open_library(path, _LIBRARY, _PLACE, InspectionError) as elf:
        if elf.machine == "EM_AMDGPU":
            code: tuple[CodeObject, ...] = (parse_code_object(elf.data),)
        else:
            code = tuple(itertools.chain.from_iterable(registered_code(elf)))
        hip = [name for name in elf.dynamic_texts(NEEDED) if name.startswith("libamdhip64.so")]
        # The loader ignores RPATH if there is a RUNPATH.
        places = elf.dynamic_texts(RUNPATH) or elf.dynamic_texts(RPATH)
        searched = [place for text in places for place in text.split(":")]
        return Inspection(
            file=visible(str(path)),
            size=len(elf.data),
            sha256=hashlib.sha256(elf.data).hexdigest(),
            hip=visible(next(iter(hip), "")),
            runpath=tuple(map(visible, searched)),
            code=code,
            embedded=tuple(embedded for _, _, embedded in embedded_code(elf)),
        )


def check_compilers(inspections: Sequence[Inspection]) -> None:
    """Check that one compiler made all device code of some libraries.

    Raises:
        ReportError: several did. The error names the libraries with each.
    """
    counts = sum((library.compilers for library in inspections), Counter[str]())
    if len(counts) < 2:
        return
    lines = []
    for compiler, number in counts.most_common():
        files = [library.file for library in inspections if compiler in library.compilers]
        lines.append(f"{compiler}: {number} code objects, in {', '.join(files[:3])}")
    raise ReportError(
        Finding(
            inspections[0].file if len(inspections) == 1 else "the libraries",
            "\n".join([f"device code of {len(counts)} compilers", *lines]),
            "device code of one compiler",
            "build the libraries again with one ROCm",
        ),
        "several compilers made the device code",
    )
