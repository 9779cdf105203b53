"""Reads a code object: its kernels, their descriptors, and the bytes as they lie in memory."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.elf.elffile import ELFFile

from qola.errors import Finding, QolaError

#: EF_AMDGPU_MACH of the archs that are emulated.
ARCHS = {0x4C: "gfx942", 0x4F: "gfx950"}
#: The most LDS that a workgroup can have, in bytes.
MAX_LDS = {"gfx942": 64 << 10, "gfx950": 160 << 10}
#: The most scratch memory that a lane can have, in bytes: a wave's is a number of 13 bits, in KiB
#: (WAVESIZE of COMPUTE_TMPRING_SIZE).
MAX_SCRATCH = ((1 << 13) - 1) * 1024 // 64
_METADATA_NOTE = 32
_DESCRIPTOR_BYTES = 64
#: Kernels that have their first arguments preloaded begin with code for firmware that does not.
_PRELOAD_ENTRY = 256


@dataclass(frozen=True)
class Descriptor:
    """What a kernel's descriptor tells the hardware; names as in LLVM's AMDGPU guide."""

    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    entry: int  # Offset of the first instruction from the descriptor
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload_words: int  # Kernel arguments that are in SGPRs when a wave begins
    preload_offset: int  # The first one, in words

    @classmethod
    def read(cls, data: bytes) -> Descriptor:
        """Read the 64 bytes of a descriptor."""
        lds, scratch, kernarg, _, entry = struct.unpack_from("<IIIIq", data, 0)
        rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", data, 44)
        words = preload & 0x7F
        return cls(
            lds,
            scratch,
            kernarg,
            entry + (_PRELOAD_ENTRY if words else 0),
            rsrc1,
            rsrc2,
            rsrc3,
            properties,
            words,
            preload >> 7,
        )

    @property
    def vgprs(self) -> int:
        """Vector registers that a wave gets, accumulation registers included."""
        return ((self.rsrc1 & 0x3F) + 1) * 8

    @property
    def first_agpr(self) -> int:
        """Where accumulation registers begin among the vector registers."""
        return ((self.rsrc3 & 0x3F) + 1) * 4

    @property
    def float_mode(self) -> int:
        """FLOAT_MODE: rounding of f32 and f16/f64, then denormals of both, two bits each."""
        return self.rsrc1 >> 12 & 0xFF

    @property
    def unsupported(self) -> str | None:
        """What it asks for that is not emulated; None where there is nothing."""
        if self.properties >> 10 & 1:
            return "waves of 32 lanes"
        if self.float_mode & 0xF:
            return "rounding that is not to nearest"
        return "f16 that does not overflow (FP16_OVFL)" if self.rsrc1 >> 26 & 1 else None

    @property
    def user_sgprs(self) -> int:
        """SGPRs that the launch sets."""
        return self.rsrc2 >> 1 & 0x1F

    def workgroup_id(self, axis: int) -> bool:
        """Whether an SGPR gets the workgroup's number on an axis."""
        return bool(self.rsrc2 >> 7 + axis & 1)


@dataclass(frozen=True)
class Argument:
    """A kernel argument: its value kind, offset and size in the kernarg segment, in bytes."""

    kind: str
    offset: int
    size: int


@dataclass(frozen=True)
class Kernel:
    """A kernel of a code object.

    Attributes:
        entry: address of its first instruction, from the start of the image.
        size: bytes of its code, or of what follows where its symbol has no size.
    """

    symbol: str
    entry: int
    size: int
    descriptor: Descriptor
    arguments: tuple[Argument, ...]
    max_block: int


@dataclass(frozen=True)
class CodeObject:
    """A code object of one arch.

    Attributes:
        image: its loaded segments, from address 0.
    """

    arch: str
    image: bytes
    kernels: Mapping[str, Kernel]

    @classmethod
    def read(cls, data: bytes, name: str = "code object") -> CodeObject:
        """Read an ELF file of an arch that is emulated."""
        if data[:4] != b"\x7fELF":
            raise _error(name, "no ELF file", "a code object: unpack an offload bundle first")
        elf = ELFFile(io.BytesIO(data))
        arch = ARCHS.get(elf["e_flags"] & 0xFF)
        if elf["e_machine"] != "EM_AMDGPU" or arch is None:
            raise _error(
                name,
                f"a file for {elf['e_machine']}, e_flags {elf['e_flags']:#x}",
                f"a code object for {' or '.join(ARCHS.values())}",
            )
        return cls(arch, image := _image(elf), _kernels(elf, image))


def _error(place: str, found: str, expected: str) -> QolaError:
    return QolaError(Finding(place, found, expected), "the code object cannot be read")


def _image(elf: ELFFile) -> bytes:
    segments = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
    image = bytearray(max((s["p_vaddr"] + s["p_memsz"] for s in segments), default=0))
    for segment in segments:
        image[segment["p_vaddr"] : segment["p_vaddr"] + segment["p_filesz"]] = segment.data()
    return bytes(image)


def _kernels(elf: ELFFile, image: bytes) -> dict[str, Kernel]:
    table: Any = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
    symbols = {s.name: (s["st_value"], s["st_size"]) for s in table.iter_symbols()} if table else {}
    text = elf.get_section_by_name(".text")
    end = text["sh_addr"] + text["sh_size"] if text else 0
    kernels = {}
    for metadata in _metadata(elf):
        symbol = metadata[".name"]
        address = symbols[metadata[".symbol"]][0]
        descriptor = Descriptor.read(image[address : address + _DESCRIPTOR_BYTES])
        entry = address + descriptor.entry
        start, size = symbols[metadata[".symbol"].removesuffix(".kd")]
        # Symbols of hand-written kernels have no size: theirs is the whole section.
        stop = start + size if size else end
        arguments = tuple(
            Argument(a[".value_kind"], a[".offset"], a[".size"]) for a in metadata[".args"]
        )
        kernels[symbol] = Kernel(
            symbol,
            entry,
            stop - entry,
            descriptor,
            arguments,
            metadata[".max_flat_workgroup_size"],
        )
    return kernels


def _metadata(elf: ELFFile) -> list[dict[str, Any]]:
    section: Any
    for section in elf.iter_sections():
        if section["sh_type"] != "SHT_NOTE":
            continue
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] == _METADATA_NOTE:
                document = msgpack.unpackb(note["n_descdata"])
                return list(document["amdhsa.kernels"])
    return []
