"""Records of instructions that only touch registers: arithmetic, matrices, lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gfxemu.arrays import F64, I64
from gfxemu.bind import KEEPS_HALF, OMOD, SOURCES, negates, picks, with_signs
from gfxemu.decode import Instruction, family
from gfxemu.expressions import (
    CLAMPED_NAMES,
    FIXED,
    SCALAR_NAMES,
    VECTOR_NAMES,
    type_of,
)
from gfxemu.matrix import CHOSEN, ELEMENTS, INTEGERS, MIXED, NAME
from gfxemu.operands import ELSEWHERE, LanePattern, lane_pattern, number_of
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
    RUN_DOT,
    RUN_DUAL,
    RUN_EXCHANGE,
    RUN_GETPC,
    RUN_INTEGERS,
    RUN_MATRIX,
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
    Operand,
    Record,
    Registers,
    UncoveredError,
)
from gfxemu.table import PACKED, SCALAR, TYPES, VECTOR
from gfxemu.waves import AGPRS, EXEC, NULL, SGPRS, VCC, VGPRS

_MATRICES = {"F32": 0, "F16": 1, "BF16": 2, "FP8": 3, "BF8": 4}
_VECTOR_OPS = {name: number for number, name in enumerate(VECTOR_NAMES)}
_CLAMPED_OPS = {name: number for number, name in enumerate(CLAMPED_NAMES, len(VECTOR_NAMES))}
_SCALAR_OPS = {name: number for number, name in enumerate(SCALAR_NAMES)}


def _vector(registers: Registers, one: Instruction) -> Record:
    operation = with_signs(one, VECTOR[one.name])
    if not operation.outputs:
        return Record(NOTHING)
    output = operation.outputs[0]
    sources = iter(SOURCES[family(one)])
    operands: list[Operand] = []
    wide, table = 0, 0
    for place, kind in enumerate(operation.inputs):
        if kind == "table":
            table = one["omod"] << 6 | one["abs"] << 3 | one["neg"]
        if kind == "fnuz":
            table = int(registers.fnuz)
        if kind in FIXED:
            continue
        real = type_of(kind, operation)
        if TYPES[real]().itemsize == 8:
            wide |= 1 << len(operands)
        operands.append(_vector_operand(registers, one, kind, real, place, output, sources))
    record = Record(RUN_VECTOR, _VECTOR_OPS[one.name], operands, x=[len(operands), wide, table])
    _result(registers, one, record, operation.outputs)
    _modify(registers, one, record, output)
    if pattern := lane_pattern(one):
        if operands[0].kind not in (VECTOR32, VECTOR64):
            raise UncoveredError
        record.dpp = registers.pattern(pattern)
    return record


def _dual(registers: Registers, one: Instruction) -> Record:
    """Two operations: plain ones, of 32 bits."""
    parts = [_vector(registers, part) for part in one.parts]
    if any(part.result != WHOLE or part.mask >= 0 or part.kind for part in parts):
        raise UncoveredError
    return Record(RUN_DUAL, parts=parts)


def _vector_operand(
    registers: Registers,
    one: Instruction,
    kind: str,
    real: str,
    place: int,
    output: str,
    sources: Iterator[str],
) -> Operand:
    if kind == "dst":
        size = TYPES[output]().itemsize
        found = Operand(VECTOR64 if size == 8 else VECTOR32, registers.row(one["vdst"]))
        if size == 2 and one.isa.is_rdna and one["opsel"] >> 3 & 1:
            found.bits, found.shift = 16, 16
        return found
    if kind == "lit":
        assert one.literal is not None
        return Operand(value=one.literal & 0xFFFFFFFF)
    if kind in ("vcc", "mask"):
        number = VCC
        if kind == "mask" and family(one) in ("VOP3", "VOP3SD"):
            number = one.fields.get("src2", VCC)
        if number >= SGPRS:
            raise UncoveredError
        return Operand(LANE_MASK, number)
    name = next(sources)
    if one.fields[name] in ELSEWHERE and "vsrc0" in one.fields:
        name = "vsrc0"
    size = TYPES[real]().itemsize
    operand = registers.wide(one, name, real) if size == 8 else registers.narrow(one, name, real)
    select = one.fields.get(f"src{place}_sel", 6)
    if size != 8:
        if select != 6:
            operand.bits = 8 if select < 4 else 16
            operand.shift = 8 * select if select < 4 else 16 * (select - 4)
            operand.signed = bool(one[f"src{place}_sext"])
        if size == 2 and one["opsel"] >> place & 1:
            if select != 6:
                raise UncoveredError
            operand.bits, operand.shift = 16, 16
    elif size == 8 and select != 6:
        raise UncoveredError
    if negates(one, place, real):
        sign = 1 << 8 * size - 1
        if one["abs"] >> place & 1 or one[f"src{place}_abs"]:
            operand.keep = ALL & ~sign
        if one["neg"] >> place & 1 or one[f"src{place}_neg"]:
            operand.flip = sign
    return operand


def _modify(registers: Registers, one: Instruction, record: Record, output: str) -> None:
    if one.name.startswith("V_BITOP3") or output == "mask":
        return
    factor = OMOD.get(one["omod"]) if output[0] == "f" else None
    if one["clmp"] and output[0] != "f":
        _clamp_integer(one, record)
        return
    if factor is not None or one["clmp"]:
        if output[0] != "f" or record.mask >= 0:
            raise UncoveredError
        record.kind = ord({"f16": "h", "f32": "f", "f64": "d"}[output])
        record.clamp = one["clmp"]
        if factor is not None:
            record.factor = int(np.array(factor, F64).view(I64))


def _clamp_integer(one: Instruction, record: Record) -> None:
    if one.name not in _CLAMPED_OPS:
        raise UncoveredError
    record.op = _CLAMPED_OPS[one.name]


def _result(registers: Registers, one: Instruction, record: Record, outputs: Sequence[str]) -> None:
    output = outputs[0]
    if output == "mask":
        number = one.fields.get("vdst", VCC)
        if one.form == "VOPC_SDWA_SDST" and one["sd"]:
            number = one["sdst"]
        record.mask, record.exec_too = number, int(one.name.startswith("V_CMPX"))
    elif one.name.startswith("V_S_"):
        record.dst, record.result = one["vdst"] % VGPRS, ONE
        if record.dst == NULL:
            record.result = NO_RESULT
    else:
        record.dst = registers.row(one["vdst"])
        size = TYPES[output]().itemsize
        if "dst_sel" in one.fields and one["dst_sel"] != 6:
            record.result, record.high = PART, one["dst_sel"]
            record.keep_other = one["dst_unused"]
            if size == 8:
                raise UncoveredError
        elif size == 2:
            record.result = HALF
            record.high = one["opsel"] >> 3 & 1
            record.keep_other = int(one.isa.is_rdna or one.name in KEEPS_HALF)
        else:
            record.result = PAIR if size == 8 else WHOLE
        if len(outputs) > 1:
            record.mask = one["sdst"] if family(one) == "VOP3SD" else VCC
    if record.mask == NULL:
        record.mask = EXEC if record.exec_too else -1
    if record.mask > SGPRS - one.isa.lanes // 32:
        raise UncoveredError


def _scalar(registers: Registers, one: Instruction) -> Record:
    operation = SCALAR[one.name]
    sources = iter(SOURCES[family(one)])
    operands: list[Operand] = []
    for kind in operation.inputs:
        if kind.startswith("dst"):
            operands.append(Operand(SCALAR32, one["sdst"]))
        elif kind == "scc":
            operands.append(Operand(IS_SCC))
        elif kind == "exec":
            wide = operation.outputs[0] == "u64"
            operands.append(Operand(SCALAR64 if wide else SCALAR32, EXEC))
        elif kind == "lit":
            assert one.literal is not None
            operands.append(Operand(value=one.literal & 0xFFFFFFFF))
        elif kind in ("k", "ku"):
            bits = one["simm16"]
            if kind == "k" and bits & 0x8000:
                bits |= 0xFFFF0000
            operands.append(Operand(value=bits))
        elif TYPES[kind]().itemsize == 8:
            operands.append(registers.wide(one, next(sources), kind))
        else:
            operands.append(registers.narrow(one, next(sources), kind))
    if any(operand.kind in (VECTOR32, VECTOR64) for operand in operands):
        raise UncoveredError
    record = Record(RUN_SCALAR, _SCALAR_OPS[one.name], operands)
    output = operation.outputs[0]
    if output in TYPES:
        record.dst = one["sdst"]
        record.result = PAIR if TYPES[output]().itemsize == 8 else WHOLE
        if record.dst >= SGPRS:
            raise UncoveredError
        if record.dst == NULL:
            record.result = NO_RESULT
    record.x = [0, 0, int("exec" in operation.outputs)]
    return record


def _packed(registers: Registers, one: Instruction) -> Record:
    operation = PACKED[one.name]
    halves = TYPES[operation.inputs[0]]().itemsize == 2
    kind = operation.inputs[0]
    sign = 0x8000 if halves else 0x80000000
    operands: list[Operand] = []
    parts: tuple[list[int], list[int]] = ([], [])
    for place, of in enumerate(operation.inputs):
        name = f"src{place}"
        if halves:
            operand = registers.number(number_of(one, name, of, registers.literals))
        else:
            operand = registers.number(one.fields[name])
        operands.append(operand)
        for part, pick, flips in zip(parts, picks(one, place), ("neg", "neg_hi"), strict=True):
            flip = sign if one[flips] >> place & 1 and kind[0] == "f" else 0
            part += [16 * pick if halves else operand.register + pick, flip]
    both = [part + [0] * (6 - len(part)) for part in parts]
    record = Record(RUN_PACKED, _VECTOR_OPS[one.name], operands)
    record.x = [len(operands), 0, *both[0], *both[1]]
    record.dst, record.result = registers.row(one["vdst"]), HALF if halves else PAIR
    if one["clmp"] and kind[0] == "f":
        record.kind, record.clamp = ord("h" if halves else "f"), 1
    elif one["clmp"]:
        _clamp_integer(one, record)
    return record


def _packed_move(registers: Registers, one: Instruction) -> Record:
    """Two moves: of a register of the first operand, and of one of the second."""
    if one["neg"] | one["neg_hi"] or one["clmp"]:
        raise UncoveredError
    parts = []
    for place in range(2):
        number = one.fields[f"src{place}"]
        # A constant has one value.
        moved = 0 if SGPRS <= number < VGPRS else one["opsel"] >> place & 1
        part = Record(RUN_VECTOR, _VECTOR_OPS["V_MOV_B32"], [registers.number(number + moved)])
        part.dst, part.result, part.x = registers.row(one["vdst"]) + place, WHOLE, [1, 0, 0]
        parts.append(part)
    return Record(RUN_DUAL, parts=parts)


def _mix(registers: Registers, one: Instruction) -> Record:
    high_bits = one["opsel_hi"] | one["opsel_hi2"] << 2
    record = Record(RUN_MIX, dst=registers.row(one["vdst"]), clamp=one["clmp"])
    for place in range(3):
        half = high_bits >> place & 1
        kind = "f16" if half else "f32"
        number = number_of(one, f"src{place}", kind, registers.literals)
        record.operands.append(registers.number(number))
        absolute, negative = one["neg_hi"] >> place & 1, one["neg"] >> place & 1
        keep, flip = 0x7FFFFFFF if absolute else 0xFFFFFFFF, 0x80000000 * negative
        record.x += [half, 16 * (one["opsel"] >> place & 1), keep, flip]
    record.result = WHOLE if one.name == "V_MAD_MIX_F32" else HALF
    record.high = int(one.name == "V_MAD_MIXHI_F16")
    return record


def _dot(registers: Registers, one: Instruction) -> Record:
    kinds = ("u32", "u32", "f32")
    numbers = [
        number_of(one, f"src{place}", kind, registers.literals) for place, kind in enumerate(kinds)
    ]
    operands = [registers.number(number) for number in numbers]
    x = [int(one.name.endswith("BF16"))]
    return Record(RUN_DOT, operands=operands, dst=registers.row(one["vdst"]), x=x)


def _matrix(registers: Registers, one: Instruction) -> Record:
    found = NAME.match(one.name)
    assert found
    rows, depth, kind = int(found[2]), int(found[4]), found[6]
    other = (found[7] or kind).strip("_")
    if kind == "F8F6F4":
        kind, other = CHOSEN[one["cbsz"]], CHOSEN[one["blgp"]]
    a = one["src0"] + (AGPRS - VGPRS) * (one["acc"] & 1)
    b = one["src1"] + (AGPRS - VGPRS) * (one["acc"] >> 1)
    d = one["vdst"] + (AGPRS - VGPRS) * one["acc_cd"]
    c, bits = -1, 0
    if one["src2"] < VGPRS:
        number = number_of(one, "src2", "f32", registers.literals)
        bits = registers.number(number).value
    else:
        c = registers.row(one["src2"] + (AGPRS - VGPRS) * one["acc_cd"])
    isa = one.isa
    groups = isa.lanes // rows if isa.splits_depth else 1
    each = depth // groups // ELEMENTS[kind]
    results = rows * rows // isa.lanes
    left, right, target = (registers.row(number) for number in (a, b, d))
    if max(left + each, right + each, target + results, c + results) > registers.layout.vgprs:
        raise UncoveredError
    layout = [isa.matrix_rows, groups]
    if kind in INTEGERS:
        x = [left, right, c, 32 // ELEMENTS[kind], one["neg"], rows, depth, bits, *layout]
        return Record(RUN_INTEGERS, dst=target, clamp=one["clmp"], x=x)
    kinds = _MATRICES[kind], _MATRICES[other]
    x = [left, right, c, *kinds, rows, depth, bits, *layout]
    return Record(RUN_MATRIX, dst=target, x=x)


# Lanes


def _readlane(registers: Registers, one: Instruction) -> Record:
    first = one.name == "V_READFIRSTLANE_B32"
    names = ("src0",) if first else ("src0", "src1")
    operands = [registers.number(number_of(one, n, "u32", registers.literals)) for n in names]
    if not first and operands[1].kind == VECTOR32:
        raise UncoveredError
    dst = one["vdst"] - (VGPRS if one["vdst"] >= VGPRS else 0)
    if dst >= SGPRS or dst == NULL:
        raise UncoveredError
    return Record(RUN_READLANE, operands=operands, dst=dst, x=[int(first)])


def _writelane(registers: Registers, one: Instruction) -> Record:
    numbers = [number_of(one, n, "u32", registers.literals) for n in ("src0", "src1")]
    operands = [registers.number(number) for number in numbers]
    if any(operand.kind == VECTOR32 for operand in operands):
        raise UncoveredError
    return Record(RUN_WRITELANE, operands=operands, dst=registers.row(one["vdst"]))


def _swap(registers: Registers, one: Instruction) -> Record:
    source = registers.number(number_of(one, "src0", "u32", registers.literals))
    if source.kind != VECTOR32:
        raise UncoveredError
    distance = 16 if "16" in one.name else 32
    return Record(RUN_SWAP, operands=[source], dst=registers.row(one["vdst"]), x=[distance])


def _accvgpr(registers: Registers, one: Instruction) -> Record:
    number = number_of(one, "src0", "u32", registers.literals)
    if one.name != "V_ACCVGPR_WRITE":
        number += AGPRS - VGPRS
    d = one["vdst"] + (0 if one.name == "V_ACCVGPR_READ" else AGPRS - VGPRS)
    op = _VECTOR_OPS["V_MOV_B32"]
    record = Record(RUN_VECTOR, op, [registers.number(number)], registers.row(d), WHOLE)
    record.x = [1, 0, 0]
    return record


def _permute(registers: Registers, one: Instruction) -> Record:
    operands = [registers.number(one["addr"]), registers.number(one["data0"])]
    offset = one["offset0"] | one["offset1"] << 8
    x = [int(one.name == "DS_PERMUTE_B32"), offset]
    return Record(RUN_PERMUTE, operands=operands, dst=registers.row(one["vdst"]), x=x)


def _swizzle(registers: Registers, one: Instruction) -> Record:
    offset = one["offset0"] | one["offset1"] << 8
    lane = np.arange(one.isa.lanes)
    if offset & 0x8000:
        source = lane // 4 * 4 + (offset >> 2 * (lane % 4) & 3)
    else:
        both = (lane % 32 & offset & 31 | offset >> 5 & 31) ^ offset >> 10 & 31
        source = lane // 32 * 32 + both
    every = np.ones(len(lane), bool)
    dpp = registers.pattern(LanePattern(source, every, every, False, False))
    operands = [registers.number(one["addr"])]
    return Record(RUN_SWIZZLE, operands=operands, dst=registers.row(one["vdst"]), dpp=dpp)


def _permlane16(registers: Registers, one: Instruction) -> Record:
    numbers = [number_of(one, f"src{place}", "u32", registers.literals) for place in range(3)]
    operands = [registers.number(number) for number in numbers]
    if any(operand.kind == VECTOR32 for operand in operands[1:]):
        raise UncoveredError
    x = [16 if "X16" in one.name else 0, one["opsel"] & 1, one["opsel"] >> 1 & 1]
    return Record(RUN_ROW, operands=operands, dst=registers.row(one["vdst"]), x=x)


def _exchange(registers: Registers, one: Instruction) -> Record:
    operands = [Operand(VECTOR32, registers.vgpr(one["src0"]))]
    return Record(RUN_EXCHANGE, operands=operands, dst=registers.row(one["vdst"]))


def _getpc(registers: Registers, one: Instruction) -> Record:
    if one["sdst"] >= NULL:
        raise UncoveredError
    return Record(RUN_GETPC, dst=one["sdst"], x=[one.pc + one.size])


_BY_NAME: dict[str, Callable[[Registers, Instruction], Record]] = {
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
    **{name: _mix if "MIX" in name else _dot for name in MIXED},
}


def encode_operation(registers: Registers, one: Instruction) -> Record:
    """Return the record of an instruction that only touches registers.

    Raises:
        UncoveredError: the engine does not run it.
    """
    form = family(one)
    if special := _BY_NAME.get(one.name):
        return special(registers, one)
    if form == "VOP3P_MFMA" or one.name.startswith("V_WMMA_"):
        return _matrix(registers, one)
    if one.parts:
        return _dual(registers, one)
    if form.startswith("SOP") and one.name in _SCALAR_OPS:
        return _scalar(registers, one)
    if form == "VOP3P" and one.name in PACKED:
        return _packed(registers, one)
    if form.startswith("VOP") and one.name in _VECTOR_OPS and one.name in VECTOR:
        return _vector(registers, one)
    raise UncoveredError
