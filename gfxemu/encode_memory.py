"""Records of instructions that access memory or the LDS."""

from __future__ import annotations

import numpy as np

from gfxemu.buffers import (
    ACCESS,
    ATOMIC,
    LDS_UPDATES,
    OFF,
    SCALAR_LOAD,
    SIGNED,
    SIZES,
    UPDATES,
    atomic_sources,
    data_register,
    offset_of,
    signed_of,
)
from gfxemu.decode import Instruction
from gfxemu.lds import PAIRS
from gfxemu.operands import number_of
from gfxemu.records import (
    RUN_ATOMIC,
    RUN_MEMORY,
    RUN_SCALAR_MEMORY,
    RUN_TRANSPOSED,
    RUN_TWO,
    Record,
    Registers,
    UncoveredError,
)
from gfxemu.waves import NULL, SGPRS

_BUFFER, _GLOBAL, _GLOBAL_SCALAR, _FLAT, _SCRATCH, _LOCAL = range(6)
_LOAD, _STORE, _LOAD_SMALL, _STORE_SMALL, _TO_LDS = range(5)
_UPDATE_OPS = {name: number for number, name in enumerate(UPDATES)}


def _place(registers: Registers, one: Instruction, words: int, offset: int | None = None) -> Record:
    """Return a record with the addresses of an access: space, offset and registers."""
    space = one.name.partition("_")[0]
    record = Record(RUN_MEMORY)
    saddr = one["saddr"] & 0x7F
    if space == "DS":
        if offset is None:
            offset = one["offset0"] | one["offset1"] << 8
        record.x = [_LOCAL, offset, registers.vgpr(one["addr"]), -1, -1, -1, words]
    elif space == "BUFFER":
        record.operands = [registers.number(number_of(one, "soffset", "u32", registers.literals))]
        number = one["vaddr"]
        index = registers.vgpr(number) if one["idxen"] else -1
        vector = registers.vgpr(number + one["idxen"]) if one["offen"] else -1
        record.x = [_BUFFER, one["offset"], 0, one["srsrc"], index, vector, words]
    elif space == "SCRATCH":
        address = registers.vgpr(one["addr"]) if one["sve"] else -1
        scalar = saddr if saddr != OFF else -1
        record.x = [_SCRATCH, offset_of(one), address, scalar, -1, -1, words]
    else:
        flat = one.form == "FLAT"
        kind = _FLAT if flat else _GLOBAL if saddr == OFF else _GLOBAL_SCALAR
        record.x = [kind, offset_of(one), registers.vgpr(one["addr"]), saddr, -1, -1, words]
    return record


def _access(registers: Registers, one: Instruction) -> Record:
    found = ACCESS.match(one.name)
    assert found
    space, direction, to_lds, kind, half, high = found.groups()
    size = SIZES[kind]
    record = _place(registers, one, -(-size // 4))
    loads = direction in ("LOAD", "READ")
    stored = {"BUFFER": "vdata", "DS": "data0"}.get(space, "data")
    if to_lds or (one["lds"] and space != "DS"):
        offset = one["offset"] if one.form == "MUBUF" else offset_of(one)
        record.x += [_TO_LDS, 0, size, 0, 0, 0, offset]
        return record
    data = registers.row(data_register(one, "vdst" if loads and space != "BUFFER" else stored))
    what = (_LOAD if loads else _STORE) + (2 if size < 4 else 0)
    record.x += [what, data, size, int(kind in SIGNED), int(bool(half)), int(bool(high)), 0]
    return record


def _two(registers: Registers, one: Instruction) -> Record:
    words = 2 if one.name.endswith("B64") else 1
    step = 4 * words * (64 if "ST64" in one.name else 1)
    record = _place(registers, one, words, one["offset0"] * step)
    record.handler = RUN_TWO
    loads = "READ" in one.name
    names = ("vdst", "vdst") if loads else ("data0", "data1")
    first, second = (registers.row(data_register(one, name)) for name in names)
    record.x += [int(loads), first, second, one["offset1"] * step]
    return record


def _transposed(registers: Registers, one: Instruction) -> Record:
    record = _place(registers, one, 2)
    record.handler = RUN_TRANSPOSED
    record.x += [1 if one.name.endswith("B8") else 2, registers.row(data_register(one, "vdst"))]
    return record


def _scalar_memory(registers: Registers, one: Instruction) -> Record:
    found = SCALAR_LOAD.match(one.name)
    assert found
    raw = one["offset"] if one["imm"] else 0
    register = one["soffset"] if one["soffset_en"] else -1
    if not one["imm"] and register < 0:
        register = one["offset"] & 0x7F
    words = int(found[2] or 1)
    offset = signed_of(raw, one.isa.scalar_offset_bits)
    drops = one.isa.is_rdna and one["sdata"] == NULL
    if one["sdata"] + words > SGPRS and not drops:
        raise UncoveredError
    base = -1 if one.isa.is_rdna and one["sbase"] == NULL else one["sbase"]
    if base >= 0 and base % 2:
        raise UncoveredError
    x = [base, -1 if drops else one["sdata"], words, int(bool(found[1])), offset, register]
    x += [{"BYTE": 1, "SHORT": 2}.get(found[4], 0), int(found[3] == "S")]
    return Record(RUN_SCALAR_MEMORY, x=x)


def _atomic(registers: Registers, one: Instruction) -> Record:
    found = ATOMIC.match(one.name)
    assert found
    space = one.name.partition("_")[0]
    name = found[1] or LDS_UPDATES[f"{found[2]}_{found[4]}"]
    words = np.dtype(UPDATES[name][0]).itemsize // 4
    record = _place(registers, one, words)
    record.handler = RUN_ATOMIC
    source, other = atomic_sources(one, words)
    target = source if space == "BUFFER" else data_register(one, "vdst")
    returns = bool(found[3] if space == "DS" else one["sc0"])
    target = registers.row(target) if returns else 0
    record.x += [_UPDATE_OPS[name], registers.row(source), target, int(returns)]
    record.x.append(registers.row(other) if name.startswith("CMPSWAP") else 0)
    return record


_PAIRS = tuple(f"DS_{name}" for name in PAIRS)


def encode_memory(registers: Registers, one: Instruction) -> Record | None:
    """Return the record of an access of memory or the LDS; None for other instructions.

    Raises:
        UncoveredError: the engine does not run it.
    """
    if SCALAR_LOAD.match(one.name):
        return _scalar_memory(registers, one)
    if one.name in _PAIRS:
        return _two(registers, one)
    if one.name.startswith("DS_READ_B64_TR_"):
        return _transposed(registers, one)
    if ACCESS.match(one.name):
        return _access(registers, one)
    # Other operations of the LDS look like atomic ones.
    found = ATOMIC.match(one.name)
    atomic = found and (found[1] or f"{found[2]}_{found[4]}" in LDS_UPDATES)
    return _atomic(registers, one) if atomic else None
