"""Records of instructions for the fast engine, as engine.c has them, and their operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gfxemu.decode import Instruction
from gfxemu.operands import (
    EXECZ,
    LITERAL,
    SCC,
    VCCZ,
    LanePattern,
    number_of,
    wide_literal,
)
from gfxemu.program import Program
from gfxemu.waves import (
    AGPRS,
    APERTURES,
    LITERALS,
    NULL,
    SGPRS,
    VGPRS,
    constant,
)

#: Handlers of engine.c.
(NOTHING, RUN_VECTOR, RUN_SCALAR, RUN_PACKED, RUN_MIX, RUN_DOT, RUN_READLANE, RUN_WRITELANE) = (
    range(8)
)
(RUN_SWAP, RUN_PERMUTE, RUN_SWIZZLE, RUN_MATRIX, RUN_DUAL, RUN_ROW, RUN_EXCHANGE) = range(8, 15)
(RUN_INTEGERS, RUN_COUNT, RUN_GETPC, RUN_WAIT, RUN_MEMORY, RUN_TWO) = range(15, 21)
(RUN_TRANSPOSED, RUN_SCALAR_MEMORY, RUN_ATOMIC, RUN_FALLBACK, RUN_REFUSED) = range(21, 26)
FIRST_END = 32
#: Kinds of operands.
VECTOR32, SCALAR32, CONSTANT, IS_SCC, IS_VCCZ, IS_EXECZ, VECTOR64, SCALAR64, LANE_MASK = range(9)
#: How a result is written.
NO_RESULT, WHOLE, PAIR, HALF, PART, ONE = range(6)

#: The words of a record that have to do with its place.
PC, STOPS, NUMBER = 2, 4, 5
OPERAND_WORDS = 8
#: The first of the words that each handler uses in its own way.
X = 7 + 4 * OPERAND_WORDS + 10
WORDS = X + 20
ALL = 2**64 - 1

_FLAGS = {SCC: IS_SCC, VCCZ: IS_VCCZ, EXECZ: IS_EXECZ}


class UncoveredError(Exception):
    """The engine does not run an instruction."""


@dataclass
class Operand:
    """A source operand."""

    kind: int = CONSTANT
    register: int = 0
    value: int = 0
    keep: int = ALL
    flip: int = 0
    shift: int = 0
    bits: int = 0
    signed: bool = False

    def words(self) -> list[int]:
        """Return it as in engine.c."""
        signs = self.keep, self.flip, self.shift, self.bits, int(self.signed)
        return [self.kind, self.register, self.value, *signs]


@dataclass
class Record:
    """An instruction for the engine; `Insn` of engine.c has the meaning of the fields.

    Of two operations in one instruction, `parts` has a record each.
    """

    handler: int
    op: int = 0
    operands: list[Operand] = field(default_factory=list)
    dst: int = 0
    result: int = NO_RESULT
    mask: int = -1
    exec_too: int = 0
    high: int = 0
    keep_other: int = 0
    dpp: int = 0
    factor: int = 0
    clamp: int = 0
    kind: int = 0
    x: list[int] = field(default_factory=list)
    queue: int = 0
    parts: Sequence[Record] = ()

    def words(self, size: int) -> list[int]:
        """Return it as in engine.c, with 0 for its place."""
        operands = [*self.operands, *[Operand()] * (4 - len(self.operands))]
        result = [self.handler, self.op, 0, size, 0, 0, self.queue]
        for operand in operands:
            result += operand.words()
        result += [self.dst, self.result, self.mask, self.exec_too, self.high, self.keep_other]
        result += [self.dpp, self.factor, self.clamp, self.kind]
        return [*result, *self.x, *[0] * (20 - len(self.x))]


class Registers:
    """Numbers and operands of the registers of a program.

    Attributes:
        fnuz: whether floats of 8 bits have the FNUZ formats.
        patterns: orders of lanes to which instructions refer.
    """

    def __init__(self, program: Program) -> None:
        self.layout, self.literals = program.layout, program.literals
        self.fnuz = program.fnuz
        self.patterns: list[LanePattern] = []

    def row(self, number: int) -> int:
        """Return the row of a vector register."""
        return number - VGPRS if number < AGPRS else number - AGPRS + self.layout.first_agpr

    def vgpr(self, number: int) -> int:
        """Return the row of a register that must be a vector register."""
        if number < VGPRS:
            raise UncoveredError
        return self.row(number)

    def number(self, number: int) -> Operand:
        """Return a register of 32 bits or a constant by its number."""
        if number >= LITERALS:
            return Operand(value=self.literals.bits[number - LITERALS])
        if number >= VGPRS:
            return Operand(VECTOR32, self.row(number))
        if number < SGPRS:
            return Operand(SCALAR32, number)
        value = constant(number)
        if value is None:
            raise UncoveredError
        return Operand(value=value)

    def narrow(self, one: Instruction, name: str, kind: str) -> Operand:
        """Return an operand of up to 32 bits by its field."""
        flag = _FLAGS.get(one.fields[name])
        if flag is not None:
            return Operand(flag)
        return self.number(number_of(one, name, kind, self.literals))

    def wide(self, one: Instruction, name: str, kind: str) -> Operand:
        """Return an operand of 64 bits by its field."""
        number = one.fields[name]
        if number == LITERAL:
            return Operand(value=wide_literal(one, kind))
        if number == NULL and one.isa.is_rdna:
            return Operand(value=0)
        if number < SGPRS:
            return Operand(SCALAR64, number)
        if number < VGPRS:
            value = APERTURES.get(number, constant(number, kind))
            if value is None:
                raise UncoveredError
            return Operand(value=value)
        return Operand(VECTOR64, self.row(number))

    def pattern(self, pattern: LanePattern) -> int:
        """Return the number of an order of lanes, from 1 on."""
        self.patterns.append(pattern)
        return len(self.patterns)
