"""Turns a program into records of the fast engine, a fixed number of words for each instruction.

The layout is that of `Insn` in engine.c. An instruction that the engine does not run becomes a call
of its function in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gfxemu.arrays import I64, U64, Array
from gfxemu.check import find_misfit, registers_of
from gfxemu.decode import Instruction
from gfxemu.encode_memory import encode_memory
from gfxemu.encode_registers import encode_operation
from gfxemu.operands import LanePattern, UnsupportedError
from gfxemu.program import BRANCHES, ENDS, Program
from gfxemu.program import NOTHING as WAITS_AND_HINTS
from gfxemu.races import QUEUES
from gfxemu.records import (
    ALL,
    FIRST_END,
    NOTHING,
    NUMBER,
    PC,
    RUN_COUNT,
    RUN_FALLBACK,
    RUN_MEMORY,
    RUN_REFUSED,
    RUN_VECTOR,
    RUN_WAIT,
    STOPS,
    WORDS,
    Record,
    Registers,
    UncoveredError,
    X,
)
from gfxemu.waits import find_queue, parse_wait
from gfxemu.waves import AGPRS, Step

_BRANCH, _BARRIER, _END, _JUMP = range(FIRST_END + 6, FIRST_END + 10)
#: Their records are the same at every place and with every set of literals. A wait is one only in a
#: kernel that accesses the LDS.
_ANYWHERE = {*range(RUN_VECTOR, RUN_COUNT), *range(RUN_MEMORY, RUN_FALLBACK)}

#: Instructions without an effect here, if they can be bound.
_WITHOUT_EFFECT = (
    *("S_SETREG_IMM32_B32", "V_NOP", "S_ROUND_MODE", "S_BARRIER_SIGNAL", "S_SENDMSG"),
)


@dataclass(frozen=True)
class Encoded:
    """A program for the engine.

    Attributes:
        words: of the instructions, then of parts of them, (records, WORDS).
        places: by a quarter of the offset, the number of the instruction, or -1.
        start: bytes of code in front of the kernel: the offset of its first instruction.
        instructions: in the order of their records.
    """

    words: Array
    places: Array
    dpp: Array
    instructions: Sequence[Instruction]
    start: int


def encode(program: Program) -> Encoded:
    """Return a program for the engine."""
    encoder = _Encoder(program)
    code = {pc: one for pc, one in program.code.items() if isinstance(one, Instruction)}
    start = -min(0, *code) if code else 0
    places = np.full((start + max(code, default=0)) // 4 + 1, -1, I64)
    numbers = {one.pc: number for number, one in enumerate(program.lds_accesses, 1)}
    rows = [encoder.words_of(one, start) for one in code.values()]
    dual = [number for number, own in enumerate(rows) if len(own) > 1]
    parts = [rows[number][1:] for number in dual]
    words = np.concatenate([np.zeros((0, WORDS), U64), *(own[:1] for own in rows), *parts])
    words = words.view(I64)
    words[dual, X] = len(rows) + 2 * np.arange(len(dual))
    pcs = np.array([*code], I64)
    places[(start + pcs) // 4] = np.arange(len(rows))
    ends = [pc + one.size for pc, one in code.items()]
    own = words[: len(rows)]
    own[:, PC] = start + pcs
    own[:, STOPS] = [end in program.starts or end not in code for end in ends]
    own[:, NUMBER] = [numbers.get(pc, 0) for pc in code]
    dpp = _lane_patterns(encoder.registers.patterns, program.isa.lanes)
    return Encoded(words, places, dpp, list(code.values()), start)


def _lane_patterns(patterns: Sequence[LanePattern], lanes: int) -> Array:
    """Return orders of lanes as in engine.c: `Dpp`."""
    masks = [(name, U64) for name in ("valid", "enabled", "zeros", "inactive")]
    found = np.zeros(max(1, len(patterns)), [("source", np.uint8, lanes), *masks])
    for row, one in enumerate(patterns):
        octets = [np.packbits(mask, bitorder="little") for mask in (one.valid, one.enabled)]
        valid, enabled = (int.from_bytes(mask.tobytes(), "little") for mask in octets)
        found[row] = (one.source, valid, enabled, ALL * one.zeros, ALL * one.inactive)
    return found


#: Branches that read or write scalar registers.
_WITH_REGISTERS = ("S_GETPC_B64", "S_SETPC_B64", "S_SWAPPC_B64", "S_CALL_B64")


@dataclass(frozen=True)
class _Known:
    """The records of an instruction at any place, on an arch and with a first_agpr.

    Attributes:
        words: as in engine.c; of the instruction, then of its parts.
        vgprs: vector registers of a kernel in which it is valid; it is valid with more, too.
    """

    words: Array
    vgprs: int


_NO_AGPR = -1
#: By arch, first accumulation register if it matters, and bytes: kernels repeat instructions.
_known: dict[tuple[str, int, bytes], _Known] = {}
#: About 100 MB.
_MOST_KNOWN = 100_000


class _Encoder:
    """Makes the records of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.registers = Registers(program)

    def words_of(self, one: Instruction, start: int) -> Array:
        """Return the words of an instruction and its parts, with 0 for those of its place."""
        arch, layout = self._program.arch, self.registers.layout
        for first_agpr in (_NO_AGPR, layout.first_agpr):
            known = _known.get((arch, first_agpr, one.code))
            if known and known.vgprs <= layout.vgprs:
                return known.words
        moved = replace(one, pc=start + one.pc) if start else one
        record = self.record(moved, self._program.bound(one.pc))
        record.queue = QUEUES.get(find_queue(one), -1) + 1
        records = [record, *record.parts]
        words = np.array([[word & ALL for word in r.words(one.size)] for r in records], U64)
        if record.handler in _ANYWHERE and not record.dpp and one.code:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            uses_agpr = any(number >= AGPRS for _, number, _ in registers_of(one))
            first_agpr = layout.first_agpr if uses_agpr else _NO_AGPR
            _known[arch, first_agpr, one.code] = _Known(words, layout.vgprs)
        return words

    def record(self, one: Instruction, bound: Step | str | None) -> Record:
        if isinstance(bound, str):
            return Record(RUN_REFUSED)
        misfit = find_misfit(one, self.registers.layout)
        if one.name in BRANCHES or one.name in ENDS:
            return Record(RUN_REFUSED) if misfit and one.name in _WITH_REGISTERS else self._end(one)
        if bound is None or one.name in _WITHOUT_EFFECT:
            return Record(NOTHING)
        if one.name in WAITS_AND_HINTS and find_queue(one) in QUEUES:
            return Record(RUN_COUNT)
        if misfit:
            return Record(RUN_FALLBACK)
        try:
            return self._record(one)
        except (UncoveredError, UnsupportedError):
            return Record(RUN_FALLBACK)

    def _record(self, one: Instruction) -> Record:
        if counts := parse_wait(one):
            return Record(RUN_WAIT, x=[*counts[:2]])
        registers = self.registers
        return encode_memory(registers, one) or encode_operation(registers, one)

    def _end(self, one: Instruction) -> Record:
        if one.name in BRANCHES:
            return Record(FIRST_END + list(BRANCHES).index(one.name), x=[0, one.target])
        if one.name == "S_BRANCH":
            return Record(_BRANCH, x=[0, one.target])
        if one.name == "S_BARRIER":
            return Record(_BARRIER)
        if one.name == "S_ENDPGM":
            return Record(_END)
        kind = {"S_SETPC_B64": 0, "S_SWAPPC_B64": 1, "S_CALL_B64": 2}[one.name]
        operands = [] if kind == 2 else [self.registers.wide(one, "ssrc0", "u64")]
        target = one.target if kind == 2 else 0
        return Record(_JUMP, operands=operands, dst=one["sdst"], x=[kind, target])
