"""Reports reads of registers that were never written, by a wrapper around each instruction.

All registers of an operand in active lanes count as read, even if the value is only moved and
shifted out again: such a read does not affect the result.
"""

from __future__ import annotations

import numpy as np

from qola.emulate.arrays import Array
from qola.emulate.decode import Instruction
from qola.emulate.operands import listed
from qola.emulate.waves import AGPRS, EXEC, LANES, SGPRS, VCC, VGPRS, Layout, Step, Waves

_READS = (
    "src0",
    "vsrc0",
    "src1",
    "vsrc1",
    "src2",
    "ssrc0",
    "ssrc1",
    "addr",
    "vaddr",
    "srsrc",
    "soffset",
    "sbase",
    "saddr",
    "data0",
    "data1",
    "data",
)
_WRITES = ("vdst", "sdst", "sdata")
_ACCUMULATION = frozenset({"vdst", "vdata", "data", "data0", "data1"})
_OFF = (124, 127)


def _operands(one: Instruction) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Registers that are read and written: first number and count."""
    reads, writes = [], []
    for name, words in one.words.items():
        if name not in one.fields:
            continue
        number = one.fields[name]
        if name == "vdst" and one.name in ("V_READFIRSTLANE_B32", "V_READLANE_B32"):
            # The field of vector registers encodes a scalar register here.
            number %= VGPRS
        if number >= VGPRS and _in_accumulation(one, name):
            number += AGPRS - VGPRS
        store = "STORE" in one.name or "ATOMIC" in one.name
        is_read = name in _READS or (name == "vdata" and store)
        if name in ("saddr", "soffset") and number in _OFF:
            continue
        if name == "soffset" and one.form == "SMEM" and not one["soffset_en"]:
            continue
        if name in ("vaddr",) and not (one["offen"] or one["idxen"]):
            continue
        if name == "addr" and one.form == "SCRATCH" and not one["sve"]:
            continue
        if is_read:
            reads.append((number, words))
        elif name in _WRITES or name == "vdata":
            writes.append((number, words))
    if one.form.startswith("VOPC") or (one.form.startswith("VOP2") and "_CO_" in one.name):
        writes.append((VCC, 2))
    if "FMAC" in one.name or "PERMLANE" in one.name:
        reads.append((one["vdst"], one.words.get("vdst", 1)))
    return reads, writes


def _in_accumulation(one: Instruction, name: str) -> bool:
    if one.form == "VOP3P_MFMA":
        return bool({"src0": one["acc"] & 1, "src1": one["acc"] >> 1}.get(name, one["acc_cd"]))
    if one.name.startswith("V_ACCVGPR"):
        return name == ("src0" if one.name.endswith("READ") else "vdst")
    return bool(one["acc"]) and name in _ACCUMULATION


def checking(one: Instruction, step: Step) -> Step:
    """An instruction that reports registers which it reads and nobody wrote."""
    reads, writes = _operands(one)
    scalars = [slice(n, n + c) for n, c in reads if n < SGPRS and n not in (EXEC, EXEC + 1)]
    vectors = [(n, c) for n, c in reads if n >= VGPRS]
    # It writes one lane, whether that is active or not.
    written = listed(one["src1"], "u32") if one.name == "V_WRITELANE_B32" else None

    def run(w: Waves) -> None:
        known = w.known
        assert known is not None
        known_v, known_s = known
        for registers in scalars:
            missing = np.asarray(~known_s[:, registers].all(axis=1))
            if missing.any():
                _report(w, one, f"s{registers.start}", np.repeat(missing[:, None], 1, axis=1))
        for number, count in vectors:
            first = w.index(number)
            missing = w.exec & ~known_v[first : first + count].all(axis=0)
            if missing.any():
                name = f"a{number - AGPRS}" if number >= AGPRS else f"v{number - VGPRS}"
                _report(w, one, name, missing)
        active = w.exec if written is None else written(w) % LANES == np.arange(LANES)
        step(w)
        for number, count in writes:
            if number < SGPRS:
                known_s[:, number : number + count] = True
            else:
                first = w.index(number)
                known_v[first : first + count] |= active

    return run


def find_misfit(one: Instruction, layout: Layout) -> str:
    """Return which register of an instruction a wave does not have; empty if it has all."""
    reads, writes = _operands(one)
    for number, count in (*reads, *writes):
        if number < SGPRS:
            if count > 1 and number % 2:
                return f"s{number} is odd, and begins a pair"
            if number + count > SGPRS:
                return f"s{number + count - 1} is beyond the scalar registers"
        elif number >= VGPRS:
            last = number + count - 1
            name, place = f"v{last - VGPRS}", last - VGPRS
            if number >= AGPRS:
                name, place = f"a{last - AGPRS}", last - AGPRS + layout.first_agpr
            if place >= layout.vgprs:
                return f"{name} is beyond the {layout.vgprs} vector registers of the kernel"
    return ""


def _report(w: Waves, one: Instruction, register: str, lanes: Array) -> None:
    w.machine.report(
        w, one, "uninitialised register", f"{register} was never written", lanes[:, :LANES]
    )
