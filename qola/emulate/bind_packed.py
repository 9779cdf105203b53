"""Packed operations of the table as functions of waves."""

from __future__ import annotations

import numpy as np

from qola.emulate.arrays import U16, U32, Array
from qola.emulate.decode import Instruction
from qola.emulate.operands import (
    Literals,
    Read,
    UnsupportedError,
    listed,
    number_of,
    typed,
    write_vector,
)
from qola.emulate.table import TYPES, Operation
from qola.emulate.waves import SGPRS, VGPRS, Step, Waves


def bind_packed(one: Instruction, operation: Operation, literals: Literals) -> Step:
    """A packed operation of two halves of a register, or of two registers."""
    if operation.inputs[0][0] != "f" and one["neg"] | one["neg_hi"]:
        raise UnsupportedError("the sign of an integer operand")
    if TYPES[operation.inputs[0]]().itemsize == 2:
        return _halves(one, operation, literals)
    return _pairs(one, operation)


def _picks(one: Instruction, place: int) -> tuple[int, int]:
    """Which of the two values of an operand the low and the high result use."""
    high = one["opsel_hi"] >> place & 1 if place < 2 else one["opsel_hi2"]
    return one["opsel"] >> place & 1, high


def _halves(one: Instruction, operation: Operation, literals: Literals) -> Step:
    function = operation.function
    reads: list[tuple[Read, Read]] = []
    for place, kind in enumerate(operation.inputs):
        number = number_of(one, f"src{place}", kind, literals)
        pair: list[Read] = []
        for pick, signs in zip(_picks(one, place), ("neg", "neg_hi"), strict=True):
            distance = U32(16 * pick)

            def read(
                w: Waves, number: int = number, distance: U32 = distance, kind: str = kind
            ) -> Array:
                return typed(w.u[number] >> distance, kind)

            pair.append(_negated(read, bool(one[signs] >> place & 1)))
        reads.append((pair[0], pair[1]))
    write = write_vector(one["vdst"])
    if one["clmp"]:
        raise UnsupportedError("clamp of packed values")

    def run(w: Waves) -> None:
        low = function(*[pair[0](w) for pair in reads])
        high = function(*[pair[1](w) for pair in reads])
        low, high = np.broadcast_arrays(low, high)
        write(w, low.view(U16).astype(U32) | high.view(U16).astype(U32) << U32(16))

    return run


def _pairs(one: Instruction, operation: Operation) -> Step:
    function = operation.function
    moves = operation.name == "V_PK_MOV_B32"
    kind = operation.inputs[0]
    numbers: list[tuple[int, int]] = []
    for place in range(len(operation.inputs)):
        number = one.fields[f"src{place}"]
        low, high = _picks(one, place)
        if moves:
            # The second value is of the second operand, and has a bit of op_sel as the first one.
            high = low
        if SGPRS <= number < VGPRS:
            # A constant is the same in both.
            low = high = 0
        numbers.append((number + low, number + high))
    lows, highs = [low for low, _ in numbers], [high for _, high in numbers]
    if moves:
        lows, highs = [lows[0]], [highs[1]]
        function = lambda a: a  # noqa: E731
    readers = [
        [
            _negated(listed(number, kind), bool(one[sign] >> place & 1))
            for place, number in enumerate(of)
        ]
        for of, sign in ((lows, "neg"), (highs, "neg_hi"))
    ]
    first, second = write_vector(one["vdst"]), write_vector(one["vdst"] + 1)
    if one["clmp"]:
        raise UnsupportedError("clamp of packed values")

    def run(w: Waves) -> None:
        low = function(*[read(w) for read in readers[0]])
        high = function(*[read(w) for read in readers[1]])
        if moves:
            # The first write may overwrite the input of the second.
            high = high.copy()
        first(w, low)
        second(w, high)

    return run


def _negated(read: Read, negative: bool) -> Read:
    return (lambda w: -read(w)) if negative else read
