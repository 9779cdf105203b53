"""Turns a program into records of the engine, a fixed number of words for each instruction.

The layout is that of `Insn` in engine.h. An instruction that is not emulated ends the launch when a
wave reaches it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gfxemu.arrays import I64, U64, Array
from gfxemu.check import find_misfit, registers_of, uses_of
from gfxemu.decode import Instruction
from gfxemu.encode_memory import MEMORY
from gfxemu.encode_registers import MODE, REGISTERS, encode_operation, hardware_register
from gfxemu.operands import LanePattern, UnsupportedError
from gfxemu.operations import PACKED, SCALAR, VECTOR
from gfxemu.program import BRANCHES, ENDS, Program
from gfxemu.races import QUEUES
from gfxemu.records import (
    ALL,
    FIRST_END,
    NOTHING,
    NUMBER,
    PC,
    RUN_COUNT,
    RUN_MEMORY,
    RUN_REFUSED,
    RUN_SERVE,
    RUN_TRAP,
    RUN_VECTOR,
    RUN_WAIT,
    STOPS,
    WORDS,
    Context,
    Record,
    X,
)
from gfxemu.registers import AGPRS
from gfxemu.waits import find_queue, parse_wait

_BRANCH, _BARRIER, _END, _JUMP = range(FIRST_END + 6, FIRST_END + 10)
#: Their records are the same at every place. A wait is one only in a kernel that accesses the LDS.
_ANYWHERE = {*range(RUN_VECTOR, RUN_COUNT), *range(RUN_MEMORY, RUN_SERVE)}
#: Instructions that use no registers here.
_WITHOUT_REGISTERS = {NOTHING, RUN_COUNT, RUN_WAIT, RUN_SERVE, RUN_TRAP, RUN_REFUSED}

#: Waits, which `waits` checks, and hints: accesses are complete at once, and time is not emulated.
WAITS_AND_HINTS = (
    *("S_NOP", "S_WAITCNT", "S_SETPRIO", "S_SLEEP", "S_ICACHE_INV", "S_DCACHE_INV", "S_DCACHE_WB"),
    *("BUFFER_WBL2", "BUFFER_INV"),
    *("S_CLAUSE", "S_DELAY_ALU", "S_DENORM_MODE", "S_WAIT_ALU", "S_WAIT_IDLE", "S_WAIT_EXPCNT"),
    *("S_WAIT_LOADCNT", "S_WAIT_STORECNT", "S_WAIT_DSCNT", "S_WAIT_KMCNT"),
    *("S_WAIT_SAMPLECNT", "S_WAIT_BVHCNT"),
    *("S_WAIT_LOADCNT_DSCNT", "S_WAIT_STORECNT_DSCNT", "S_SET_INST_PREFETCH_DISTANCE"),
    *("S_WAITCNT_DEPCTR", "S_WAITCNT_VMCNT", "S_WAITCNT_VSCNT", "S_WAITCNT_LGKMCNT"),
    "S_WAITCNT_EXPCNT",
)

#: The barrier of the workgroup: the constant -1.
_WORKGROUP = 193
_DEALLOC_VGPRS = 3
#: Bits of the mode that change nothing here: denormals, DX10_CLAMP and IEEE.
_IGNORED = 0x3F0
_TRAP = 2


def _setreg(one: Instruction) -> Record:
    """Of the hardware's registers only the mode is written: how denormals and rounding are done.

    Denormals are always kept and clamp always makes 0 of a NaN, so their bits change nothing;
    another way to round, traps and FP16_OVFL are not emulated.
    """
    register, offset, width = hardware_register(one)
    if register != MODE:
        raise UnsupportedError(f"a write of hardware register {register}")
    if one.literal is None:
        raise UnsupportedError("a write of the mode from a register")
    value = (one.literal & (1 << width) - 1) << offset
    # Bits 0 to 3 are the rounding of f32, f16 and f64: to nearest is 0.
    if value & 0xF:
        raise UnsupportedError("rounding that is not to nearest")
    if value & ~_IGNORED:
        raise UnsupportedError(f"bits {value & ~_IGNORED:#x} of the mode")
    return Record(NOTHING)


def _round_mode(one: Instruction) -> Record:
    if one["simm16"] & 0xF:
        raise UnsupportedError("rounding that is not to nearest")
    return Record(NOTHING)


def _signal(one: Instruction) -> Record:
    """A wave reaches the barrier: here it does so only when it begins to wait."""
    if one["ssrc0"] != _WORKGROUP:
        raise UnsupportedError("a barrier other than the workgroup's")
    return Record(NOTHING)


def _send_message(one: Instruction) -> Record:
    """A wave tells the hardware that it needs no vector registers any more."""
    if one["simm16"] != _DEALLOC_VGPRS:
        raise UnsupportedError(f"message {one['simm16']}")
    return Record(NOTHING)


def _trap(one: Instruction) -> Record:
    """End the launch: trap 2 is that of assert, abort() and __builtin_trap()."""
    if one["simm16"] != _TRAP:
        raise UnsupportedError(f"trap {one['simm16']}")
    return Record(RUN_TRAP)


_CONTROL = {
    "S_SETREG_IMM32_B32": _setreg,
    "S_ROUND_MODE": _round_mode,
    "S_BARRIER_SIGNAL": _signal,
    "S_SENDMSG": _send_message,
    "S_TRAP": _trap,
}

#: Names of all operations that are emulated, but for multiplications of matrices.
OPERATIONS = frozenset(
    {*VECTOR, *SCALAR, *PACKED, *MEMORY, *REGISTERS, *_CONTROL, *BRANCHES, *ENDS, *WAITS_AND_HINTS}
)


@dataclass(frozen=True)
class Encoded:
    """A program for the engine.

    Attributes:
        words: of the instructions, then of parts of them, (records, WORDS).
        places: by a quarter of the offset, the number of the instruction, or -1.
        start: bytes of code in front of the kernel: the offset of its first instruction.
        instructions: in the order of their records.
        refusals: by the offset of an instruction that is not emulated, the reason.
        uses: registers of instructions as in `check.uses_of`, if the program is checked.
        first_uses: by number of the instruction, its first row of `uses`; then their end.
    """

    words: Array
    places: Array
    dpp: Array
    instructions: Sequence[Instruction]
    start: int
    refusals: Mapping[int, str]
    uses: Array
    first_uses: Array


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
    dpp = _lane_patterns(encoder.context.patterns, program.isa.lanes)
    instructions = list(code.values())
    uses: list[tuple[int, int, int, int]] = []
    first_uses = [0]
    for number, one in enumerate(instructions if program.checked else ()):
        if own[number, 0] not in _WITHOUT_REGISTERS and own[number, 0] < FIRST_END:
            uses += uses_of(one, encoder.context.layout)
        first_uses.append(len(uses))
    rows_of_uses = np.array(uses, I64).reshape(-1, 4), np.array(first_uses, I64)
    return Encoded(words, places, dpp, instructions, start, encoder.refusals, *rows_of_uses)


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
        words: as in engine.h; of the instruction, then of its parts.
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
    """Makes the records of a program.

    Attributes:
        refusals: by the offset of an instruction that is not emulated, the reason.
    """

    def __init__(self, program: Program) -> None:
        self._arch = program.arch
        descriptor = program.kernel.descriptor
        # Rounding and denormals, DX10_CLAMP and IEEE.
        mode = descriptor.float_mode | (descriptor.rsrc1 >> 21 & 1) << 8
        mode |= (descriptor.rsrc1 >> 23 & 1) << 9
        self.context = Context(program.layout, program.fnuz, program.hostcalls, mode)
        self.refusals: dict[int, str] = {}

    def words_of(self, one: Instruction, start: int) -> Array:
        """Return the words of an instruction and its parts, with 0 for those of its place."""
        arch, layout = self._arch, self.context.layout
        for first_agpr in (_NO_AGPR, layout.first_agpr):
            known = _known.get((arch, first_agpr, one.code))
            if known and known.vgprs <= layout.vgprs:
                return known.words
        try:
            record = encode_instruction(self.context, replace(one, pc=start + one.pc))
        except UnsupportedError as error:
            self.refusals[one.pc] = str(error)
            record = Record(RUN_REFUSED)
        record.queue = QUEUES.get(find_queue(one), -1) + 1
        records = [record, *record.parts]
        words = np.array([[word & ALL for word in r.words(one.size)] for r in records], U64)
        anywhere = record.handler in _ANYWHERE and not record.dpp and one.name != "S_GETREG_B32"
        if anywhere and one.code:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            uses_agpr = any(number >= AGPRS for _, number, _ in registers_of(one))
            first_agpr = layout.first_agpr if uses_agpr else _NO_AGPR
            _known[arch, first_agpr, one.code] = _Known(words, layout.vgprs)
        return words


def encode_instruction(context: Context, one: Instruction) -> Record:
    """Return the record of an instruction.

    Raises:
        UnsupportedError: it is not emulated, or has registers that its waves do not have.
    """
    if one.name in BRANCHES or one.name in ENDS:
        record = _encode_end(context, one)
        fits = one.name not in _WITH_REGISTERS
    else:
        record = _encode(context, one)
        fits = record.handler in _WITHOUT_REGISTERS
    if not fits and (misfit := find_misfit(one, context.layout)):
        raise UnsupportedError(misfit)
    return record


def _encode(context: Context, one: Instruction) -> Record:
    if counts := parse_wait(one):
        return Record(RUN_WAIT, x=[*counts[:2]])
    if one.name in WAITS_AND_HINTS:
        if one.name == "S_SLEEP" and context.hostcalls:
            # Waves sleep until the host has answered.
            return Record(RUN_SERVE)
        return Record(RUN_COUNT if find_queue(one) in QUEUES else NOTHING)
    if control := _CONTROL.get(one.name):
        return control(one)
    if memory := MEMORY.get(one.name):
        return memory(context, one)
    return encode_operation(context, one)


def _encode_end(context: Context, one: Instruction) -> Record:
    """Return the record of an instruction that ends a block."""
    if one.name in BRANCHES:
        return Record(FIRST_END + BRANCHES.index(one.name), x=[0, one.target])
    if one.name == "S_BRANCH":
        return Record(_BRANCH, x=[0, one.target])
    if one.name == "S_BARRIER":
        return Record(_BARRIER)
    if one.name == "S_ENDPGM":
        return Record(_END)
    kind = {"S_SETPC_B64": 0, "S_SWAPPC_B64": 1, "S_CALL_B64": 2}[one.name]
    operands = [] if kind == 2 else [context.wide(one, "ssrc0", "u64")]
    target = one.target if kind == 2 else 0
    return Record(_JUMP, operands=operands, dst=one["sdst"], x=[kind, target])
