"""Records of instructions that access memory or the LDS."""

from __future__ import annotations

import re
from collections.abc import Callable

from gfxemu.decode import Instruction
from gfxemu.isa import CDNA
from gfxemu.operands import UnsupportedError
from gfxemu.rdna import TYPED_UPDATES
from gfxemu.records import (
    RUN_ATOMIC,
    RUN_MEMORY,
    RUN_SCALAR_MEMORY,
    RUN_TRANSPOSED,
    RUN_TWO,
    Context,
    Record,
)
from gfxemu.registers import AGPRS, NULL, OFF, SGPRS, VGPRS

#: Bytes of an access by the last word of its name.
_SIZES = {
    **{"UBYTE": 1, "SBYTE": 1, "BYTE": 1, "USHORT": 2, "SSHORT": 2, "SHORT": 2},
    **{"DWORD": 4, "DWORDX2": 8, "DWORDX3": 12, "DWORDX4": 16},
    **{"B8": 1, "U8": 1, "I8": 1, "B16": 2, "U16": 2, "I16": 2},
    **{"B32": 4, "B64": 8, "B96": 12, "B128": 16},
}
_SIGNED = ("SBYTE", "SSHORT", "I8", "I16")
_ACCESS = re.compile(
    r"(BUFFER|GLOBAL|FLAT|SCRATCH|DS)_(LOAD|STORE|READ|WRITE)_(LDS_)?"
    r"([A-Z]+(?:X\d)?|[BUI]\d+)(_D16)?(_HI)?$"
)
_ATOMIC = re.compile(r"(?:BUFFER|GLOBAL|FLAT)_ATOMIC_(.+)|DS_([A-Z]+)(_RTN)?_([A-Z]\d\d)$")
_SCALAR_LOAD = re.compile(r"S_(BUFFER_)?LOAD_(?:DWORD(?:X(\d+))?|([US])(BYTE|SHORT))$")
#: engine.c's kinds of addresses, and of accesses; 2 more for those of less than a word.
_BUFFER, _GLOBAL, _GLOBAL_SCALAR, _FLAT, _SCRATCH, _LOCAL = range(6)
_LOAD, _STORE, _LOAD_SMALL, _STORE_SMALL, _TO_LDS = range(5)

#: Updates of numbers in memory, in the order of engine.c.
_WIDE_UPDATES = ("SUB", "AND", "OR", "XOR", "SMIN", "SMAX", "UMIN", "UMAX")
UPDATES = (
    *("SWAP", "ADD", "SUB", "SMIN", "UMIN", "SMAX", "UMAX", "AND", "OR", "XOR", "ADD_F32"),
    *("PK_ADD_F16", "PK_ADD_BF16", "ADD_F64", "ADD_X2", "SWAP_X2", "INC", "DEC", "INC_X2"),
    *("DEC_X2", *(f"{name}_X2" for name in _WIDE_UPDATES)),
    *("MIN_F32", "MAX_F32", "MIN_F64", "MAX_F64", "CMPSWAP", "CMPSWAP_X2"),
)
#: Operations of the LDS, without _RTN, by the names of the others.
LDS_UPDATES = {
    **TYPED_UPDATES,
    **{name: name for name in ("ADD_F32", "MIN_F32", "MAX_F32", "MIN_F64", "MAX_F64")},
    **{"WRXCHG_B32": "SWAP", "WRXCHG_B64": "SWAP_X2"},
    **{"CMPST_B32": "CMPSWAP", "CMPST_B64": "CMPSWAP_X2"},
    **{"CMPSTORE_B32": "CMPSWAP", "CMPSTORE_B64": "CMPSWAP_X2"},
}


def _signed_of(value: int, width: int) -> int:
    """Return a field of some bits as a number with a sign."""
    return value - (1 << width) if value >> (width - 1) & 1 else value


def _offset_of(one: Instruction) -> int:
    """Return the offset of an access to global, generic or scratch memory."""
    if one.form == "FLAT" and one.isa is CDNA:
        return one["offset"]
    return _signed_of(one["offset"], one.isa.offset_bits)


def _data_register(one: Instruction, name: str) -> int:
    """Return the first register with the data of an access."""
    return one[name] + (AGPRS - VGPRS) * one["acc"]


def _first_of_four(register: int) -> int:
    """Return the first of the scalar registers that describe a buffer."""
    if register >= SGPRS:
        raise UnsupportedError(f"a buffer at operand {register}, which is not a scalar register")
    if register % 4:
        # No four begin at NULL, either.
        raise UnsupportedError(f"a buffer at s{register}, which is not a multiple of 4")
    return register


def _place(context: Context, one: Instruction, words: int, offset: int | None = None) -> Record:
    """Return a record with the addresses of an access: space, offset and registers."""
    space = one.name.partition("_")[0]
    record = Record(RUN_MEMORY)
    saddr = one["saddr"] & 0x7F
    if space == "DS":
        if one["gds"]:
            raise UnsupportedError("global data share")
        if offset is None:
            offset = one["offset0"] | one["offset1"] << 8
        record.x = [_LOCAL, offset, context.vgpr(one["addr"]), -1, -1, -1, words]
    elif space == "BUFFER":
        if one.isa.is_rdna and one["idxen"]:
            raise UnsupportedError("an index into a buffer")
        record.operands = [context.scalar(one, "soffset")]
        number = one["vaddr"]
        index = context.vgpr(number) if one["idxen"] else -1
        vector = context.vgpr(number + one["idxen"]) if one["offen"] else -1
        resource = _first_of_four(one["srsrc"])
        record.x = [_BUFFER, one["offset"], 0, resource, index, vector, words]
    elif space == "SCRATCH":
        address = context.vgpr(one["addr"]) if one["sve"] else -1
        scalar = saddr if saddr != OFF else -1
        record.x = [_SCRATCH, _offset_of(one), address, scalar, -1, -1, words]
    else:
        flat = one.form == "FLAT"
        kind = _FLAT if flat else _GLOBAL if saddr == OFF else _GLOBAL_SCALAR
        record.x = [kind, _offset_of(one), context.vgpr(one["addr"]), saddr, -1, -1, words]
    return record


def _access(context: Context, one: Instruction) -> Record:
    """A load or store of words, or of 8 or 16 bits."""
    found = _ACCESS.match(one.name)
    assert found
    space, direction, to_lds, kind, half, high = found.groups()
    size = _SIZES[kind]
    record = _place(context, one, -(-size // 4))
    loads = direction in ("LOAD", "READ")
    stored = {"BUFFER": "vdata", "DS": "data0"}.get(space, "data")
    if to_lds or (one["lds"] and space != "DS"):
        # Each lane's words follow those of the lane before it, in the LDS.
        if size < 4:
            raise UnsupportedError("bytes or halves loaded to the LDS")
        offset = one["offset"] if one.form == "MUBUF" else _offset_of(one)
        record.x += [_TO_LDS, 0, size, 0, 0, 0, offset]
        return record
    data = context.row(_data_register(one, "vdst" if loads and space != "BUFFER" else stored))
    what = (_LOAD if loads else _STORE) + (2 if size < 4 else 0)
    record.x += [what, data, size, int(kind in _SIGNED), int(bool(half)), int(bool(high)), 0]
    return record


def _two(context: Context, one: Instruction) -> Record:
    """Two accesses, whose offsets count words or pairs of words, or 64 of them (ST64)."""
    words = 2 if one.name.endswith("B64") else 1
    step = 4 * words * (64 if "ST64" in one.name else 1)
    record = _place(context, one, words, one["offset0"] * step)
    record.handler = RUN_TWO
    loads = "READ" in one.name
    names = ("vdst", "vdst") if loads else ("data0", "data1")
    first, second = (context.row(_data_register(one, name)) for name in names)
    record.x += [int(loads), first, second, one["offset1"] * step]
    return record


def _transposed(context: Context, one: Instruction) -> Record:
    record = _place(context, one, 2)
    record.handler = RUN_TRANSPOSED
    size = 1 if one.name.endswith("B8") else 2
    record.x += [size, context.row(_data_register(one, "vdst"))]
    return record


def _scalar_memory(context: Context, one: Instruction) -> Record:
    found = _SCALAR_LOAD.match(one.name)
    assert found
    buffer = bool(found[1])
    raw = one["offset"] if one["imm"] else 0
    register = one["soffset"] if one["soffset_en"] else -1
    if not one["imm"] and register < 0:
        # Without both, the offset field is a register's number.
        register = one["offset"] & 0x7F
    base = _first_of_four(one["sbase"]) if buffer else one["sbase"]
    is_null, drops = (one.isa.is_rdna and one[name] == NULL for name in ("sbase", "sdata"))
    offset = _signed_of(raw, one.isa.scalar_offset_bits)
    x = [-1 if is_null else base, -1 if drops else one["sdata"], int(found[2] or 1), int(buffer)]
    x += [offset, register, {"BYTE": 1, "SHORT": 2}.get(found[4], 0), int(found[3] == "S")]
    return Record(RUN_SCALAR_MEMORY, x=x)


def _atomic_sources(one: Instruction, words: int) -> tuple[int, int]:
    """Return the first registers of an atomic's operand, and of the number to compare with.

    DS_CMPST of CDNA has them in the other order than DS_CMPSTORE of RDNA.
    """
    space = one.name.partition("_")[0]
    if space != "DS":
        source = _data_register(one, "vdata" if space == "BUFFER" else "data")
        return source, source + words
    first = _data_register(one, "data0")
    if "CMPST" not in one.name:
        return first, first
    second = _data_register(one, "data1")
    return (first, second) if "CMPSTORE" in one.name else (second, first)


def _atomic(context: Context, one: Instruction) -> Record:
    """An operation that reads, changes and writes memory, lane by lane."""
    found = _ATOMIC.match(one.name)
    assert found
    space = one.name.partition("_")[0]
    name = found[1] or LDS_UPDATES[f"{found[2]}_{found[4]}"]
    words = 2 if name.endswith(("_X2", "F64")) else 1
    record = _place(context, one, words)
    record.handler = RUN_ATOMIC
    source, other = _atomic_sources(one, words)
    target = source if space == "BUFFER" else _data_register(one, "vdst")
    returns = bool(found[3] if space == "DS" else one["sc0"])
    rows = context.row(source), context.row(target) if returns else 0
    record.x += [UPDATES.index(name), *rows, int(returns)]
    record.x.append(context.row(other) if name.startswith("CMPSWAP") else 0)
    return record


_Encoder = Callable[[Context, Instruction], Record]


def _names() -> dict[str, _Encoder]:
    """Return the function of each access of memory, by name."""
    halves = [f"{kind}_D16{high}" for kind in ("UBYTE", "SBYTE", "SHORT") for high in ("", "_HI")]
    words = ["DWORD", "DWORDX2", "DWORDX3", "DWORDX4"]
    loads = ["UBYTE", "SBYTE", "USHORT", "SSHORT", *words, *halves]
    stores = ["BYTE", "SHORT", *words, "BYTE_D16_HI", "SHORT_D16_HI"]
    spaces = ("BUFFER", "GLOBAL", "FLAT", "SCRATCH")
    names = [f"{space}_LOAD_{kind}" for space in spaces for kind in loads]
    names += [f"{space}_STORE_{kind}" for space in spaces for kind in stores]
    names += [f"GLOBAL_LOAD_LDS_{kind}" for kind in ("DWORD", "DWORDX3", "DWORDX4")]
    atomics = [f"{space}_ATOMIC_{kind}" for space in spaces[:3] for kind in UPDATES]
    return {**dict.fromkeys(names, _access), **dict.fromkeys(atomics, _atomic)}


BUFFERS = _names()

_DIRECTIONS = ("READ", "WRITE")
_PLAIN = (
    *(f"{d}_{k}" for d in _DIRECTIONS for k in ("B32", "B64", "B96", "B128")),
    *(f"READ_{k}" for k in ("U8", "I8", "U16", "I16")),
    *(f"READ_{k}_D16{h}" for k in ("U8", "I8", "U16") for h in ("", "_HI")),
    *("WRITE_B8", "WRITE_B16", "WRITE_B8_D16_HI", "WRITE_B16_D16_HI"),
)
_PAIRS = [f"{d}{p}_{k}" for d in _DIRECTIONS for p in ("2", "2ST64") for k in ("B32", "B64")]

LDS: dict[str, _Encoder] = {
    **{f"DS_{name}": _access for name in _PLAIN},
    **{f"DS_{name}": _two for name in _PAIRS},
    **dict.fromkeys(("DS_READ_B64_TR_B16", "DS_READ_B64_TR_B8"), _transposed),
    **{f"DS_{name}": _atomic for name in LDS_UPDATES},
    **{f"DS_{name.replace('_', '_RTN_')}": _atomic for name in LDS_UPDATES},
}
SCALAR_MEMORY: dict[str, _Encoder] = {
    f"S_{buffer}LOAD_{kind}": _scalar_memory
    for buffer in ("", "BUFFER_")
    for kind in (
        *(f"DWORD{f'X{count}' if count > 1 else ''}" for count in (1, 2, 3, 4, 8, 16)),
        *("UBYTE", "SBYTE", "USHORT", "SSHORT"),
    )
}
MEMORY: dict[str, _Encoder] = {**BUFFERS, **LDS, **SCALAR_MEMORY}
"""Functions that make the records of accesses, by name."""
