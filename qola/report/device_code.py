"""Reads the device code of a built library: what its kernels take, by the source they are of."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from qola.errors import Finding, QolaError, unseen, visible
from qola.files import UnfitFileError, check_regular
from qola.offload import COMPRESSED, entries
from qola.report import elf, msgpack
from qola.report.elf import Elf
from qola.report.parts import Part, split_parts

_WRAPPER = "__hip_fatbin_wrapper"
"""Symbol by which a host object registers its device code: magic, version, pointer."""

_METADATA = (b"AMDGPU", 32)
"""Name and type of the note with the metadata (LLVM's AMDGPUUsage, code object V3 and above)."""

_MACHINES = {0x3F: "gfx90a", 0x49: "gfx1250", 0x4C: "gfx942", 0x4F: "gfx950"}
"""Archs by the lowest byte of e_flags (AMDGPUUsage, EF_AMDGPU_MACH); AITER's code objects of
assembly kernels say theirs nowhere else."""


class ReportError(QolaError):
    """What a report is made of cannot be read, or does not belong together."""

    default_title: ClassVar[str] = "the report cannot be made"


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel of a code object; all but the last two are its metadata's words.

    Attributes:
        vgprs: vector registers of a lane as the metadata has them; `agprs`, those for matrices.
        scratch: bytes of private memory of a work-item.
        lds: bytes of a workgroup, those that a launch asks for in addition left out.
        workgroup: the most work-items of a workgroup.
        registers: vector registers that the GPU gives a lane, of all kinds: the descriptor's.
        code_bytes: of its instructions.
    """

    symbol: str
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch: int
    lds: int
    workgroup: int
    registers: int
    code_bytes: int


@dataclass(frozen=True)
class CodeObject:
    """A code object for one arch, with its kernels in the order of the source."""

    arch: str
    size: int
    sha256: str
    kernels: tuple[DeviceKernel, ...]


@dataclass(frozen=True)
class Unit:
    """What one source brought: a batch, or a kernel instance alone; `name` is that of the file."""

    name: str
    code_objects: tuple[CodeObject, ...]


@dataclass(frozen=True)
class Library:
    """A built library.

    Attributes:
        units: the sources with device code, by name.
        assembly: code objects of assembly kernels, embedded as data.
        parts: what its bytes are for.
        compiler: the version that clang left in it, "" if it did not.
    """

    file: str
    size: int
    sha256: str
    units: tuple[Unit, ...]
    assembly: tuple[CodeObject, ...]
    parts: tuple[Part, ...]
    compiler: str


def read_library(path: Path) -> Library:
    """Read a library.

    Raises:
        ReportError: it cannot be read, is no library, or does not tell its kernels apart.
    """
    try:
        check_regular(path)
        return _library(path, path.read_bytes())
    except OSError as error:
        raise _unfit(path, error.strerror or str(error)) from None
    except UnfitFileError as error:
        raise _unfit(path, str(error)) from None
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError, struct.error) as e:
        raise _unfit(path, f"no library that can be read: {e}") from None


def _library(path: Path, data: bytes) -> Library:
    found = Elf(memoryview(data))
    fatbin = found.section(".hip_fatbin")
    units = tuple(_units(path, found)) if fatbin else ()
    skipped = (fatbin.offset, fatbin.offset + fatbin.size) if fatbin else (0, 0)
    assembly = dict(_assembly(data, skipped))
    return Library(
        file=visible(path.name),
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        units=units,
        assembly=tuple(assembly.values()),
        parts=split_parts(found, ((at, code.size) for at, code in assembly.items())),
        compiler=_compiler(found.content(".comment")),
    )


def _compiler(comment: bytes) -> str:
    """Return clang's version; linkers and the C library's compiler leave theirs beside it."""
    texts = sorted({text.decode("utf-8", "replace") for text in comment.split(b"\0")})
    return ", ".join(visible(text)[:200] for text in texts if "clang version" in text)


def _unfit(path: Path, found: str) -> ReportError:
    return ReportError(
        Finding(
            str(path),
            found,
            "a library that qola has built, with its symbols: a .so file",
            "qola build -m MANIFEST -o DIR makes them: DIR/lib/*.so",
        )
    )


def _units(path: Path, library: Elf) -> Iterator[Unit]:
    """Yield the sources with device code, by name: a symbol of the file's name is before theirs."""
    addends = library.addends()
    units, name = {}, ""
    left = len(library.data)
    for symbol in library.symbols(".symtab"):
        if symbol.type == elf.FILE:
            name = symbol.name
        elif symbol.name == _WRAPPER:
            place = symbol.address + 8
            pointer = addends.get(place) or struct.unpack_from("<Q", library.at(place))[0]
            units[name.removesuffix(".cpp")] = library.at(pointer)
    if not units:
        raise _unfit(path, "a stripped library: no symbols say whose each kernel is")
    for name in sorted(units):
        if bytes(units[name][: len(COMPRESSED)]) == COMPRESSED:
            raise ReportError(
                Finding(
                    f"{path}: {name}",
                    "compressed device code",
                    "a library with device code as it is",
                    "build it without --@qola//:compress",
                )
            )
        code_objects = [
            data for target, data in entries(units[name]) if not target.startswith("host-")
        ]
        left -= sum(map(len, code_objects))
        if left < 0:
            raise ValueError("code objects that overlap")
        yield Unit(visible(name), tuple(map(_code_object, code_objects)))


def _assembly(data: bytes, skipped: tuple[int, int]) -> Iterator[tuple[int, CodeObject]]:
    """Yield the code objects that a library embeds as data, with their offsets."""
    at, view = 0, memoryview(data)
    while (at := data.find(elf.MAGIC, at + 1)) >= 0:
        if skipped[0] <= at < skipped[1]:
            at = skipped[1] - 1
        elif struct.unpack_from("<H", data, at + 18)[0] == elf.AMDGPU:
            end = at + Elf(view[at:]).size
            yield at, _code_object(view[at:end])
            at = end - 1


def _code_object(data: memoryview) -> CodeObject:
    found = Elf(data)
    digest = hashlib.sha256(data).hexdigest()
    metadata: Any = next(
        (msgpack.unpack(d) for *key, d in found.notes() if (*key,) == _METADATA), {}
    )
    # amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-
    target = _text(metadata, "amdhsa.target", "").rpartition("--")[2].partition(":")[0]
    arch = target or _MACHINES.get(found.flags & 0xFF, f"machine {found.flags & 0xFF:#x}")
    symbols = {symbol.name: symbol for symbol in found.symbols(".dynsym")}
    symbols |= {symbol.name: symbol for symbol in found.symbols(".symtab")}
    kernels = tuple(
        DeviceKernel(
            symbol=_text(told, ".name"),
            vgprs=_number(told, ".vgpr_count"),
            agprs=_number(told, ".agpr_count", 0),
            sgprs=_number(told, ".sgpr_count"),
            vgpr_spills=_number(told, ".vgpr_spill_count", 0),
            sgpr_spills=_number(told, ".sgpr_spill_count", 0),
            scratch=_number(told, ".private_segment_fixed_size"),
            lds=_number(told, ".group_segment_fixed_size"),
            workgroup=_number(told, ".max_flat_workgroup_size"),
            registers=_registers(found.at(symbols[told[".symbol"]].address)),
            code_bytes=symbols[told[".name"]].size,
        )
        for told in metadata.get("amdhsa.kernels", ())
    )
    return CodeObject(arch, len(data), digest, kernels)


def _text(told: Any, key: str, default: str | None = None) -> str:
    value = _told(told, key, default)
    if type(value) is not str or unseen(value):
        raise ValueError(f"{key} of the metadata: {value!r:.80}")
    return value


def _number(told: Any, key: str, default: int | None = None) -> int:
    value = _told(told, key, default)
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ValueError(f"{key} of the metadata: {value!r:.80}")
    return value


def _told(told: Any, key: str, default: object) -> object:
    if type(told) is not dict:
        raise ValueError(f"metadata without {key}: {told!r:.80}")
    return told.get(key, default)


def _registers(descriptor: memoryview) -> int:
    """Return the vector registers that a kernel descriptor asks for, counted in eights.

    AMDGPUUsage, Kernel Descriptor: the lowest six bits of COMPUTE_PGM_RSRC1, at byte 48.
    """
    (settings,) = struct.unpack_from("<I", descriptor, 48)
    return 8 * (int(settings & 63) + 1)
