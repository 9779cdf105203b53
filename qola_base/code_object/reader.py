"""Reads a code object: its kernels, their descriptors, and the bytes that a GPU loads."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from qola_base.arch_facts import ARCHS
from qola_base.code_object.elf import Elf, explain_errors
from qola_base.code_object.offload import arch_of
from qola_base.errors import Finding, unseen, visible

_UNIT = "__hip_cuid_"
"""Prefix of the symbol by which clang identifies the source of a code object."""

#: Archs by their machine. The code objects of AITER's assembly kernels have no other mark of their
#: arch.
_MACHINES = {facts.machine: arch for arch, facts in ARCHS.items()}
#: Name and type of the note with the metadata (AMDGPUUsage, code object V3 and above).
_METADATA = ("AMDGPU", 32)
_DESCRIPTOR_BYTES = 64
#: Code at the start of kernels with preloaded arguments, for firmware that does not preload.
_PRELOAD_BYTES = 256


@dataclass(frozen=True)
class Descriptor:
    """A kernel descriptor; names as in LLVM's AMDGPUUsage.

    Attributes:
        entry: offset of the first instruction from the descriptor, in bytes.
        preload_words: number of kernel arguments that SGPRs contain when a wave starts.
        preload_offset: offset of the first of them in the kernarg segment, in words.
    """

    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    entry: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload_words: int
    preload_offset: int

    @classmethod
    def read(cls, data: bytes | memoryview) -> Descriptor:
        """Read the 64 bytes of a descriptor."""
        lds, scratch, kernarg, _, entry = struct.unpack_from("<IIIIq", data, 0)
        rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", data, 44)
        words = preload & 0x7F
        entry += _PRELOAD_BYTES if words else 0
        return cls(
            *(lds, scratch, kernarg, entry, rsrc1, rsrc2, rsrc3, properties, words, preload >> 7)
        )

    @property
    def vgprs(self) -> int:
        """Vector registers of a lane that the GPU allocates, accumulation registers included."""
        return ((self.rsrc1 & 0x3F) + 1) * 8

    @property
    def first_agpr(self) -> int:
        """Index of the first accumulation register among the vector registers."""
        return ((self.rsrc3 & 0x3F) + 1) * 4

    @property
    def float_mode(self) -> int:
        """FLOAT_MODE: rounding of f32 and f16/f64, then denormals of both, two bits each."""
        return self.rsrc1 >> 12 & 0xFF

    @property
    def user_sgprs(self) -> int:
        """SGPRs that the launch sets."""
        return self.rsrc2 >> 1 & 0x1F

    def workgroup_id(self, axis: int) -> bool:
        """Whether an SGPR gets the workgroup's index on an axis."""
        return bool(self.rsrc2 >> 7 + axis & 1)


@dataclass(frozen=True)
class Argument:
    """A kernel argument: value kind, offset and size in the kernarg segment in bytes."""

    kind: str
    offset: int
    size: int


@dataclass(frozen=True)
class Resources:
    """The resources that the metadata of a kernel states.

    Attributes:
        vgprs, agprs, sgprs: registers of a lane, of matrix instructions, and of a wave.
        vgpr_spills, sgpr_spills: registers that the compiler spilled.
        scratch: private memory of a work-item in bytes.
        lds: static LDS of a workgroup in bytes.
    """

    vgprs: int = 0
    agprs: int = 0
    sgprs: int = 0
    vgpr_spills: int = 0
    sgpr_spills: int = 0
    scratch: int = 0
    lds: int = 0


@dataclass(frozen=True)
class Kernel:
    """A kernel of a code object.

    Attributes:
        entry: address of its first instruction, from the start of the image.
        size: bytes of its code; up to the end of the section if its symbol has no size.
        max_block: the most work-items of a workgroup.
    """

    symbol: str
    entry: int
    size: int
    descriptor: Descriptor
    arguments: tuple[Argument, ...]
    max_block: int
    resources: Resources = Resources()


@dataclass(frozen=True)
class CodeObject:
    """A code object for one arch.

    Attributes:
        image: its loaded segments, from address 0; empty if they were not requested.
        kernels: by symbol, in the order of the source.
        size: bytes of the file.
        sha256: digest of the file.
        unit: identifies the source: `unit_of` its compilation unit's id; "" for assembly.
        version: version of the code object format (AMDGPUUsage): 6 is V6.
        compilers: clang that compiled it, then those of its device libraries; () for assembly.
        symbols: address and size of each symbol, if the image was requested.
        text: begin and end of the section with code.
        printf_formats: by hash, the constant format strings of `-mprintf-kind=buffered`.
    """

    arch: str
    image: bytes
    kernels: Mapping[str, Kernel]
    size: int = 0
    sha256: str = ""
    unit: str = ""
    version: int = 0
    compilers: tuple[str, ...] = ()
    symbols: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    text: tuple[int, int] = (0, 0)
    printf_formats: Mapping[int, bytes] = field(default_factory=dict)

    @classmethod
    def read(cls, data: bytes | memoryview, name: str = "code object") -> CodeObject:
        """Read an ELF file with its image.

        Args:
            name: the file, for errors.

        Raises:
            QolaError: not a code object, or a damaged one.
        """
        with explain_errors(Finding(name, "not a code object", "an ELF file for an AMD GPU")):
            return parse_code_object(data, load=True)


def unit_of(cuid: str) -> str:
    """Return what identifies a source with this compilation unit's id (``-cuid``) in code objects.

    Clang takes the first 8 bytes of the MD5 as a number (clang/lib/Driver/Action.cpp).
    """
    digest = hashlib.md5(cuid.encode(), usedforsecurity=False).digest()
    return f"{int.from_bytes(digest[:8], 'little'):x}"


def parse_code_object(data: bytes | memoryview, *, load: bool = False) -> CodeObject:
    """Parse an ELF file; use it within `explain_errors`.

    Args:
        load: whether the result gets an image, which takes as much memory as the file.
    """
    elf = Elf(data)
    if elf.machine != "EM_AMDGPU":
        raise ValueError(f"an ELF file for {elf.machine}")
    note = elf.note(*_METADATA)
    metadata: Any = {} if note is None else msgpack.unpackb(note)
    target = arch_of(_text(metadata, "amdhsa.target", ""))
    arch = target or _MACHINES.get(elf.flags & 0xFF, f"machine {elf.flags & 0xFF:#x}")
    symbols = {
        symbol.name: (symbol.address, symbol.size)
        for table in (".dynsym", ".symtab")
        for symbol in elf.symbols(table)
    }
    text = elf.section(".text")
    end = text.address + text.size if text else 0
    kernels = (_kernel(elf, k, symbols, end) for k in metadata.get("amdhsa.kernels", ()))
    return CodeObject(
        arch,
        elf.image() if load else b"",
        {kernel.symbol: kernel for kernel in kernels},
        len(data),
        hashlib.sha256(data).hexdigest(),
        next((n.removeprefix(_UNIT) for n in symbols if n.startswith(_UNIT)), ""),
        # Version 2 is 0 (AMDGPUUsage, ELFABIVERSION_AMDGPU_HSA).
        elf.data[8] + 2,
        compilers_of(elf),
        symbols if load else {},
        (text.address, end) if text else (0, 0),
        printf_formats(metadata.get("amdhsa.printf", ())) if load else {},
    )


def printf_formats(entries: Iterable[object]) -> dict[int, bytes]:
    """Return the format strings of HIP's entries, `0:0:<hash>,<format string>`, by their hash."""
    found = (re.fullmatch(r"0:0:([0-9a-f]{1,16}),(.*)", str(one), re.DOTALL) for one in entries)
    return {int(one[1], 16): one[2].encode() for one in found if one}


def compilers_of(elf: Elf) -> tuple[str, ...]:
    """Return the versions of clang that the comment of an ELF file names, in its order.

    Linkers and the compiler of the C library add their own names, which are left out.
    """
    comment = bytes(elf.content(elf.section(".comment"))).split(b"\0")
    texts = (text.decode("utf-8", "replace") for text in comment if b"clang version" in text)
    return tuple(visible(text)[:200] for text in dict.fromkeys(texts))


def _kernel(
    elf: Elf, metadata: Any, symbols: Mapping[str, tuple[int, int]], text_end: int
) -> Kernel:
    """Return a kernel from its metadata."""
    name = _text(metadata, ".symbol")
    address = symbols[name][0]
    descriptor = Descriptor.read(elf.at(address)[:_DESCRIPTOR_BYTES])
    entry = address + descriptor.entry
    if entry < 0:
        raise ValueError(f"a kernel at {entry:#x}")
    start, size = symbols[name.removesuffix(".kd")]
    # Symbols of hand-written kernels have no size: the kernel is the rest of the section.
    stop = start + size if size else text_end
    return Kernel(
        _text(metadata, ".name"),
        entry,
        max(stop - entry, 0),
        descriptor,
        tuple(
            Argument(_text(a, ".value_kind"), _number(a, ".offset"), _number(a, ".size"))
            for a in metadata.get(".args", ())
        ),
        _number(metadata, ".max_flat_workgroup_size"),
        Resources(
            _number(metadata, ".vgpr_count"),
            _number(metadata, ".agpr_count", 0),
            _number(metadata, ".sgpr_count"),
            _number(metadata, ".vgpr_spill_count", 0),
            _number(metadata, ".sgpr_spill_count", 0),
            _number(metadata, ".private_segment_fixed_size"),
            _number(metadata, ".group_segment_fixed_size"),
        ),
    )


def _text(metadata: Any, key: str, default: str | None = None) -> str:
    value = metadata.get(key, default) if type(metadata) is dict else None
    if type(value) is not str or unseen(value):
        raise ValueError(f"{key} of the metadata: {value!r:.80}")
    return value


def _number(metadata: Any, key: str, default: int | None = None) -> int:
    value = metadata.get(key, default) if type(metadata) is dict else None
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ValueError(f"{key} of the metadata: {value!r:.80}")
    return value
