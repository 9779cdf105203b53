"""Checks of the registers and addresses of instructions.

`find_misfit` serves every launch, the other checks serve launches with `Options.checked`. An active
lane reads all registers of an operand, even if the instruction only moves a value that a later one
shifts out: such a read does not affect the result.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gfxemu.arrays import I64, U64, Array, first_of
from gfxemu.decode import Instruction
from gfxemu.operands import ELSEWHERE, listed
from gfxemu.waves import AGPRS, EXEC, NULL, SGPRS, VCC, VGPRS, Layout, Step, Waves

#: Numbers that mean no register, in operands that may have none.
_OFF = (124, 127)


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
        if unused.get(name) or (name in ("saddr", "soffset") and number in _OFF):
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
    return one.form == "FLAT" or (one.form == "GLOBAL" and one["saddr"] & 0x7F == _OFF[1])


def _in_accumulation(one: Instruction, name: str) -> bool:
    """Whether a field of an instruction names accumulation registers."""
    if one.form == "VOP3P_MFMA":
        return bool({"src0": one["acc"] & 1, "src1": one["acc"] >> 1}.get(name, one["acc_cd"]))
    if one.name.startswith("V_ACCVGPR"):
        # A move has two.
        return name != {"V_ACCVGPR_READ": "vdst", "V_ACCVGPR_WRITE": "src0"}.get(one.name)
    return bool(one["acc"]) and name in ("vdst", "vdata", "data", "data0", "data1")


def name_of(number: int) -> str:
    """Return the name of a register by its number."""
    first = max(start for start in (0, VGPRS, AGPRS) if start <= number)
    return f"{'a' if first == AGPRS else 'v' if first else 's'}{number - first}"


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


def checking(one: Instruction, step: Step) -> Step:
    """Return an instruction that reports the uninitialised registers that it reads."""
    reads, writes = ([(n, count) for _, n, count in some] for some in operands_of(one))
    if "MAC_F" in one.name or "PERMLANE" in one.name:
        reads += writes
    scalars = [(n, count) for n, count in reads if n < SGPRS and n not in (EXEC, EXEC + 1)]
    vectors = [(n, count) for n, count in reads if n >= VGPRS]
    # It writes one lane, active or not.
    lane = listed(one["src1"], "u32") if one.name == "V_WRITELANE_B32" else None

    def run(w: Waves) -> None:
        known_v, known_s = w.known
        missing: list[tuple[int, Array]] = []
        for number, count in scalars:
            unwritten: Array = ~known_s[:, number : number + count]
            missing.append((number, np.asarray(unwritten.any(axis=1))[:, None]))
        for number, count in vectors:
            first = w.index(number)
            missing.append((number, w.exec & ~known_v[first : first + count].all(axis=0)))
        for number, lanes in missing:
            if lanes.any():
                detail = f"{name_of(number)} was never written"
                w.machine.report(w, one, "uninitialised register", detail, lanes)
        active = w.exec if lane is None else lane(w) % one.isa.lanes == np.arange(one.isa.lanes)
        step(w)
        for number, count in writes:
            if number < SGPRS:
                known_s[:, number : number + count] = True
            elif number >= VGPRS:
                first = w.index(number)
                known_v[first : first + count] |= active

    return run


def check_access(
    w: Waves, one: Instruction, addresses: Array, size: int, used: Array | None
) -> None:
    """Report misaligned addresses and reads of uninitialised memory, and record writes."""
    lanes = np.ones(addresses.shape, bool) if used is None else used
    crooked = lanes & (addresses % U64(min(size, 4)) != 0)
    if crooked.any():
        # The emulator keeps the LDS of all workgroups in one array.
        start, place = (w.lds_rows, " of the LDS") if one.form == "DS" else (U64(0), "")
        detail = f"{size} bytes at {int((addresses - start)[first_of(crooked)]):#x}{place}"
        w.machine.report(w, one, "misaligned", detail, crooked)
    if one.form != "DS":
        if one.form != "SCRATCH":
            check_memory(w, one, addresses, size, lanes)
        return
    written = w.machine.lds_written
    missing = lanes & ~written[_lds_bytes(w, addresses, size)].all(axis=-1)
    if "WRITE" not in one.name and missing.any():
        address = int((addresses - w.lds_rows)[first_of(missing)])
        detail = f"{size} bytes at {address:#x} of the LDS"
        w.machine.report(w, one, "uninitialised LDS", detail, missing)
    if "READ" not in one.name:
        record_lds(w, addresses[lanes], size)


def check_memory(w: Waves, one: Instruction, addresses: Array, size: int, lanes: Array) -> None:
    """Report reads of uninitialised memory, and record writes, of an access that may be made."""
    memory = w.machine.map
    if not memory.written or not lanes.any():
        return
    if "STORE" not in one.name:
        missing = np.zeros(lanes.shape, bool)
        missing[lanes] = memory.unwritten(addresses[lanes], size)
        if missing.any():
            detail = f"{size} bytes at {int(addresses[first_of(missing)]):#x}"
            w.machine.report(w, one, "uninitialised memory", detail, missing)
    if "LOAD" not in one.name:
        memory.record_written(addresses[lanes], size)


def record_lds(w: Waves, addresses: Array, size: int) -> None:
    """Record that some bytes of the LDS from each address on were written."""
    w.machine.lds_written[_lds_bytes(w, addresses, size)] = True


def _lds_bytes(w: Waves, addresses: Array, size: int) -> Array:
    """Indices of bytes of the LDS, (..., size)."""
    return (addresses - U64(w.machine.lds_start)).view(I64)[..., None] + np.arange(size)
