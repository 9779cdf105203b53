"""Turns an instruction whose operation is in the table into a function of waves.

The fields of an instruction are decoded once; the function only reads, computes and writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gfxemu import float8, scalar, vector
from gfxemu.arrays import U16, U32, Array, ArrayFunction
from gfxemu.decode import Instruction, family
from gfxemu.operands import (
    ELSEWHERE,
    LanePattern,
    Literals,
    Read,
    UnsupportedError,
    Write,
    applied,
    lane_pattern,
    listed,
    number_of,
    selected,
    special,
    typed,
    wide,
    write_half,
    write_mask,
    write_pair,
    write_scalar,
    write_selected,
    write_vector,
)
from gfxemu.table import PACKED, SCALAR, TYPES, VECTOR, Operation
from gfxemu.waves import EXEC, SGPRS, VCC, VGPRS, Step, Waves, constant

#: Operations of 16 bits that keep the other half of their destination; others write 0 to it.
KEEPS_HALF = {"V_FMA_F16", "V_MAD_U16", "V_FMAC_F16", "V_CVT_PK_FP8_F32", "V_CVT_PK_BF8_F32"}
OMOD = {1: 2.0, 2: 4.0, 3: 0.5}
#: Fields of source operands by encoding.
SOURCES = {
    **{"SOP1": ("ssrc0",), "SOP2": ("ssrc0", "ssrc1"), "SOPC": ("ssrc0", "ssrc1"), "SOPK": ()},
    **{"VOP1": ("src0",), "VOP2": ("src0", "vsrc1"), "VOPC": ("src0", "vsrc1")},
    **dict.fromkeys(("VOP3", "VOP3SD", "VOP3_SDST"), ("src0", "src1", "src2")),
}


def bind_vector(one: Instruction, operation: Operation, literals: Literals) -> Step:
    """A vector operation, in any of its encodings."""
    if not operation.outputs:
        return lambda w: None
    operation = with_signs(one, operation)
    if one.name.startswith("V_MBCNT_"):
        operation = replace(operation, function=vector.bits_below(one.name, one.isa.lanes))
    sources = iter(SOURCES[family(one)])
    # The result's type comes first: an accumulating operation reads its destination in it.
    output = operation.outputs[0]
    operands = [
        _plain(one, kind, output, place, sources, literals)
        for place, kind in enumerate(operation.inputs)
    ]
    reads = [listed(*operand) if isinstance(operand, tuple) else operand for operand in operands]
    function = _modified(one, operation)
    write = _vector_writer(one, operation)
    if pattern := lane_pattern(one):
        if one.name.startswith("V_CMPX"):
            raise UnsupportedError("V_CMPX with DPP")
        return _with_dpp(pattern, function, reads, write)
    numbers = [operand for operand in operands if isinstance(operand, tuple)]
    fast = _fast(function, numbers, write) if len(numbers) == len(operands) else None
    return fast or applied(function, reads, write)


def with_signs(one: Instruction, operation: Operation) -> Operation:
    """Return the operation that an instruction with sign modifiers (neg, abs) does.

    V_MOV_B32 and V_CNDMASK_B32 move bits; with a modifier they move floats.

    Raises:
        UnsupportedError: a modifier of an integer operand, or op_sel of one of 32 bits.
    """
    if one.name in ("V_BITOP3_B32", "V_BITOP3_B16"):
        return operation
    signs = one["neg"] | one["abs"]
    signs |= one["src0_neg"] | one["src0_abs"] | one["src1_neg"] | one["src1_abs"]
    values = [kind for kind in operation.inputs if kind in TYPES]
    if signs and one.name in ("V_CNDMASK_B32", "V_MOV_B32"):
        kinds = tuple("f32" if kind == "u32" else kind for kind in operation.inputs)
        return Operation(operation.name, kinds, ("f32",), operation.function)
    if signs and any(kind[0] != "f" for kind in values):
        allowed = one.name.startswith(("V_LDEXP", "V_CMP_CLASS", "V_CMPX_CLASS"))
        if not allowed or signs & ~1:
            raise UnsupportedError("the sign of an integer operand")
    halves = [kind for kind in (*values, *operation.outputs) if kind in ("f16", "u16", "i16")]
    if one["opsel"] and not halves:
        raise UnsupportedError("a half of an operand of 32 bits (op_sel)")
    return operation


def _fast(function: ArrayFunction, numbers: list[tuple[int, str]], write: Write) -> Step | None:
    """The most frequent operands, read without a call: two or three registers of one type."""
    kinds, places = {kind for _, kind in numbers}, [number for number, _ in numbers]
    if kinds not in ({"f32"}, {"u32"}) or len(places) not in (2, 3):
        return None
    a, b, c = *places, *places[:1] * (3 - len(places))
    if len(places) == 2:
        if kinds == {"f32"}:
            return lambda w: write(w, function(w.f[a], w.f[b]))
        return lambda w: write(w, function(w.u[a], w.u[b]))
    if kinds == {"f32"}:
        return lambda w: write(w, function(w.f[a], w.f[b], w.f[c]))
    return lambda w: write(w, function(w.u[a], w.u[b], w.u[c]))


def _plain(
    one: Instruction, kind: str, output: str, place: int, sources: Iterator[str], literals: Literals
) -> Read | tuple[int, str]:
    """How an operand is read: a register's number and type where that is all, else a function."""
    if kind == "dst":
        return _of_register(one["vdst"], output, one.isa.is_rdna and one["opsel"] >> 3 & 1)
    if kind == "lit":
        if one.literal is None:
            raise UnsupportedError("a literal that is not there")
        number = literals.number(one.literal & 0xFFFFFFFF)
        return (lambda w: typed(w.u[number], "f16")) if output == "f16" else (number, "f32")
    if kind == "vcc":
        return lambda w: w.lanes(VCC)
    if kind == "fnuz":
        return lambda w: np.array(int(w.machine.fnuz))
    if kind == "table":
        bits = one["omod"] << 6 | one["abs"] << 3 | one["neg"]
        return lambda w: np.array(bits)
    if kind == "mask":
        number = one.fields.get("src2", VCC) if family(one) in ("VOP3", "VOP3SD") else VCC
        if number >= SGPRS:
            raise UnsupportedError("a mask that is not in scalar registers")
        return lambda w: w.lanes(number)
    name = next(sources)
    if one.fields[name] in ELSEWHERE and "vsrc0" in one.fields:
        name = "vsrc0"
    if TYPES[kind]().itemsize == 8:
        return _signed(one, place, kind, wide(one, name, kind))
    flag = special(one.fields[name])
    if flag is not None:
        return flag if kind == "u32" else lambda w: typed(flag(w), kind)
    number = number_of(one, name, kind, literals)
    half = TYPES[kind]().itemsize == 2
    select = one.fields.get(f"src{place}_sel", 6)
    high = bool(one["opsel"] >> place & 1) and half
    if not (half or high or select != 6 or negates(one, place, kind)):
        return number, kind
    read: Read = lambda w: w.u[number]  # noqa: E731
    if select != 6:
        read = selected(read, select, bool(one[f"src{place}_sext"]))
    if high:
        read = selected(read, 5, False)
    raw = read
    return _signed(one, place, kind, lambda w: typed(raw(w), kind))


def _of_register(number: int, kind: str, high: int = 0) -> Read | tuple[int, str]:
    if kind in ("u32", "i32", "f32"):
        return number, kind
    if TYPES[kind]().itemsize == 2:
        distance = U32(16 * high)
        return lambda w: typed(w.u[number] >> distance, kind)
    fields = Instruction(0, 0, "", "", {"src0": number}, {}, None, "")
    return wide(fields, "src0", kind)


def negates(one: Instruction, place: int, kind: str) -> bool:
    """Whether an instruction changes the sign of an operand."""
    if one.name == "V_BITOP3_B32":
        return False
    changed = one["neg"] | one["abs"] if "neg" in one.fields else 0
    named = one[f"src{place}_neg"] | one[f"src{place}_abs"]
    return kind[0] == "f" and bool(changed >> place & 1 or named)


def _signed(one: Instruction, place: int, kind: str, read: Read) -> Read:
    """With the sign taken away or turned, for floats."""
    if not negates(one, place, kind):
        # V_CNDMASK takes floats too, as bits.
        return read
    absolute = one["abs"] >> place & 1 or one[f"src{place}_abs"]
    negative = one["neg"] >> place & 1 or one[f"src{place}_neg"]
    if absolute and negative:
        return lambda w: -np.abs(read(w))
    if absolute:
        return lambda w: np.abs(read(w))
    return lambda w: -read(w)


def _modified(one: Instruction, operation: Operation) -> ArrayFunction:
    """The function with output modifiers: a factor, then clamping."""
    function = operation.function
    if one.name == "V_BITOP3_B32":
        return function
    kind = operation.outputs[0]
    if kind[0] == "f":
        factor = OMOD.get(one["omod"])
        if factor is not None:
            scaled = function
            number = TYPES[kind](factor)
            function = lambda *values: scaled(*values) * number  # noqa: E731
        if one["clmp"]:
            plain = function
            ends = TYPES[kind](0), TYPES[kind](1)
            # A NaN is 0, as DX10_CLAMP has it.
            function = lambda *values: np.fmin(np.fmax(plain(*values), ends[0]), ends[1])  # noqa: E731
        return function
    if one["clmp"] and kind != "mask":
        if function not in (np.add, np.subtract):
            raise UnsupportedError("clamp of an integer")
        exact, target = function, TYPES[kind]
        limits: Any = np.iinfo(target)

        def saturated(*values: Array) -> Array:
            result = exact(*[value.astype(np.int64) for value in values])
            return np.clip(result, limits.min, limits.max).astype(target)

        return saturated
    return function


def _vector_writer(one: Instruction, operation: Operation) -> Write:
    output = operation.outputs[0]
    if output == "mask":
        number = one.fields.get("vdst", VCC)
        if one.form == "VOPC_SDWA_SDST" and one["sd"]:
            number = one["sdst"]
        compared = write_mask(number)
        if not one.name.startswith("V_CMPX"):
            return compared

        def write_exec(w: Waves, value: Array) -> None:
            compared(w, value)
            w.put_lanes(EXEC, value & w.exec)
            w.update_exec()

        return write_exec
    result = _result_writer(one, output, operation.name)
    if len(operation.outputs) == 1:
        return result
    carry = write_mask(one["sdst"] if family(one) == "VOP3SD" else VCC)

    def write_both(w: Waves, values: Array) -> None:
        # The mask first: it may not be read any more, but a source may be the destination.
        result(w, values[0])
        carry(w, np.broadcast_to(values[1], w.exec.shape))

    return write_both


def _result_writer(one: Instruction, output: str, name: str) -> Write:
    number = one["vdst"]
    if name.startswith("V_S_"):
        return write_scalar(number % VGPRS, output)
    if "dst_sel" in one.fields and (one["dst_sel"] != 6):
        return write_selected(number, one["dst_sel"], one["dst_unused"])
    size = TYPES[output]().itemsize
    if size == 8:
        return write_pair(number)
    if size == 2:
        keeps = one.isa.is_rdna or name in KEEPS_HALF
        return write_half(number, bool(one["opsel"] >> 3 & 1), keeps)
    return write_vector(number)


def _with_dpp(
    pattern: LanePattern, function: ArrayFunction, reads: list[Read], write: Write
) -> Step:
    """The first operand comes from another lane; lanes that have none keep their result."""
    source = pattern.source
    first, others = reads[0], reads[1:]

    def run(w: Waves) -> None:
        moved = first(w)[:, source]
        # A lane that is off is not read, unless the instruction asks for it (FI of RDNA).
        there = pattern.valid & (w.exec[:, source] | pattern.inactive)
        moved = np.where(there, moved, moved.dtype.type(0))
        result = function(moved, *[read(w) for read in others])
        kept, full = w.exec, w.full
        w.exec = kept & pattern.enabled & (there | pattern.zeros)
        w.full = False
        try:
            write(w, result)
        finally:
            w.exec, w.full = kept, full

    return run


# Importing them fills the table.
_MODULES = (float8, scalar, vector)


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


def _bind_scalar(one: Instruction, operation: Operation, literals: Literals) -> Step:
    """A scalar operation."""
    sources = iter(SOURCES[family(one)])
    result_kind = operation.outputs[0]
    reads = [_scalar_read(one, kind, result_kind, sources, literals) for kind in operation.inputs]
    writes: list[Write] = []
    for kind in operation.outputs:
        if kind == "scc":
            writes.append(_write_scc)
        elif kind == "exec":
            writes.append(write_scalar(EXEC, result_kind))
        else:
            writes.append(write_scalar(one["sdst"], kind))
    if len(writes) == 1:
        return applied(operation.function, reads, writes[0])

    def write_all(w: Waves, values: tuple[Array, ...]) -> None:
        for write, value in zip(writes, values, strict=True):
            write(w, value)

    return applied(operation.function, reads, write_all)


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
    if kind == "lit":
        if one.literal is None:
            raise UnsupportedError("a literal that is not there")
        return listed(literals.number(one.literal & 0xFFFFFFFF), "f32")
    if kind == "exec":
        return lambda w: w.q[EXEC] if result == "u64" else w.u[EXEC]
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
        return flag if kind == "u32" else lambda w: typed(flag(w), kind)
    return listed(number_of(one, name, kind, literals), kind)


def _bind_packed(one: Instruction, operation: Operation, literals: Literals) -> Step:
    """A packed operation of two halves of a register, or of two registers."""
    if operation.inputs[0][0] != "f" and one["neg"] | one["neg_hi"]:
        raise UnsupportedError("the sign of an integer operand")
    if TYPES[operation.inputs[0]]().itemsize == 2:
        return _halves(one, operation, literals)
    return _pairs(one, operation)


def picks(one: Instruction, place: int) -> tuple[int, int]:
    """Which of the two values of an operand the low and the high result use."""
    high = one["opsel_hi"] >> place & 1 if place < 2 else one["opsel_hi2"]
    return one["opsel"] >> place & 1, high


def _halves(one: Instruction, operation: Operation, literals: Literals) -> Step:
    function = operation.function
    reads: list[tuple[Read, Read]] = []
    for place, kind in enumerate(operation.inputs):
        number = number_of(one, f"src{place}", kind, literals)
        pair: list[Read] = []
        for pick, signs in zip(picks(one, place), ("neg", "neg_hi"), strict=True):
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
        low, high = picks(one, place)
        if moves:
            # The second value is of the second operand, and has a bit of op_sel as the first one.
            high = low
        if SGPRS <= number < VGPRS:
            if constant(number) is None:
                raise UnsupportedError(f"source operand {number}")
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
