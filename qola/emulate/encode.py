"""Turns a program into records of the fast engine, a fixed number of words for each instruction.

The layout is that of `Insn` in engine.c. An instruction that the engine does not run becomes a call
of its function in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qola.emulate.arrays import F64, I64, U64, Array
from qola.emulate.bind import KEEPS_HALF, OMOD, SOURCES, negates, picks, with_signs
from qola.emulate.buffers import (
    ACCESS,
    ATOMIC,
    LDS_UPDATES,
    OFF,
    SCALAR_LOAD,
    SIGNED,
    SIZES,
    UPDATES,
    data_register,
    signed_of,
)
from qola.emulate.check import find_misfit, registers_of
from qola.emulate.decode import Instruction, family
from qola.emulate.expressions import FIXED, SCALAR_NAMES, VECTOR_NAMES, type_of
from qola.emulate.lds import PAIRS
from qola.emulate.matrix import ELEMENTS, MIXED, NAME
from qola.emulate.operands import (
    DPP,
    EXECZ,
    LITERAL,
    SCC,
    SDWA,
    VCCZ,
    UnsupportedError,
    lane_source,
    number_of,
)
from qola.emulate.program import BRANCHES, ENDS, Program
from qola.emulate.races import QUEUES
from qola.emulate.table import PACKED, SCALAR, TYPES, VECTOR
from qola.emulate.waits import find_queue, parse_wait
from qola.emulate.waves import (
    AGPRS,
    APERTURE,
    EXEC,
    LITERALS,
    SGPRS,
    SHARED_BASE,
    VCC,
    VGPRS,
    Step,
    constant,
)

#: As in engine.c.
(NOTHING, RUN_VECTOR, RUN_SCALAR, RUN_PACKED, RUN_MIX, RUN_DOT, RUN_READLANE, RUN_WRITELANE) = (
    range(8)
)
(RUN_SWAP, RUN_PERMUTE, RUN_SWIZZLE, RUN_MATRIX, RUN_GETPC, RUN_WAIT, RUN_MEMORY) = range(8, 15)
(RUN_TWO, RUN_TRANSPOSED, RUN_SCALAR_MEMORY, RUN_ATOMIC, RUN_FALLBACK, RUN_REFUSED) = range(15, 21)
#: Their records are the same at every place and with every set of literals. A wait is one only in a
#: kernel that accesses the LDS.
_ANYWHERE = {*range(RUN_VECTOR, RUN_GETPC), *range(RUN_MEMORY, RUN_FALLBACK)}
_FIRST_END = 32
_BRANCH, _BARRIER, _END, _JUMP = range(_FIRST_END + 6, _FIRST_END + 10)
_VECTOR32, _SCALAR32, _CONSTANT, _IS_SCC, _IS_VCCZ, _IS_EXECZ, _VECTOR64, _SCALAR64, _MASK = range(
    9
)
_NO_RESULT, _WHOLE, _PAIR, _HALF, _PART = range(5)
_BUFFER, _GLOBAL, _GLOBAL_SCALAR, _FLAT, _SCRATCH, _LOCAL = range(6)
_LOAD, _STORE, _LOAD_SMALL, _STORE_SMALL, _TO_LDS = range(5)
_MATRICES = {"F32": 0, "F16": 1, "BF16": 2, "FP8": 3, "BF8": 4}
_FLAGS = {SCC: _IS_SCC, VCCZ: _IS_VCCZ, EXECZ: _IS_EXECZ}

_ALL = 2**64 - 1
_VECTOR_OPS = {name: number for number, name in enumerate(VECTOR_NAMES)}
_SCALAR_OPS = {name: number for number, name in enumerate(SCALAR_NAMES)}
_UPDATE_OPS = {name: number for number, name in enumerate(UPDATES)}

#: The words of a record that have to do with its place.
_PC, _STOPS, _NUMBER = 2, 4, 5
OPERAND_WORDS = 8
WORDS = 7 + 4 * OPERAND_WORDS + 10 + 20

#: A pattern of lanes: source, valid, enabled, zeros (engine.c's Dpp).
DPP_TYPE = np.dtype([("source", np.uint8, 64), ("valid", U64), ("enabled", U64), ("zeros", U64)])


class _UncoveredError(Exception):
    """The engine does not run an instruction."""


@dataclass
class Operand:
    """A source operand."""

    kind: int = _CONSTANT
    register: int = 0
    value: int = 0
    keep: int = _ALL
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
    """An instruction for the engine; `Insn` of engine.c has the meaning of the fields."""

    handler: int
    op: int = 0
    operands: list[Operand] = field(default_factory=list)
    dst: int = 0
    result: int = _NO_RESULT
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

    def words(self, size: int) -> list[int]:
        """Return it as in engine.c, with 0 for its place."""
        operands = [*self.operands, *[Operand()] * (4 - len(self.operands))]
        result = [self.handler, self.op, 0, size, 0, 0, self.queue]
        for operand in operands:
            result += operand.words()
        result += [self.dst, self.result, self.mask, self.exec_too, self.high, self.keep_other]
        result += [self.dpp, self.factor, self.clamp, self.kind]
        return [*result, *self.x, *[0] * (20 - len(self.x))]


@dataclass(frozen=True)
class Encoded:
    """A program for the engine.

    Attributes:
        words: of the instructions, (instructions, WORDS).
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
    words = np.concatenate([np.zeros(0, U64), *rows]).reshape(len(rows), WORDS).view(I64)
    pcs = np.array([*code], I64)
    places[(start + pcs) // 4] = np.arange(len(rows))
    ends = [pc + one.size for pc, one in code.items()]
    words[:, _PC] = start + pcs
    words[:, _STOPS] = [end in program.starts or end not in code for end in ends]
    words[:, _NUMBER] = [numbers.get(pc, 0) for pc in code]
    dpp = np.zeros(max(1, len(encoder.dpp)), DPP_TYPE)
    for row, (source, valid, enabled, zeros) in enumerate(encoder.dpp):
        dpp[row] = (source, valid, enabled, zeros)
    return Encoded(words, places, dpp, list(code.values()), start)


def _mask_of(lanes: Any) -> int:
    return int(np.packbits(np.asarray(lanes, bool), bitorder="little").view(U64)[0])


#: Branches that read or write scalar registers.
_WITH_REGISTERS = ("S_GETPC_B64", "S_SETPC_B64", "S_SWAPPC_B64", "S_CALL_B64")


@dataclass(frozen=True)
class _Known:
    """The record of an instruction at any place, on an arch and with a first_agpr.

    Attributes:
        words: as in engine.c.
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
        dpp: patterns of lanes that instructions refer to.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._layout = program.layout
        self.dpp: list[tuple[Array, int, int, int]] = []

    def words_of(self, one: Instruction, start: int) -> Array:
        """Return the words of an instruction, with 0 for those of its place."""
        arch, layout = self._program.arch, self._layout
        for first_agpr in (_NO_AGPR, layout.first_agpr):
            known = _known.get((arch, first_agpr, one.code))
            if known and known.vgprs <= layout.vgprs:
                return known.words
        moved = replace(one, pc=start + one.pc) if start else one
        record = self.record(moved, self._program.bound(one.pc))
        record.queue = QUEUES.get(find_queue(one), -1) + 1
        words = np.array([word & _ALL for word in record.words(one.size)], U64)
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
        misfit = find_misfit(one, self._layout)
        if one.name in BRANCHES or one.name in ENDS:
            return Record(RUN_REFUSED) if misfit and one.name in _WITH_REGISTERS else self._end(one)
        if bound is None or one.name in ("S_SETREG_IMM32_B32", "V_NOP"):
            return Record(NOTHING)
        if misfit:
            return Record(RUN_FALLBACK)
        try:
            return self._record(one)
        except (_UncoveredError, UnsupportedError):
            return Record(RUN_FALLBACK)

    def _record(self, one: Instruction) -> Record:
        form = family(one)
        if counts := parse_wait(one):
            return Record(RUN_WAIT, x=[*counts[:2]])
        special = _BY_NAME.get(one.name)
        if special:
            return special(self, one)
        if ACCESS.match(one.name):
            return self._access(one)
        if ATOMIC.match(one.name):
            return self._atomic(one)
        if form == "VOP3P_MFMA":
            return self._matrix(one)
        if form.startswith("SOP") and one.name in _SCALAR_OPS:
            return self._scalar(one)
        if form == "VOP3P" and one.name in PACKED:
            return self._packed(one)
        if form.startswith("VOP") and one.name in _VECTOR_OPS and one.name in VECTOR:
            return self._vector(one)
        raise _UncoveredError

    def _end(self, one: Instruction) -> Record:
        if one.name in BRANCHES:
            return Record(_FIRST_END + list(BRANCHES).index(one.name), x=[0, one.target])
        if one.name == "S_BRANCH":
            return Record(_BRANCH, x=[0, one.target])
        if one.name == "S_BARRIER":
            return Record(_BARRIER)
        if one.name == "S_ENDPGM":
            return Record(_END)
        kind = {"S_SETPC_B64": 0, "S_SWAPPC_B64": 1, "S_CALL_B64": 2}[one.name]
        operands = [] if kind == 2 else [self._wide(one, "ssrc0", "u64")]
        target = one.target if kind == 2 else 0
        return Record(_JUMP, operands=operands, dst=one["sdst"], x=[kind, target])

    # Operands

    def row(self, number: int) -> int:
        """Return the row of a vector register."""
        return number - VGPRS if number < AGPRS else number - AGPRS + self._layout.first_agpr

    def _number(self, number: int) -> Operand:
        """Return a register of 32 bits or a constant by its number."""
        if number >= LITERALS:
            return Operand(value=self._program.literals.bits[number - LITERALS])
        if number >= VGPRS:
            return Operand(_VECTOR32, self.row(number))
        if number < SGPRS:
            return Operand(_SCALAR32, number)
        value = constant(number)
        if value is None:
            raise _UncoveredError
        return Operand(value=value)

    def _narrow(self, one: Instruction, name: str, kind: str) -> Operand:
        flag = _FLAGS.get(one.fields[name])
        if flag is not None:
            return Operand(flag)
        return self._number(number_of(one, name, kind, self._program.literals))

    def _wide(self, one: Instruction, name: str, kind: str) -> Operand:
        number = one.fields[name]
        if number == LITERAL:
            bits = (one.literal or 0) & 0xFFFFFFFF
            if kind == "f64":
                bits <<= 32
            elif kind == "i64" and bits >> 31:
                bits |= 0xFFFFFFFF << 32
            return Operand(value=bits)
        if number < SGPRS:
            return Operand(_SCALAR64, number)
        if number < VGPRS:
            value = APERTURE if number == SHARED_BASE else constant(number, kind)
            if value is None:
                raise _UncoveredError
            return Operand(value=value)
        return Operand(_VECTOR64, self.row(number))

    # Arithmetic

    def _vector(self, one: Instruction) -> Record:
        operation = with_signs(one, VECTOR[one.name])
        output = operation.outputs[0]
        sources = iter(SOURCES[family(one)])
        operands: list[Operand] = []
        wide, table = 0, 0
        for place, kind in enumerate(operation.inputs):
            if kind == "table":
                table = one["omod"] << 6 | one["abs"] << 3 | one["neg"]
            if kind in FIXED:
                continue
            real = type_of(kind, operation)
            if TYPES[real]().itemsize == 8:
                wide |= 1 << len(operands)
            operands.append(self._vector_operand(one, kind, real, place, output, sources))
        if "fnuz" in operation.inputs or len(operands) > 4:
            raise _UncoveredError
        record = Record(RUN_VECTOR, _VECTOR_OPS[one.name], operands, x=[len(operands), wide, table])
        self._result(one, record, operation.outputs)
        self._modify(one, record, output)
        if one.form.endswith("_DPP16"):
            if operands[0].kind != _VECTOR32:
                raise _UncoveredError
            source, valid = lane_source(one["dpp"])
            lane = np.arange(64)
            rows = (one["row_mask"] >> (lane // 16) & 1) & (one["bank_mask"] >> (lane // 4 % 4) & 1)
            zeros = _ALL if one["bc"] else 0
            self.dpp.append((source, _mask_of(valid), _mask_of(rows), zeros))
            record.dpp = len(self.dpp)
        return record

    def _vector_operand(
        self, one: Instruction, kind: str, real: str, place: int, output: str, sources: Any
    ) -> Operand:
        if kind == "dst":
            wide = TYPES[output]().itemsize == 8
            return Operand(_VECTOR64 if wide else _VECTOR32, self.row(one["vdst"]))
        if kind == "lit":
            assert one.literal is not None
            return Operand(value=one.literal & 0xFFFFFFFF)
        if kind in ("vcc", "mask"):
            number = VCC
            if kind == "mask" and family(one) in ("VOP3", "VOP3SD"):
                number = one.fields.get("src2", VCC)
            if number >= SGPRS:
                raise _UncoveredError
            return Operand(_MASK, number)
        name = next(sources)
        if one.fields[name] in (SDWA, DPP) and "vsrc0" in one.fields:
            name = "vsrc0"
        size = TYPES[real]().itemsize
        operand = self._wide(one, name, real) if size == 8 else self._narrow(one, name, real)
        select = one.fields.get(f"src{place}_sel", 6)
        if size != 8 and operand.kind not in (_IS_SCC, _IS_VCCZ, _IS_EXECZ):
            if select != 6:
                operand.bits = 8 if select < 4 else 16
                operand.shift = 8 * select if select < 4 else 16 * (select - 4)
                operand.signed = bool(one[f"src{place}_sext"])
            if size == 2 and one["opsel"] >> place & 1:
                if select != 6:
                    raise _UncoveredError
                operand.bits, operand.shift = 16, 16
        elif size == 8 and select != 6:
            raise _UncoveredError
        if negates(one, place, real):
            if operand.kind in (_IS_SCC, _IS_VCCZ, _IS_EXECZ):
                raise _UncoveredError
            sign = 1 << 8 * size - 1
            if one["abs"] >> place & 1 or one[f"src{place}_abs"]:
                operand.keep = _ALL & ~sign
            if one["neg"] >> place & 1 or one[f"src{place}_neg"]:
                operand.flip = sign
        return operand

    def _modify(self, one: Instruction, record: Record, output: str) -> None:
        if one.name.startswith("V_BITOP3") or output == "mask":
            return
        factor = OMOD.get(one["omod"]) if output[0] == "f" else None
        if one["clmp"] and output[0] != "f":
            raise _UncoveredError
        if factor is not None or one["clmp"]:
            if output[0] != "f" or record.mask >= 0:
                raise _UncoveredError
            record.kind = ord({"f16": "h", "f32": "f", "f64": "d"}[output])
            record.clamp = one["clmp"]
            if factor is not None:
                record.factor = int(np.array(factor, F64).view(I64))

    def _result(self, one: Instruction, record: Record, outputs: Sequence[str]) -> None:
        output = outputs[0]
        if output == "mask":
            number = {"VOPC": VCC}.get(family(one), one["vdst"])
            if one.form == "VOPC_SDWA_SDST" and one["sd"]:
                number = one["sdst"]
            record.mask, record.exec_too = number, int(one.name.startswith("V_CMPX"))
        else:
            record.dst = self.row(one["vdst"])
            size = TYPES[output]().itemsize
            if "dst_sel" in one.fields and one["dst_sel"] != 6:
                record.result, record.high = _PART, one["dst_sel"]
                record.keep_other = one["dst_unused"]
                if size == 8:
                    raise _UncoveredError
            elif size == 2:
                record.result = _HALF
                record.high = one["opsel"] >> 3 & 1
                record.keep_other = int(one.name in KEEPS_HALF)
            else:
                record.result = _PAIR if size == 8 else _WHOLE
            if len(outputs) > 1:
                record.mask = one["sdst"] if family(one) == "VOP3SD" else VCC
        if record.mask >= SGPRS - 1:
            raise _UncoveredError

    def _scalar(self, one: Instruction) -> Record:
        operation = SCALAR[one.name]
        sources = iter(SOURCES[family(one)])
        operands: list[Operand] = []
        for kind in operation.inputs:
            if kind.startswith("dst"):
                operands.append(Operand(_SCALAR32, one["sdst"]))
            elif kind == "scc":
                operands.append(Operand(_IS_SCC))
            elif kind == "exec":
                operands.append(Operand(_SCALAR64, EXEC))
            elif kind in ("k", "ku"):
                bits = one["simm16"]
                if kind == "k" and bits & 0x8000:
                    bits |= 0xFFFF0000
                operands.append(Operand(value=bits))
            elif TYPES[kind]().itemsize == 8:
                operands.append(self._wide(one, next(sources), kind))
            else:
                operands.append(self._narrow(one, next(sources), kind))
        if any(operand.kind in (_VECTOR32, _VECTOR64) for operand in operands):
            raise _UncoveredError
        record = Record(RUN_SCALAR, _SCALAR_OPS[one.name], operands)
        output = operation.outputs[0]
        if output in TYPES:
            record.dst = one["sdst"]
            record.result = _PAIR if TYPES[output]().itemsize == 8 else _WHOLE
            if record.dst >= SGPRS:
                raise _UncoveredError
        record.x = [0, 0, int("exec" in operation.outputs)]
        return record

    def _packed(self, one: Instruction) -> Record:
        operation = PACKED[one.name]
        if one["clmp"]:
            raise _UncoveredError
        halves = TYPES[operation.inputs[0]]().itemsize == 2
        moves = one.name == "V_PK_MOV_B32"
        kind = operation.inputs[0]
        sign = 0x8000 if halves else 0x80000000
        operands: list[Operand] = []
        parts: tuple[list[int], list[int]] = ([], [])
        for place, of in enumerate(operation.inputs):
            name = f"src{place}"
            if halves:
                operand = self._number(number_of(one, name, of, self._program.literals))
            else:
                operand = self._number(one.fields[name])
            operands.append(operand)
            for part, pick, flips in zip(parts, picks(one, place), ("neg", "neg_hi"), strict=True):
                flip = sign if one[flips] >> place & 1 and kind[0] == "f" else 0
                part += [16 * pick if halves else operand.register + pick, flip]
        if moves:
            raise _UncoveredError
        both = [part + [0] * (6 - len(part)) for part in parts]
        record = Record(RUN_PACKED, _VECTOR_OPS[one.name], operands)
        record.x = [len(operands), 0, *both[0], *both[1]]
        record.dst, record.result = self.row(one["vdst"]), _HALF if halves else _PAIR
        return record

    def _mix(self, one: Instruction) -> Record:
        high_bits = one["opsel_hi"] | one["opsel_hi2"] << 2
        record = Record(RUN_MIX, dst=self.row(one["vdst"]), clamp=one["clmp"])
        for place in range(3):
            half = high_bits >> place & 1
            kind = "f16" if half else "f32"
            number = number_of(one, f"src{place}", kind, self._program.literals)
            record.operands.append(self._number(number))
            absolute, negative = one["neg_hi"] >> place & 1, one["neg"] >> place & 1
            keep, flip = 0x7FFFFFFF if absolute else 0xFFFFFFFF, 0x80000000 * negative
            record.x += [half, 16 * (one["opsel"] >> place & 1), keep, flip]
        record.result = _WHOLE if one.name == "V_MAD_MIX_F32" else _HALF
        record.high = int(one.name == "V_MAD_MIXHI_F16")
        return record

    def _dot(self, one: Instruction) -> Record:
        kinds = ("u32", "u32", "f32")
        numbers = [
            number_of(one, f"src{place}", kind, self._program.literals)
            for place, kind in enumerate(kinds)
        ]
        operands = [self._number(number) for number in numbers]
        x = [int(one.name.endswith("BF16"))]
        return Record(RUN_DOT, operands=operands, dst=self.row(one["vdst"]), x=x)

    def _matrix(self, one: Instruction) -> Record:
        found = NAME.match(one.name)
        assert found
        rows, depth, kind = int(found[2]), int(found[4]), found[6]
        if kind not in ELEMENTS:  # F8F6F4, whose formats are operands
            raise _UncoveredError
        other = (found[7] or kind).strip("_")
        a = one["src0"] + (AGPRS - VGPRS) * (one["acc"] & 1)
        b = one["src1"] + (AGPRS - VGPRS) * (one["acc"] >> 1)
        d = one["vdst"] + (AGPRS - VGPRS) * one["acc_cd"]
        c, bits = -1, 0
        if one["src2"] < VGPRS:
            number = number_of(one, "src2", "f32", self._program.literals)
            bits = self._number(number).value
        else:
            c = self.row(one["src2"] + (AGPRS - VGPRS) * one["acc_cd"])
        registers = depth // (64 // rows) // ELEMENTS[kind]
        results = rows * rows // 64
        ends = self.row(a) + registers, self.row(b) + registers, self.row(d) + results, c + results
        if max(ends) > self._layout.vgprs:
            raise _UncoveredError
        x = [self.row(a), self.row(b), c, _MATRICES[kind], _MATRICES[other], rows, depth, bits]
        return Record(RUN_MATRIX, dst=self.row(d), x=x)

    # Lanes

    def _readlane(self, one: Instruction) -> Record:
        first = one.name == "V_READFIRSTLANE_B32"
        names = ("src0",) if first else ("src0", "src1")
        operands = [self._number(number_of(one, n, "u32", self._program.literals)) for n in names]
        if not first and operands[1].kind == _VECTOR32:
            raise _UncoveredError
        dst = one["vdst"] - (VGPRS if one["vdst"] >= VGPRS else 0)
        if dst >= SGPRS:
            raise _UncoveredError
        return Record(RUN_READLANE, operands=operands, dst=dst, x=[int(first)])

    def _writelane(self, one: Instruction) -> Record:
        numbers = [number_of(one, n, "u32", self._program.literals) for n in ("src0", "src1")]
        operands = [self._number(number) for number in numbers]
        if any(operand.kind == _VECTOR32 for operand in operands):
            raise _UncoveredError
        return Record(RUN_WRITELANE, operands=operands, dst=self.row(one["vdst"]))

    def _swap(self, one: Instruction) -> Record:
        source = self._number(number_of(one, "src0", "u32", self._program.literals))
        if source.kind != _VECTOR32:
            raise _UncoveredError
        distance = 16 if "16" in one.name else 32
        return Record(RUN_SWAP, operands=[source], dst=self.row(one["vdst"]), x=[distance])

    def _accvgpr(self, one: Instruction) -> Record:
        number = number_of(one, "src0", "u32", self._program.literals)
        if one.name != "V_ACCVGPR_WRITE":
            number += AGPRS - VGPRS
        d = one["vdst"] + (0 if one.name == "V_ACCVGPR_READ" else AGPRS - VGPRS)
        op = _VECTOR_OPS["V_MOV_B32"]
        record = Record(RUN_VECTOR, op, [self._number(number)], self.row(d), _WHOLE)
        record.x = [1, 0, 0]
        return record

    def _permute(self, one: Instruction) -> Record:
        operands = [self._number(one["addr"]), self._number(one["data0"])]
        offset = one["offset0"] | one["offset1"] << 8
        x = [int(one.name == "DS_PERMUTE_B32"), offset]
        return Record(RUN_PERMUTE, operands=operands, dst=self.row(one["vdst"]), x=x)

    def _swizzle(self, one: Instruction) -> Record:
        offset = one["offset0"] | one["offset1"] << 8
        lane = np.arange(64)
        if offset & 0x8000:
            source = lane // 4 * 4 + (offset >> 2 * (lane % 4) & 3)
        else:
            both = (lane % 32 & offset & 31 | offset >> 5 & 31) ^ offset >> 10 & 31
            source = lane // 32 * 32 + both
        self.dpp.append((source, _ALL, _ALL, 0))
        operands, dpp = [self._number(one["addr"])], len(self.dpp)
        return Record(RUN_SWIZZLE, operands=operands, dst=self.row(one["vdst"]), dpp=dpp)

    def _getpc(self, one: Instruction) -> Record:
        if one["sdst"] >= EXEC:
            raise _UncoveredError
        return Record(RUN_GETPC, dst=one["sdst"], x=[one.pc + one.size])

    # Memory

    def _place(self, one: Instruction, words: int, offset: int | None = None) -> Record:
        """Return a record with the addresses of an access: space, offset and registers."""
        space = one.name.partition("_")[0]
        record = Record(RUN_MEMORY)
        saddr = one["saddr"] & 0x7F
        if space == "DS":
            if offset is None:
                offset = one["offset0"] | one["offset1"] << 8
            record.x = [_LOCAL, offset, self._vgpr(one["addr"]), -1, -1, -1, words]
        elif space == "BUFFER":
            record.operands = [
                self._number(number_of(one, "soffset", "u32", self._program.literals))
            ]
            number = one["vaddr"]
            index = self._vgpr(number) if one["idxen"] else -1
            vector = self._vgpr(number + one["idxen"]) if one["offen"] else -1
            record.x = [_BUFFER, one["offset"], 0, one["srsrc"], index, vector, words]
        elif space == "SCRATCH":
            address = self._vgpr(one["addr"]) if one["sve"] else -1
            scalar = saddr if saddr != OFF else -1
            record.x = [_SCRATCH, signed_of(one["offset"], 13), address, scalar, -1, -1, words]
        else:
            flat = one.form == "FLAT"
            kind = _FLAT if flat else _GLOBAL if saddr == OFF else _GLOBAL_SCALAR
            moved = one["offset"] if flat else signed_of(one["offset"], 13)
            record.x = [kind, moved, self._vgpr(one["addr"]), saddr, -1, -1, words]
        return record

    def _vgpr(self, number: int) -> int:
        if number < VGPRS:
            raise _UncoveredError
        return self.row(number)

    def _access(self, one: Instruction) -> Record:
        found = ACCESS.match(one.name)
        assert found
        space, direction, to_lds, kind, half, high = found.groups()
        size = SIZES[kind]
        record = self._place(one, -(-size // 4))
        loads = direction in ("LOAD", "READ")
        stored = {"BUFFER": "vdata", "DS": "data0"}.get(space, "data")
        if to_lds or (one["lds"] and space != "DS"):
            offset = one["offset"] if one.form == "MUBUF" else signed_of(one["offset"], 13)
            record.x += [_TO_LDS, 0, size, 0, 0, 0, offset]
            return record
        data = self.row(data_register(one, "vdst" if loads and space != "BUFFER" else stored))
        what = (_LOAD if loads else _STORE) + (2 if size < 4 else 0)
        record.x += [what, data, size, int(kind in SIGNED), int(bool(half)), int(bool(high)), 0]
        return record

    def _two(self, one: Instruction) -> Record:
        words = 2 if one.name.endswith("B64") else 1
        step = 4 * words * (64 if "ST64" in one.name else 1)
        record = self._place(one, words, one["offset0"] * step)
        record.handler = RUN_TWO
        loads = "READ" in one.name
        names = ("vdst", "vdst") if loads else ("data0", "data1")
        first, second = (self.row(data_register(one, name)) for name in names)
        record.x += [int(loads), first, second, one["offset1"] * step]
        return record

    def _transposed(self, one: Instruction) -> Record:
        record = self._place(one, 2)
        record.handler = RUN_TRANSPOSED
        record.x += [0, self.row(data_register(one, "vdst"))]
        return record

    def _scalar_memory(self, one: Instruction) -> Record:
        found = SCALAR_LOAD.match(one.name)
        assert found
        raw = one["offset"] if one["imm"] else 0
        register = one["soffset"] if one["soffset_en"] else -1
        if not one["imm"] and register < 0:
            register = one["offset"] & 0x7F
        words = int(found[2] or 1)
        offset = signed_of(raw, 21)
        if one["sdata"] + words > SGPRS or one["sbase"] % 2:
            raise _UncoveredError
        x = [one["sbase"], one["sdata"], words, int(bool(found[1])), offset, register]
        return Record(RUN_SCALAR_MEMORY, x=x)

    def _atomic(self, one: Instruction) -> Record:
        found = ATOMIC.match(one.name)
        assert found
        space = one.name.partition("_")[0]
        name = found[1] or LDS_UPDATES[f"{found[2]}_{found[4]}"]
        words = np.dtype(UPDATES[name][0]).itemsize // 4
        record = self._place(one, words)
        record.handler = RUN_ATOMIC
        source = data_register(one, {"BUFFER": "vdata", "DS": "data0"}.get(space, "data"))
        target = source if space == "BUFFER" else data_register(one, "vdst")
        returns = bool(found[3] if space == "DS" else one["sc0"])
        target = self.row(target) if returns else 0
        record.x += [_UPDATE_OPS[name], self.row(source), target, int(returns)]
        return record


_BY_NAME: dict[str, Any] = {
    **dict.fromkeys(("V_READFIRSTLANE_B32", "V_READLANE_B32"), _Encoder._readlane),
    "V_WRITELANE_B32": _Encoder._writelane,
    **dict.fromkeys(("V_PERMLANE16_SWAP_B32", "V_PERMLANE32_SWAP_B32"), _Encoder._swap),
    **dict.fromkeys(("V_ACCVGPR_READ", "V_ACCVGPR_WRITE", "V_ACCVGPR_MOV_B32"), _Encoder._accvgpr),
    **dict.fromkeys(("DS_BPERMUTE_B32", "DS_PERMUTE_B32"), _Encoder._permute),
    "DS_SWIZZLE_B32": _Encoder._swizzle,
    "S_GETPC_B64": _Encoder._getpc,
    "DS_READ_B64_TR_B16": _Encoder._transposed,
    **dict.fromkeys((f"DS_{name}" for name in PAIRS), _Encoder._two),
    **{name: _Encoder._mix if "MIX" in name else _Encoder._dot for name in MIXED},
    **{
        f"S_{buffer}LOAD_DWORD{count}": _Encoder._scalar_memory
        for buffer in ("", "BUFFER_")
        for count in ("", "X2", "X4", "X8", "X16")
    },
}
