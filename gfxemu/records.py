"""Records of instructions for the engine, as engine.h has them, and their operands."""

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
    UnsupportedError,
    literal_of,
    wide_literal,
)
from gfxemu.registers import APERTURES, NULL, SGPRS, VGPRS, Layout, constant

#: Handlers of engine.c.
(NOTHING, RUN_VECTOR, RUN_SCALAR, RUN_PACKED, RUN_MIX, RUN_CLOCK, RUN_READLANE, RUN_WRITELANE) = (
    range(8)
)
(RUN_SWAP, RUN_PERMUTE, RUN_SWIZZLE, RUN_MATRIX, RUN_DUAL, RUN_ROW, RUN_EXCHANGE) = range(8, 15)
(RUN_INTEGERS, RUN_DOUBLES, RUN_COUNT, RUN_GETPC, RUN_WAIT, RUN_MEMORY, RUN_TWO) = range(15, 22)
(RUN_TRANSPOSED, RUN_SCALAR_MEMORY, RUN_ATOMIC, RUN_SERVE, RUN_TRAP, RUN_REFUSED) = range(22, 28)
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
        """Return it as in engine.h."""
        signs = self.keep, self.flip, self.shift, self.bits, int(self.signed)
        return [self.kind, self.register, self.value, *signs]


@dataclass
class Record:
    """An instruction for the engine; `Insn` of engine.h has the meaning of the fields.

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
        """Return it as in engine.h, with 0 for its place."""
        operands = [*self.operands, *[Operand()] * (4 - len(self.operands))]
        result = [self.handler, self.op, 0, size, 0, 0, self.queue]
        for operand in operands:
            result += operand.words()
        result += [self.dst, self.result, self.mask, self.exec_too, self.high, self.keep_other]
        result += [self.dpp, self.factor, self.clamp, self.kind]
        return [*result, *self.x, *[0] * (20 - len(self.x))]


class Context:
    """Makes operands of the instructions of a program.

    Attributes:
        layout: registers of its waves.
        fnuz: whether floats of 8 bits have the FNUZ formats.
        hostcalls: whether the kernel calls the host.
        mode: bits of the mode register that the kernel begins with.
        patterns: orders of lanes to which instructions refer.
    """

    def __init__(self, layout: Layout, fnuz: bool, hostcalls: bool, mode: int = 0) -> None:
        self.layout, self.fnuz, self.hostcalls, self.mode = layout, fnuz, hostcalls, mode
        self.patterns: list[LanePattern] = []

    def row(self, number: int) -> int:
        """Return the row of a vector register."""
        return self.layout.row(number)

    def vgpr(self, number: int) -> int:
        """Return the row of a register that must be a vector register."""
        if number < VGPRS:
            raise UnsupportedError(f"source operand {number}, which is not a vector register")
        return self.row(number)

    def register(self, number: int) -> Operand:
        """Return a register of 32 bits by its number."""
        if number >= VGPRS:
            return Operand(VECTOR32, self.row(number))
        return Operand(SCALAR32, number)

    def narrow(self, one: Instruction, name: str, kind: str = "u32") -> Operand:
        """Return an operand of up to 32 bits by its field."""
        number = one.fields[name]
        if (flag := _FLAGS.get(number)) is not None:
            return Operand(flag)
        # With SDWA a bit of its own says that a register is a scalar one.
        if number >= VGPRS and one[{"vsrc0": "s0", "vsrc1": "s1"}.get(name, "")]:
            return self.register(number - VGPRS)
        if number == LITERAL:
            return Operand(value=literal_of(one))
        if SGPRS <= number < VGPRS:
            return self.constant(number, kind if kind == "f16" else "u32")
        return self.register(number)

    def wide(self, one: Instruction, name: str, kind: str) -> Operand:
        """Return an operand of 64 bits by its field."""
        number = one.fields[name]
        if number == LITERAL:
            return Operand(value=wide_literal(one, kind))
        if number == NULL and one.isa.is_rdna:
            return Operand(value=0)
        if number in APERTURES:
            return Operand(value=APERTURES[number])
        if SGPRS <= number < VGPRS:
            # Floats in an operand of integers have their bits in the lower half.
            return self.constant(number, kind)
        if number < SGPRS:
            return Operand(SCALAR64, number)
        return Operand(VECTOR64, self.row(number))

    @staticmethod
    def constant(number: int, kind: str) -> Operand:
        """Return one of the ISA's constants as a type."""
        value = constant(number, kind)
        if value is None:
            raise UnsupportedError(f"source operand {number}")
        return Operand(value=value)

    def scalar(self, one: Instruction, name: str) -> Operand:
        """Return an operand of 32 bits that has one value for all lanes."""
        operand = self.narrow(one, name)
        if operand.kind == VECTOR32:
            raise UnsupportedError(f"a vector register as {name}")
        return operand

    def pattern(self, pattern: LanePattern) -> int:
        """Return the number of an order of lanes, from 1 on."""
        self.patterns.append(pattern)
        return len(self.patterns)
