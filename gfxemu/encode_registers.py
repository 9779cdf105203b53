"""Records of instructions that only touch registers: arithmetic and lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gfxemu.arrays import F64, I64
from gfxemu.decode import Instruction, family
from gfxemu.encode_matrix import encode_matrix
from gfxemu.expressions import CLAMPED_NAMES, FIXED, SCALAR_NAMES, VECTOR_NAMES, type_of
from gfxemu.operands import ELSEWHERE, LanePattern, UnsupportedError, lane_pattern, literal_of
from gfxemu.operations import PACKED, SCALAR, SIZES, VECTOR, Operation
from gfxemu.records import (
    ALL,
    HALF,
    IS_SCC,
    LANE_MASK,
    NO_RESULT,
    NOTHING,
    ONE,
    PAIR,
    PART,
    RUN_CLOCK,
    RUN_DUAL,
    RUN_EXCHANGE,
    RUN_GETPC,
    RUN_MIX,
    RUN_PACKED,
    RUN_PERMUTE,
    RUN_READLANE,
    RUN_ROW,
    RUN_SCALAR,
    RUN_SWAP,
    RUN_SWIZZLE,
    RUN_VECTOR,
    RUN_WRITELANE,
    SCALAR32,
    SCALAR64,
    VECTOR32,
    VECTOR64,
    WHOLE,
    Context,
    Operand,
    Record,
)
from gfxemu.registers import AGPRS, EXEC, NULL, SGPRS, VCC, VGPRS

#: Operations of 16 bits that keep the other half of their destination; others write 0 to it.
_KEEPS_HALF = {"V_FMA_F16", "V_MAD_U16", "V_FMAC_F16", "V_CVT_PK_FP8_F32", "V_CVT_PK_BF8_F32"}
_OMOD = {1: 2.0, 2: 4.0, 3: 0.5}
#: Fields of source operands by encoding.
_SOURCES = {
    **{"SOP1": ("ssrc0",), "SOP2": ("ssrc0", "ssrc1"), "SOPC": ("ssrc0", "ssrc1"), "SOPK": ()},
    **{"VOP1": ("src0",), "VOP2": ("src0", "vsrc1"), "VOPC": ("src0", "vsrc1")},
    **dict.fromkeys(("VOP3", "VOP3SD", "VOP3_SDST"), ("src0", "src1", "src2")),
}
_VECTOR_OPS = {name: number for number, name in enumerate(VECTOR_NAMES)}
_CLAMPED_OPS = {name: number for number, name in enumerate(CLAMPED_NAMES, len(VECTOR_NAMES))}
_SCALAR_OPS = {name: number for number, name in enumerate(SCALAR_NAMES)}


def _with_signs(one: Instruction, operation: Operation) -> Operation:
    """Return the operation that an instruction with sign modifiers (neg, abs) does.

    V_MOV_B32 and V_CNDMASK_B32 move bits; with a modifier they move floats.

    Raises:
        UnsupportedError: a modifier of an integer operand, or op_sel of one of 32 bits.
    """
    if one.name in ("V_BITOP3_B32", "V_BITOP3_B16"):
        return operation
    signs = one["neg"] | one["abs"]
    signs |= one["src0_neg"] | one["src0_abs"] | one["src1_neg"] | one["src1_abs"]
    values = [kind for kind in operation.inputs if kind in SIZES]
    if signs and one.name in ("V_CNDMASK_B32", "V_MOV_B32"):
        kinds = tuple("f32" if kind == "u32" else kind for kind in operation.inputs)
        return replace(operation, inputs=kinds, outputs=("f32",))
    if signs and any(kind[0] != "f" for kind in values):
        allowed = one.name.startswith(("V_LDEXP", "V_CMP_CLASS", "V_CMPX_CLASS", "V_TRIG_PREOP"))
        if not allowed or signs & ~1:
            raise UnsupportedError("the sign of an integer operand")
    halves = [kind for kind in (*values, *operation.outputs) if kind in ("f16", "u16", "i16")]
    if one["opsel"] and not halves:
        raise UnsupportedError("a half of an operand of 32 bits (op_sel)")
    return operation


def _vector(context: Context, one: Instruction) -> Record:
    operation = _with_signs(one, VECTOR[one.name])
    if not operation.outputs:
        return Record(NOTHING)
    output = operation.outputs[0]
    sources = iter(_SOURCES[family(one)])
    operands: list[Operand] = []
    wide, table = 0, 0
    for place, kind in enumerate(operation.inputs):
        if kind == "table":
            table = one["omod"] << 6 | one["abs"] << 3 | one["neg"]
        if kind == "fnuz":
            table = int(context.fnuz)
        if kind in FIXED:
            continue
        real = type_of(kind, operation)
        if SIZES[real] == 8:
            wide |= 1 << len(operands)
        operands.append(_vector_operand(context, one, kind, real, place, output, sources))
    record = Record(RUN_VECTOR, _VECTOR_OPS[one.name], operands, x=[len(operands), wide, table])
    _result(context, one, record, operation.outputs)
    if not one.name.startswith("V_BITOP3") and output != "mask":
        _modify(one, record, output)
    if pattern := lane_pattern(one):
        if one.name.startswith("V_CMPX"):
            raise UnsupportedError("V_CMPX with DPP")
        if operands[0].kind not in (VECTOR32, VECTOR64):
            raise UnsupportedError("DPP of an operand that is not a vector register")
        record.dpp = context.pattern(pattern)
    return record


def _dual(context: Context, one: Instruction) -> Record:
    """Two operations: plain ones, of 32 bits. Neither reads the result of the other."""
    parts = []
    for part in one.parts:
        if part.name not in VECTOR:
            raise UnsupportedError("the operation is not emulated")
        parts.append(_vector(context, part))
    if any(part.result != WHOLE or part.mask >= 0 or part.kind for part in parts):
        raise UnsupportedError("a dual instruction with results other than of 32 bits")
    return Record(RUN_DUAL, parts=parts)


def _vector_operand(
    context: Context,
    one: Instruction,
    kind: str,
    real: str,
    place: int,
    output: str,
    sources: Iterator[str],
) -> Operand:
    if kind == "dst":
        size = SIZES[output]
        found = Operand(VECTOR64 if size == 8 else VECTOR32, context.row(one["vdst"]))
        if size == 2 and one.isa.is_rdna and one["opsel"] >> 3 & 1:
            found.bits, found.shift = 16, 16
        return found
    if kind == "lit":
        return Operand(value=literal_of(one))
    if kind in ("vcc", "mask"):
        number = VCC
        if kind == "mask" and family(one) in ("VOP3", "VOP3SD"):
            number = one.fields.get("src2", VCC)
        if number > SGPRS - one.isa.lanes // 32:
            raise UnsupportedError(f"source operand {number} as a mask")
        return Operand(LANE_MASK, number)
    name = next(sources)
    if one.fields[name] in ELSEWHERE and "vsrc0" in one.fields:
        name = "vsrc0"
    size = SIZES[real]
    operand = context.wide(one, name, real) if size == 8 else context.narrow(one, name, real)
    select = one.fields.get(f"src{place}_sel", 6)
    if select > 6 or (size == 8 and select != 6):
        raise UnsupportedError("a part of a register that SDWA does not have")
    if select != 6:
        operand.bits = 8 if select < 4 else 16
        operand.shift = 8 * select if select < 4 else 16 * (select - 4)
        operand.signed = bool(one[f"src{place}_sext"])
    if size == 2 and one["opsel"] >> place & 1:
        operand.bits, operand.shift = 16, 16
    if real[0] == "f":
        sign = 1 << 8 * size - 1
        if one["abs"] >> place & 1 or one[f"src{place}_abs"]:
            operand.keep = ALL & ~sign
        if one["neg"] >> place & 1 or one[f"src{place}_neg"]:
            operand.flip = sign
    return operand


def _modify(one: Instruction, record: Record, output: str) -> None:
    """Add output modifiers: a factor, then clamping."""
    if output[0] != "f":
        if one["clmp"]:
            _clamp_integer(one, record)
        return
    factor = _OMOD.get(one["omod"])
    if factor is None and not one["clmp"]:
        return
    if record.mask >= 0:
        raise UnsupportedError("an output modifier of an operation with two results")
    record.kind = ord({"f16": "h", "f32": "f", "f64": "d"}[output])
    record.clamp = one["clmp"]
    if factor is not None:
        record.factor = int(np.array(factor, F64).view(I64))


def _clamp_integer(one: Instruction, record: Record) -> None:
    if one.name not in _CLAMPED_OPS:
        raise UnsupportedError("clamp of an integer")
    record.op = _CLAMPED_OPS[one.name]


def _result(context: Context, one: Instruction, record: Record, outputs: Sequence[str]) -> None:
    output = outputs[0]
    if output == "mask":
        number = one.fields.get("vdst", VCC)
        if one.form == "VOPC_SDWA_SDST" and one["sd"]:
            number = one["sdst"]
        record.mask, record.exec_too = number, int(one.name.startswith("V_CMPX"))
    elif one.name.startswith("V_S_"):
        number = _scalar_number(one["vdst"])
        record.dst, record.result = number, ONE if number != NULL else NO_RESULT
    else:
        record.dst = context.row(one["vdst"])
        size = SIZES[output]
        if "dst_sel" in one.fields and one["dst_sel"] != 6:
            record.result, record.high = PART, one["dst_sel"]
            record.keep_other = one["dst_unused"]
            if size == 8 or record.high > 6 or record.keep_other > 2:
                raise UnsupportedError("a part of a register that SDWA does not have")
        elif size == 2:
            record.result = HALF
            record.high = one["opsel"] >> 3 & 1
            record.keep_other = int(one.isa.is_rdna or one.name in _KEEPS_HALF)
        else:
            record.result = PAIR if size == 8 else WHOLE
        if len(outputs) > 1:
            record.mask = one["sdst"] if family(one) == "VOP3SD" else VCC
    if record.mask == NULL:
        record.mask = EXEC if record.exec_too else -1
    if record.mask > SGPRS - one.isa.lanes // 32:
        raise UnsupportedError(f"operand {record.mask} as the destination of a mask")


def _scalar_number(number: int) -> int:
    """Return the number of a scalar register in the field of a vector register."""
    if number % VGPRS >= SGPRS:
        raise UnsupportedError(f"operand {number % VGPRS} as the destination of a scalar")
    return number % VGPRS


def _scalar(context: Context, one: Instruction) -> Record:
    operation = SCALAR[one.name]
    sources = iter(_SOURCES[family(one)])
    output = operation.outputs[0]
    operands: list[Operand] = []
    for kind in operation.inputs:
        if kind.startswith("dst"):
            operands.append(Operand(SCALAR32, one["sdst"]))
        elif kind == "scc":
            operands.append(Operand(IS_SCC))
        elif kind == "exec":
            operands.append(Operand(SCALAR64 if output == "u64" else SCALAR32, EXEC))
        elif kind == "lit":
            operands.append(Operand(value=literal_of(one)))
        elif kind in ("k", "ku"):
            bits = one["simm16"]
            if kind == "k" and bits & 0x8000:
                bits |= 0xFFFF0000
            operands.append(Operand(value=bits))
        elif SIZES[kind] == 8:
            operands.append(context.wide(one, next(sources), kind))
        else:
            operands.append(context.scalar(one, next(sources)))
    if any(operand.kind == VECTOR64 for operand in operands):
        raise UnsupportedError("a vector register in a scalar instruction")
    record = Record(RUN_SCALAR, _SCALAR_OPS[one.name], operands)
    if output in SIZES:
        record.dst = one["sdst"]
        record.result = PAIR if SIZES[output] == 8 else WHOLE
        if record.dst == NULL:
            record.result = NO_RESULT
    record.x = [0, 0, int("exec" in operation.outputs)]
    return record


def _picks(one: Instruction, place: int) -> tuple[int, int]:
    """Return which of the two values of an operand the low and the high result use."""
    high = one["opsel_hi"] >> place & 1 if place < 2 else one["opsel_hi2"]
    return one["opsel"] >> place & 1, high


def _packed(context: Context, one: Instruction) -> Record:
    operation = PACKED[one.name]
    kind = operation.inputs[0]
    if kind[0] != "f" and one["neg"] | one["neg_hi"]:
        raise UnsupportedError("the sign of an integer operand")
    halves = SIZES[kind] == 2
    sign = 0x8000 if halves else 0x80000000
    operands: list[Operand] = []
    parts: tuple[list[int], list[int]] = ([], [])
    for place, of in enumerate(operation.inputs):
        operand = context.narrow(one, f"src{place}", of)
        operands.append(operand)
        for part, pick, flips in zip(parts, _picks(one, place), ("neg", "neg_hi"), strict=True):
            flip = sign if one[flips] >> place & 1 else 0
            part += [16 * pick if halves else operand.register + pick, flip]
    both = [part + [0] * (6 - len(part)) for part in parts]
    record = Record(RUN_PACKED, _VECTOR_OPS[one.name], operands)
    record.x = [len(operands), 0, *both[0], *both[1]]
    record.dst, record.result = context.row(one["vdst"]), HALF if halves else PAIR
    if one["clmp"] and kind[0] == "f":
        record.kind, record.clamp = ord("h" if halves else "f"), 1
    elif one["clmp"]:
        _clamp_integer(one, record)
    return record


def _move(source: Operand, row: int) -> Record:
    """Return the record of a move to a vector register."""
    return Record(RUN_VECTOR, _VECTOR_OPS["V_MOV_B32"], [source], row, WHOLE, x=[1, 0, 0])


def _packed_move(context: Context, one: Instruction) -> Record:
    """Two moves: of a register of the first operand, and of one of the second."""
    if one["neg"] | one["neg_hi"]:
        raise UnsupportedError("the sign of an integer operand")
    if one["clmp"]:
        raise UnsupportedError("clamp of a move")
    parts = []
    for place in range(2):
        source = context.narrow(one, f"src{place}")
        if source.kind in (VECTOR32, SCALAR32):
            source.register += one["opsel"] >> place & 1
        parts.append(_move(source, context.row(one["vdst"]) + place))
    return Record(RUN_DUAL, parts=parts)


def _mix(context: Context, one: Instruction) -> Record:
    """A fused multiply-add of f32 and halves of registers."""
    high_bits = one["opsel_hi"] | one["opsel_hi2"] << 2
    record = Record(RUN_MIX, dst=context.row(one["vdst"]), clamp=one["clmp"])
    for place in range(3):
        half = high_bits >> place & 1
        record.operands.append(context.narrow(one, f"src{place}", "f16" if half else "f32"))
        # In these operations NEG_HI takes the sign away.
        absolute, negative = one["neg_hi"] >> place & 1, one["neg"] >> place & 1
        keep, flip = 0x7FFFFFFF if absolute else 0xFFFFFFFF, 0x80000000 * negative
        record.x += [half, 16 * (one["opsel"] >> place & 1), keep, flip]
    record.result = WHOLE if one.name == "V_MAD_MIX_F32" else HALF
    record.high = int(one.name == "V_MAD_MIXHI_F16")
    return record


def _dot(context: Context, one: Instruction) -> Record:
    """A sum of products of parts of registers."""
    operation = VECTOR[one.name]
    operands = [context.narrow(one, f"src{place}") for place in range(3)]
    record = Record(RUN_VECTOR, _VECTOR_OPS[one.name], operands, context.row(one["vdst"]), WHOLE)
    signs = one["neg"] if "signs" in operation.inputs else 0
    pairs = "DOT2" in one.name and (one["opsel"] or one["opsel_hi"] != 3)
    if pairs or signs >> 2 or one["neg"] != signs or one["neg_hi"]:
        raise UnsupportedError("modifiers of a dot product")
    record.x = [3, 0, signs]
    _modify(one, record, operation.outputs[0])
    return record


# Lanes


def _readlane(context: Context, one: Instruction) -> Record:
    first = one.name == "V_READFIRSTLANE_B32"
    operands = [context.narrow(one, "src0")]
    if not first:
        operands.append(context.scalar(one, "src1"))
    dst = _scalar_number(one["vdst"])
    if dst == NULL:
        return Record(NOTHING)
    return Record(RUN_READLANE, operands=operands, dst=dst, x=[int(first)])


def _writelane(context: Context, one: Instruction) -> Record:
    operands = [context.scalar(one, name) for name in ("src0", "src1")]
    return Record(RUN_WRITELANE, operands=operands, dst=context.row(one["vdst"]))


def _swap(context: Context, one: Instruction) -> Record:
    """Exchange the lower half of each row of SRC0 with the upper half of VDST's."""
    if one["opsel"]:
        # VOP3 has them in the bits of op_sel.
        raise UnsupportedError("fi or bound_ctrl of a swap")
    source = Operand(VECTOR32, context.vgpr(one["src0"]))
    distance = 16 if "16" in one.name else 32
    return Record(RUN_SWAP, operands=[source], dst=context.row(one["vdst"]), x=[distance])


def _accvgpr(context: Context, one: Instruction) -> Record:
    """Move from or to accumulation registers."""
    source = context.narrow(one, "src0")
    if one.name != "V_ACCVGPR_WRITE":
        source = context.register(_accumulation(one["src0"]))
    d = one["vdst"] + (0 if one.name == "V_ACCVGPR_READ" else AGPRS - VGPRS)
    return _move(source, context.row(d))


def _accumulation(number: int) -> int:
    """Return the number of an accumulation register by that of a vector register."""
    if number < VGPRS:
        raise UnsupportedError(f"source operand {number}, which is not an accumulation register")
    return number + AGPRS - VGPRS


def _permute(context: Context, one: Instruction) -> Record:
    operands = [Operand(VECTOR32, context.vgpr(one[name])) for name in ("addr", "data0")]
    offset = one["offset0"] | one["offset1"] << 8
    x = [int(one.name == "DS_PERMUTE_B32"), offset]
    return Record(RUN_PERMUTE, operands=operands, dst=context.row(one["vdst"]), x=x)


def _swizzle(context: Context, one: Instruction) -> Record:
    offset = one["offset0"] | one["offset1"] << 8
    if offset >= 0xC000:
        raise UnsupportedError("ds_swizzle with a rotation or FFT")
    lane = np.arange(one.isa.lanes)
    if offset & 0x8000:
        # Any order of each four lanes.
        source = lane // 4 * 4 + (offset >> 2 * (lane % 4) & 3)
    else:
        both = (lane % 32 & offset & 31 | offset >> 5 & 31) ^ offset >> 10 & 31
        source = lane // 32 * 32 + both
    every = np.ones(len(lane), bool)
    dpp = context.pattern(LanePattern(source, every, every, False, False))
    operands = [Operand(VECTOR32, context.vgpr(one["addr"]))]
    return Record(RUN_SWIZZLE, operands=operands, dst=context.row(one["vdst"]), dpp=dpp)


def _permlane16(context: Context, one: Instruction) -> Record:
    """Permute the 16 lanes of each row, or of its neighbouring row.

    Two scalar operands have four bits a lane. Bits of op_sel are FI and BOUND_CTRL, as with DPP.
    """
    operands = [context.narrow(one, "src0"), *(context.scalar(one, f"src{n}") for n in (1, 2))]
    x = [16 if "X16" in one.name else 0, one["opsel"] & 1, one["opsel"] >> 1 & 1]
    return Record(RUN_ROW, operands=operands, dst=context.row(one["vdst"]), x=x)


def _exchange(context: Context, one: Instruction) -> Record:
    operands = [Operand(VECTOR32, context.vgpr(one["src0"]))]
    return Record(RUN_EXCHANGE, operands=operands, dst=context.row(one["vdst"]))


def _getpc(context: Context, one: Instruction) -> Record:
    if one["sdst"] == NULL:
        return Record(NOTHING)
    return Record(RUN_GETPC, dst=one["sdst"], x=[one.pc + one.size])


#: Hardware registers by number: the mode, and those that say where a wave runs.
MODE, _PLACES = 1, (4, 20, 23, 24)
#: RDNA's lower and upper half of the time, and their first bits.
_CYCLES = {29: 0, 30: 32}
_REALTIME = 0x83


def hardware_register(one: Instruction) -> tuple[int, int, int]:
    """Return the number of a hardware register, and the first bit and width of the part named."""
    where = one["simm16"]
    return where & 63, where >> 6 & 31, (where >> 11) + 1


def _getreg(context: Context, one: Instruction) -> Record:
    """Read the mode that the kernel began with, the time, or the first place that waves run on."""
    register, offset, size = hardware_register(one)
    if one["sdst"] == NULL:
        return Record(NOTHING)
    if register in _CYCLES and one.isa.is_rdna:
        return Record(RUN_CLOCK, dst=one["sdst"], x=[size, _CYCLES[register] + offset])
    if register not in (MODE, *_PLACES):
        raise UnsupportedError(f"a read of hardware register {register}")
    value = (context.mode if register == MODE else 0) >> offset & (1 << size) - 1
    return Record(RUN_SCALAR, _SCALAR_OPS["S_MOV_B32"], [Operand(value=value)], one["sdst"], WHOLE)


def _time(context: Context, one: Instruction) -> Record:
    if one.name == "S_SENDMSG_RTN_B64":
        if one["ssrc0"] != _REALTIME:
            raise UnsupportedError(f"message {one['ssrc0']}")
        return Record(RUN_CLOCK if one["sdst"] != NULL else NOTHING, dst=one["sdst"])
    return Record(RUN_CLOCK, dst=one["sdata"])


_Encoder = Callable[[Context, Instruction], Record]

REGISTERS: dict[str, _Encoder] = {
    **dict.fromkeys(("V_READFIRSTLANE_B32", "V_READLANE_B32"), _readlane),
    "V_WRITELANE_B32": _writelane,
    **dict.fromkeys(("V_PERMLANE16_B32", "V_PERMLANEX16_B32"), _permlane16),
    "V_SWAP_B32": _exchange,
    **dict.fromkeys(("V_PERMLANE16_SWAP_B32", "V_PERMLANE32_SWAP_B32"), _swap),
    **dict.fromkeys(("V_ACCVGPR_READ", "V_ACCVGPR_WRITE", "V_ACCVGPR_MOV_B32"), _accvgpr),
    **dict.fromkeys(("DS_BPERMUTE_B32", "DS_PERMUTE_B32"), _permute),
    "DS_SWIZZLE_B32": _swizzle,
    "S_GETPC_B64": _getpc,
    "V_PK_MOV_B32": _packed_move,
    **dict.fromkeys(("V_MAD_MIX_F32", "V_MAD_MIXLO_F16", "V_MAD_MIXHI_F16"), _mix),
    **{name: _dot for name in VECTOR if name.startswith(("V_DOT2_", "V_DOT4_", "V_DOT8_"))},
    "S_GETREG_B32": _getreg,
    **dict.fromkeys(("S_MEMTIME", "S_MEMREALTIME", "S_SENDMSG_RTN_B64"), _time),
}
"""Functions that make the records of operations that are not in the tables, by name."""


def encode_operation(context: Context, one: Instruction) -> Record:
    """Return the record of an instruction that only touches registers.

    Raises:
        UnsupportedError: it is not emulated.
    """
    form = family(one)
    if special := REGISTERS.get(one.name):
        return special(context, one)
    if form == "VOP3P_MFMA" or one.name.startswith("V_WMMA_"):
        return encode_matrix(context, one)
    if one.parts:
        return _dual(context, one)
    if form.startswith("SOP") and one.name in SCALAR:
        return _scalar(context, one)
    if form == "VOP3P" and one.name in PACKED:
        return _packed(context, one)
    if form.startswith("VOP") and form != "VOP3P" and one.name in VECTOR:
        return _vector(context, one)
    raise UnsupportedError("the operation is not emulated")
