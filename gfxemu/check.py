"""Registers of instructions: those that they use, and those that a wave does not have."""

from __future__ import annotations

from collections.abc import Iterator

from gfxemu.decode import Instruction
from gfxemu.operands import ELSEWHERE
from gfxemu.registers import AGPRS, EXEC, NULL, OFF, SGPRS, VCC, VGPRS, Layout, name_of


def registers_of(one: Instruction) -> Iterator[tuple[str, int, int]]:
    """Yield the field, first number and count of each operand of an instruction."""
    unused = {
        "soffset": one.form == "SMEM" and not one["soffset_en"],
        "vaddr": not (one["offen"] or one["idxen"]),
        "addr": one.form == "SCRATCH" and not one["sve"],
    }
    for part in one.parts:
        yield from registers_of(part)
    for name, words in one.words.items():
        number, count = one[name], words
        # tinygrad lists the immediate of SOPK and SOPP among the registers.
        if name == "simm16":
            continue
        if unused.get(name) or (name == "saddr" and number == OFF):
            continue
        if name == "src0" and number in ELSEWHERE and "vsrc0" in one.fields:
            # The register is in the word behind the instruction; a bit says that it is scalar.
            number = one["vsrc0"] - (VGPRS if one["s0"] else 0)
        if name == "vsrc1" and one["s1"]:
            number -= VGPRS
        if name == "addr" and _is_address(one):
            count = 2
        if name == "vdst" and one.name in ("V_READFIRSTLANE_B32", "V_READLANE_B32"):
            # The field of vector registers encodes a scalar register here.
            number %= VGPRS
        if number >= VGPRS and _in_accumulation(one, name):
            number += AGPRS - VGPRS
        yield name, number, count


def _is_address(one: Instruction) -> bool:
    """Whether the field addr of an instruction names a whole address, of two registers."""
    return one.form == "FLAT" or (one.form == "GLOBAL" and one["saddr"] & 0x7F == OFF)


def _in_accumulation(one: Instruction, name: str) -> bool:
    """Whether a field of an instruction names accumulation registers."""
    if one.form == "VOP3P_MFMA":
        return bool({"src0": one["acc"] & 1, "src1": one["acc"] >> 1}.get(name, one["acc_cd"]))
    if one.name.startswith("V_ACCVGPR"):
        # A move has two.
        return name != {"V_ACCVGPR_READ": "vdst", "V_ACCVGPR_WRITE": "src0"}.get(one.name)
    return bool(one["acc"]) and name in ("vdst", "vdata", "data", "data0", "data1")


def find_misfit(one: Instruction, layout: Layout) -> str:
    """Return which register of an instruction a wave does not have; empty if it has all."""
    for name, number, count in registers_of(one):
        last = number + count - 1
        if number == NULL and one.isa.is_rdna:
            # NULL is a register, a pair, or the destination of a scalar load of any size.
            if count > 2 and name != "sdata":
                return f"null is not {count} registers"
            continue
        if number < SGPRS:
            if count > 1 and number % 2:
                return f"s{number} is odd, and begins a pair"
            if last >= SGPRS:
                return f"s{last} is beyond the scalar registers"
        elif number >= VGPRS:
            start, first = (AGPRS, layout.first_agpr) if number >= AGPRS else (VGPRS, 0)
            if first + last - start >= layout.vgprs:
                register = f"{name_of(number)[0]}{last - start}"
                return f"{register} is beyond the {layout.vgprs} vector registers of the kernel"
    return ""


#: Names of operations of the LDS that write a register.
_FROM_LDS = ("READ", "_RTN_", "PERMUTE", "SWIZZLE")

Operand = tuple[str, int, int]


def operands_of(one: Instruction) -> tuple[list[Operand], list[Operand]]:
    """Return the registers that an instruction reads, and those that it writes.

    Each is a field, a first number and a count. An instruction that also reads its destination has
    it among the latter only.
    """
    reads: list[Operand] = []
    writes: list[Operand] = []
    for operand in registers_of(one):
        name = operand[0]
        if name in ("vdst", "vdata") and one.form in ("DS", "MUBUF", "GLOBAL", "FLAT", "SCRATCH"):
            if writes_vectors(one):
                writes.append(operand)
            if name == "vdata" and "LOAD" not in one.name:
                reads.append(operand)
        elif name in ("vdst", "sdst", "sdata"):
            writes.append(operand)
        else:
            reads.append(operand)
    if one.form.startswith("VOPC") or (one.form.startswith("VOP2") and "_CO_" in one.name):
        writes.append(("", VCC, one.isa.lanes // 32))
    return reads, writes


def writes_vectors(one: Instruction) -> bool:
    """Whether an access of memory or the LDS writes vector registers."""
    if one.form == "DS":
        return any(word in one.name for word in _FROM_LDS)
    if "ATOMIC" in one.name:
        return bool(one["sc0"])
    # Not to the LDS.
    return "LOAD" in one.name and not one["lds"] and "_LDS_" not in one.name


#: Kinds of uses of registers, as in engine.c.
_READS_SCALARS, _READS_VECTORS, _WRITES_SCALARS, _WRITES_VECTORS = range(4)


def uses_of(one: Instruction, layout: Layout) -> Iterator[tuple[int, int, int, int]]:
    """Yield the registers that an instruction reads and writes, for checked launches.

    Each is a kind, the number of the first register, its index in the engine, and a count. An
    active lane reads all registers of an operand, even if the instruction only moves a value that a
    later one shifts out: such a read does not affect the result.
    """
    # NULL is 0 in all launches, and has no registers behind it.
    null = NULL if one.isa.is_rdna else -1
    reads, writes = (
        [(number, count) for _, number, count in some if number != null]
        for some in operands_of(one)
    )
    if "MAC_F" in one.name or "PERMLANE" in one.name:
        reads += writes
    for number, count in reads:
        if number < SGPRS and number not in (EXEC, EXEC + 1):
            yield _READS_SCALARS, number, number, count
        elif number >= VGPRS:
            yield _READS_VECTORS, number, layout.row(number), count
    for number, count in writes:
        if number < SGPRS:
            yield _WRITES_SCALARS, number, number, count
        elif number >= VGPRS:
            yield _WRITES_VECTORS, number, layout.row(number), count
