"""Turns an instruction whose operation is in the table into a function of waves.

The fields of an instruction are decoded once; the function only reads, computes and writes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qola.emulate import compare, float8, scalar, vector
from qola.emulate.arrays import U16, U32, Array
from qola.emulate.bind_vector import bind_vector
from qola.emulate.decode import Instruction, family
from qola.emulate.operands import (
    Literals,
    Read,
    UnsupportedError,
    Write,
    applied,
    listed,
    number_of,
    special,
    typed,
    wide,
    write_scalar,
    write_vector,
)
from qola.emulate.table import PACKED, SCALAR, TYPES, VECTOR, Operation
from qola.emulate.waves import EXEC, SGPRS, VGPRS, Step, Waves

# Importing them fills the table.
_MODULES = (compare, float8, scalar, vector)


def bind_table(one: Instruction, literals: Literals) -> Step | None:
    """The function of an instruction whose operation is in the table, None for others."""
    form = family(one)
    if form.startswith("SOP"):
        return _bind_scalar(one, SCALAR[one.name], literals) if one.name in SCALAR else None
    if form == "VOP3P":
        return _bind_packed(one, PACKED[one.name], literals) if one.name in PACKED else None
    if form.startswith("VOP") and one.name in VECTOR:
        return bind_vector(one, VECTOR[one.name], literals)
    return None


_SOURCES: dict[str, tuple[str, ...]] = {
    "SOP1": ("ssrc0",),
    "SOP2": ("ssrc0", "ssrc1"),
    "SOPC": ("ssrc0", "ssrc1"),
    "SOPK": (),
}


def _bind_scalar(one: Instruction, operation: Operation, literals: Literals) -> Step:
    """A scalar operation."""
    sources = iter(_SOURCES[family(one)])
    result_kind = operation.outputs[0]
    reads = [_scalar_read(one, kind, result_kind, sources, literals) for kind in operation.inputs]
    writes: list[Write] = []
    for kind in operation.outputs:
        if kind == "scc":
            writes.append(_write_scc)
        elif kind == "exec":
            writes.append(write_scalar(EXEC, "u64"))
        else:
            writes.append(write_scalar(one["sdst"], kind))
    function = operation.function
    if len(writes) == 1:
        return applied(function, reads, writes[0])
    if len(writes) == 2 and len(reads) == 2:
        first, second = reads
        into, flag = writes

        def run(w: Waves) -> None:
            result, scc = function(first(w), second(w))
            into(w, result)
            flag(w, scc)

        return run

    def run_all(w: Waves) -> None:
        for write, value in zip(writes, function(*[read(w) for read in reads]), strict=True):
            write(w, value)

    return run_all


def _write_scc(w: Waves, value: Array) -> None:
    w.scc[...] = value


def _scalar_read(
    one: Instruction, kind: str, result: str, sources: Iterator[str], literals: Literals
) -> Read:
    if kind.startswith("dst"):
        kind = kind.partition(":")[2] or result
        return listed(one["sdst"], kind)
    if kind == "scc":
        return lambda w: w.scc
    if kind == "exec":
        return lambda w: w.q[EXEC]
    if kind in ("k", "ku"):
        bits = one["simm16"]
        if kind == "k" and bits & 0x8000:
            bits |= 0xFFFF0000
        number = literals.number(bits)
        return listed(number, "u32" if kind == "ku" else "i32")
    name = next(sources)
    if TYPES[kind]().itemsize == 8:
        return wide(one, name, kind)
    flag = special(one.fields[name])
    if flag is not None:
        return flag
    return listed(number_of(one, name, kind, literals), kind)


def _bind_packed(one: Instruction, operation: Operation, literals: Literals) -> Step:
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
