"""Decodes instructions with the tables of AMD's instruction set that the tinygrad wheel has.

Nothing else of tinygrad is imported: its packages' own ``__init__`` build a whole framework.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from gfxemu import rdna
from gfxemu.isa import CDNA, ISAS, Isa

#: The encoding behind an opcode's name; names with and without it mean the same operation.
ENCODING = re.compile(r"_E(32|64)$")
_LONGEST = 16
#: Bits 31 to 23 of VOP3P with a matrix operation, and opcodes of gfx90a (CDNA2 ISA, 13.3.9).
_MATRIX = 0b110100111
_BF16_1K = range(99, 104)
#: Upper halves of the first words of gfx90a's instructions for caches.
_WBINVL1_VOL, _INVL2 = 0xE0FC, 0xE0A4
#: Operations of gfx90a by the name that their opcode has on gfx950 (CDNA2 ISA, 13.3.1).
_CDNA2 = {
    "V_DOT2C_F32_BF16": "V_MAC_F32",
    "V_FMAMK_F32": "V_MADMK_F32",
    "V_FMAAK_F32": "V_MADAK_F32",
}
#: Upper halves of the first words of gfx90a's V_MAD_F32, and of V_FMA_F32, which has its fields.
_MAD, _FMA = b"\xc1\xd1", b"\xcb\xd1"
#: Upper halves of the first words of V_MFMA_LD_SCALE_B32 and of the operations that it precedes.
_SCALE_PREFIX = b"\xac\xd3"
#: Packages whose ``__init__`` is left out.
_HOLLOW = ("tinygrad", "tinygrad.renderer", "tinygrad.runtime", "tinygrad.runtime.autogen")


@contextmanager
def only_tables() -> Iterator[None]:
    """Import tinygrad's modules, in its body, without the `__init__` of their packages."""
    if "tinygrad" in sys.modules:
        yield
        return
    spec = importlib.util.find_spec("tinygrad")
    if spec is None or not spec.submodule_search_locations:
        message = "tinygrad, whose tables decode instructions, is not installed"
        raise ModuleNotFoundError(message, name="tinygrad")
    (root,) = spec.submodule_search_locations
    for name in _HOLLOW:
        module = ModuleType(name)
        module.__path__ = [str(Path(root, *name.split(".")[1:]))]
        sys.modules[name] = module
    try:
        yield
    finally:
        # Whoever wants all of tinygrad still gets it.
        for name in _HOLLOW:
            del sys.modules[name]


@cache
def _decoder() -> Any:
    with only_tables():
        decode = importlib.import_module("tinygrad.renderer.amd").decode_inst
        decode(bytes(_LONGEST), "cdna")  # It imports its formats when first called
    return decode


@cache
def _tables(isa: Isa) -> ModuleType:
    with only_tables():
        return importlib.import_module(f"tinygrad.runtime.autogen.amd.{isa.tables}.ins")


@dataclass(frozen=True)
class Instruction:
    """One instruction, in numbers.

    Attributes:
        pc: offset from the kernel's first instruction, in bytes.
        size: bytes it takes.
        name: the operation, without its encoding: ``V_ADD_F32``.
        form: the encoding: ``VOP3``, ``MUBUF``, ...
        fields: its fields. Registers are numbers of the 9-bit source operand: 0 to 127 scalar ones,
            128 to 255 constants, from 256 vector registers.
        words: 32-bit registers that each operand takes.
        literal: the constant behind the instruction, if there is one.
        source: an object whose `str` is the instruction in words; making the text is slow.
        isa: its instruction set. Names and fields are CDNA's in all of them.
        parts: the two operations of one instruction that does both at once.
        code: its bytes; none of one that was not decoded.
    """

    pc: int
    size: int
    name: str
    form: str
    fields: Mapping[str, int]
    words: Mapping[str, int]
    literal: int | None
    source: object
    isa: Isa = CDNA
    parts: tuple[Instruction, ...] = ()
    code: bytes = b""

    @property
    def text(self) -> str:
        """The instruction in words."""
        text = str(self.source)
        # The table names the register whose number stands for no scalar address.
        return text.replace("EXEC_HI", "off") if self.form in rdna.LANE_FORMS else text

    def __str__(self) -> str:
        """Return it in words."""
        return self.text

    def __getitem__(self, name: str) -> int:
        """Return a field, 0 where the encoding has none of that name."""
        return self.fields.get(name, 0)

    @property
    def target(self) -> int:
        """Target of a branch, as an offset from the kernel's first instruction."""
        distance = self["simm16"]
        return self.pc + 4 + 4 * (distance - 0x10000 if distance & 0x8000 else distance)


def decode(code: bytes, pc: int = 0, arch: str = "") -> Instruction:
    """Decode the instruction at the start of some bytes.

    Args:
        code: the bytes.
        pc: of the instruction.
        arch: whose opcodes it has; without it, those that gfx942 and gfx950 share.

    Raises:
        ValueError: they are not an instruction of the arch.
    """
    isa = ISAS.get(arch, CDNA)
    own, renamed = code, _CDNA2
    if arch == "gfx90a":
        if code[2:4] == _MAD:
            code, renamed = code[:2] + _FMA + code[4:], {"V_FMA_F32": "V_MAD_F32"}
        code = _as_cdna3(code)
    try:
        if isa.is_rdna:
            return replace(
                found := _decode_rdna(code[:_LONGEST], isa), pc=pc, code=code[: found.size]
            )
        fields, words, name, form, size, literal, source = _decode(code[:_LONGEST])
    except Exception as error:
        # The tables raise what they happen to: an assertion, or a RuntimeError for a register that
        # the instruction set reserves.
        word = int.from_bytes(code[:4], "little")
        raise ValueError(f"{word:#010x}: {error or type(error).__name__}") from error
    if arch == "gfx90a" and name in renamed:
        source = str(source).replace(name.lower(), renamed[name].lower())
        name = renamed[name]
    return Instruction(pc, size, name, form, fields, words, literal, source, code=own[:size])


def _as_cdna3(code: bytes) -> bytes:
    """Return an instruction of gfx90a with the opcode of gfx942.

    The tables do not have CDNA2, whose V_MFMA_F32_*BF16_1K are 99 to 103: in CDNA3 from 93 on.
    Its BUFFER_WBINVL1_VOL and BUFFER_INVL2 are BUFFER_INV there.
    """
    word = int.from_bytes(code[:4], "little")
    if word >> 16 == _WBINVL1_VOL:
        word = word & 0xFFFF | _INVL2 << 16
        return word.to_bytes(4, "little") + code[4:]
    if word >> 23 == _MATRIX and word >> 16 & 0x7F in _BF16_1K:
        return (word - (6 << 16)).to_bytes(4, "little") + code[4:]
    return code


_Decoded = tuple[Mapping[str, int], Mapping[str, int], str, str, int, int | None, object]
#: By an instruction's own bytes: kernels repeat instructions, but not the bytes behind them.
_decoded: dict[bytes, _Decoded] = {}
#: Instructions that are kept, about 100 MB.
_MOST_DECODED = 100_000


def _decode(code: bytes) -> _Decoded:
    # Instructions here take at most 8 bytes, except an operation with a prefix for its scales.
    sizes = (_LONGEST,) if code[2:4] == _SCALE_PREFIX else (4, 8)
    for size in sizes:
        if found := _decoded.get(code[:size]):
            return found
    # tinygrad takes any instruction before a scaled one's opcode for its prefix.
    decoded = _decode_alone(code if _LONGEST in sizes else code[:8])
    if decoded[4] in sizes and decoded[4] <= len(code):
        if len(_decoded) >= _MOST_DECODED:
            _decoded.clear()
        _decoded[code[: decoded[4]]] = decoded
    return decoded


def _decode_alone(code: bytes) -> _Decoded:
    found = _decoder()(code.ljust(_LONGEST, b"\0"), "cdna")
    form: Any = type(found)
    bits, fields = found._raw, {}
    for name, field, known in _fields(form):
        raw = bits >> field.lo & field.mask
        if raw not in known:
            known[raw] = _number(field.decode(raw))
        fields[name] = known[raw]
    literal = found._literal if fields.get("literal") is not None else None
    return (
        MappingProxyType(fields),
        MappingProxyType(dict(found.op_regs)),
        ENCODING.sub("", found.op_name),
        form.__name__,
        found.size(),
        literal,
        found,
    )


@cache
def _fields(form: Any) -> list[tuple[str, Any, dict[int, int]]]:
    """Return name and field of an encoding, and the decoded values of its bits so far."""
    return [(name, field, {}) for name, field in form._fields]


def _number(value: Any) -> int:
    """Return a field in numbers; raise RuntimeError for a register that is reserved."""
    if hasattr(value, "offset"):
        repr(value)
    # A register knows its number; an enumeration its value; the rest are numbers.
    return int(getattr(value, "offset", getattr(value, "value", value)))


@lru_cache(_MOST_DECODED)
def _decode_rdna(code: bytes, isa: Isa) -> Instruction:
    tables, padded = _tables(isa), code.ljust(_LONGEST, b"\0")
    form = rdna.find_format(padded, tables)
    found = form.from_bytes(padded) if form else _decoder()(padded, isa.tables)
    found = rdna.widen(found, padded, tables)
    fields = {}
    for name, _ in found._fields:
        value = getattr(found, name)
        number = getattr(value, "offset", None)
        fields[name] = getattr(value, "value", value) if number is None else rdna.swapped(number)
    literal = found._literal if fields.get("literal") is not None else None
    form, size, text = type(found).__name__, found.size(), repr(found)
    if form.startswith("VOPD"):
        names = found.opx.name, found.opy.name
        text = " :: ".join(names).lower() + text.removeprefix(form)
        parts = tuple(
            Instruction(
                *(0, size, name, part, MappingProxyType(own), MappingProxyType(words)),
                *(literal, text, isa),
            )
            for name, part, own, words in rdna.dual_parts(names, fields)
        )
        nothing: Mapping[str, int] = MappingProxyType({})
        return Instruction(0, size, "V_DUAL", form, nothing, nothing, literal, text, isa, parts)
    name = ENCODING.sub("", found.op_name)
    name, form, fields, words = rdna.translated(name, form, fields, found.op_regs)
    proxies = MappingProxyType(fields), MappingProxyType(words)
    return Instruction(0, size, name, form, *proxies, literal, text, isa)


def sweep(code: bytes, arch: str = "", start: int = 0) -> dict[int, Instruction | str]:
    """Decode all of a kernel's code: by offset the instruction, or why there is none.

    Args:
        code: the bytes.
        arch: as in `decode`.
        start: offset of the first byte.
    """
    found: dict[int, Instruction | str] = {}
    place = 0
    while place + 4 <= len(code):
        pc = start + place
        try:
            one = decode(code[place : place + _LONGEST], pc, arch)
        except ValueError as error:
            found[pc] = str(error)
            place += 4
            continue
        found[pc] = one
        place += one.size
    return found


def family(one: Instruction) -> str:
    """The encoding without its suffix for longer forms: VOP2 for VOP2_LIT."""
    form = one.form.removesuffix("_LIT").removesuffix("_DPP16").removesuffix("_DPP8")
    return form.removesuffix("_SDWA_SDST").removesuffix("_SDWA")
