"""Cases for what the vendor's pseudocode does not say in a form that can be run: by operation."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from qola.emulate import program
from qola.emulate.arrays import U8, U32, U64, Array
from qola.emulate.buffers import BUFFERS
from qola.emulate.control import BRANCHES, ENDS, NOTHING
from qola.emulate.decode import pseudocode
from qola.emulate.float8 import FORMATS
from qola.emulate.lds import LDS
from qola.emulate.matrix import supported
from qola.emulate.memory import AddressMap
from qola.emulate.operands import SDWA, Literals
from qola.emulate.scalar_memory import SCALAR_MEMORY
from qola.reference.formats import BF8, BF8_FNUZ, FP8, FP8_FNUZ, Format, decoded, encoded
from tests.emulate.machines import instruction, random_bits, run, waves

Case = Callable[[str], None]
CASES: dict[str, Case] = {}
LANES = np.arange(64)
OFF = 127


def names() -> set[str]:
    """Operations that have a case."""
    return set(CASES)


def case(covered: Iterable[str]) -> Callable[[Case], Case]:
    """Enter the function below as the case of some operations; it is given the name of each."""

    def enter(function: Case) -> Case:
        CASES.update(dict.fromkeys(covered, function))
        return function

    return enter


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def f32(*values: float) -> Array:
    return np.array(values, np.float32).view(U32)


def lanes_of(values: Iterable[int | float], kind: type[np.generic] = np.uint32) -> Array:
    """The first lanes' values of a register; others are 0."""
    given = np.array(list(values), kind)
    row = np.zeros((1, 64), kind)
    row[0, : len(given)] = given
    return row.view(U32)


def unary(name: str, inputs: Iterable[float], outputs: Iterable[float], kind: type) -> None:
    given = list(inputs)
    wanted: Array = np.array(list(outputs), kind)
    w = run(
        instruction(name, "VOP1", {"src0": 256, "vdst": 258}), registers=lanes_of(given, kind)[None]
    )
    found = w.v[2, 0].view(kind)[: len(wanted)]
    np.testing.assert_allclose(found, wanted, rtol=2e-3 if kind == np.float16 else 1e-6, atol=1e-7)


@case(["V_SIN_F32"])
def _sin(name: str) -> None:
    unary(name, [0.0, 0.25, 0.5, 0.75, 1.25], [0.0, 1.0, 0.0, -1.0, 1.0], np.float32)


@case(["V_COS_F32"])
def _cos(name: str) -> None:
    unary(name, [0.0, 0.25, 0.5, 1.0], [1.0, 0.0, -1.0, 1.0], np.float32)


@case(["V_RCP_F16", "V_EXP_F16"])
def _f16(name: str) -> None:
    values = np.array([1.0, 2.0, -0.5, 3.0], np.float16)
    wanted = 1 / values if "RCP" in name else np.exp2(values.astype(float))
    registers = lanes_of(values.view(np.uint16).astype(int))[None]
    w = run(instruction(name, "VOP1", {"src0": 256, "vdst": 258}), registers=registers)
    found = w.v[2, 0, :4].astype(np.uint16).view(np.float16)
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


@case(["V_FMAC_F16"])
def _fmac_f16(name: str) -> None:
    def half(x: float) -> int:
        return int(np.array(x, np.float16).view(np.uint16))

    registers = np.stack(
        [lanes_of([half(2)]), lanes_of([half(3)]), lanes_of([half(0.5) | 7 << 16])]
    )
    w = run(
        instruction(name, "VOP2", {"src0": 256, "vsrc1": 257, "vdst": 258}), registers=registers
    )
    # The other half is kept.
    assert w.v[2, 0, 0] == half(6.5) | 7 << 16


@case(["V_LDEXP_F32"])
def _ldexp(name: str) -> None:
    registers = np.stack(
        [lanes_of([1.5, 0.0, 3.0], np.float32), lanes_of([3, 2**31 - 1, -200 % 2**32])]
    )
    w = run(instruction(name, "VOP3", {"src0": 256, "src1": 257, "vdst": 258}), registers=registers)
    assert list(w.v[2, 0, :3].view(np.float32)) == [12.0, 0.0, 0.0]


@case(["V_LDEXP_F64"])
def _ldexp64(name: str) -> None:
    bits = np.array([1.5]).view(U64)[0]
    registers = np.stack(
        [lanes_of([bits & U64(0xFFFFFFFF)]), lanes_of([bits >> U64(32)]), lanes_of([4])]
    )
    w = run(instruction(name, "VOP3", {"src0": 256, "src1": 258, "vdst": 260}), registers=registers)
    assert (int(w.v[4, 0, 0]) | int(w.v[5, 0, 0]) << 32) == int(np.array([24.0]).view(U64)[0])


@case(["V_FREXP_EXP_I32_F32"])
def _frexp(name: str) -> None:
    given = lanes_of([0.0, 1.0, 0.75, 1e-40, np.inf], np.float32)
    w = run(instruction(name, "VOP1", {"src0": 256, "vdst": 258}), registers=given[None])
    assert list(w.v[2, 0, :5].view(np.int32)) == [0, 1, 0, -132, 0]


@case(["V_CVT_PKRTZ_F16_F32"])
def _pkrtz(name: str) -> None:
    given = lanes_of([1.0009765, 70000.0, -1.0009765, np.inf, 1e-9], np.float32)
    w = run(
        instruction(name, "VOP3", {"src0": 256, "src1": 256, "vdst": 258}), registers=given[None]
    )
    low = (w.v[2, 0, :5] & U32(0xFFFF)).astype(np.uint16).view(np.float16)
    assert list(low) == [1.0, 65504.0, -1.0, np.inf, 0.0]
    assert ((w.v[2] >> U32(16)) == (w.v[2] & U32(0xFFFF))).all()


@case(["V_SAD_U32"])
def _sad(name: str) -> None:
    registers = np.stack([lanes_of([5, 2]), lanes_of([3, 9]), lanes_of([10, 1])])
    fields = {"src0": 256, "src1": 257, "src2": 258, "vdst": 259}
    assert list(run(instruction(name, "VOP3", fields), registers=registers).v[3, 0, :2]) == [12, 8]


@case(["V_SAD_U16"])
def _sad_u16(name: str) -> None:
    registers = np.stack([lanes_of([0x00050002]), lanes_of([0x00030009]), lanes_of([10])])
    fields = {"src0": 256, "src1": 257, "src2": 258, "vdst": 259}
    assert run(instruction(name, "VOP3", fields), registers=registers).v[3, 0, 0] == 2 + 7 + 10


@case(["V_PERM_B32"])
def _perm(name: str) -> None:
    high, low = 0x8899AABB, 0x44D566F7
    selects = [0x03020100, 0x07060504, 0x0C0D0800, 0x0B0A0908, 0x04FF0301]
    # 8 to 11 spread the signs of bytes 1, 3, 5 and 7.
    wanted = [low, high, 0x00FF00F7, 0xFFFF0000, 0xBBFF44 << 8 | 0x66]
    registers = np.stack([lanes_of([high] * 5), lanes_of([low] * 5), lanes_of(selects)])
    fields = {"src0": 256, "src1": 257, "src2": 258, "vdst": 259}
    assert list(run(instruction(name, "VOP3", fields), registers=registers).v[3, 0, :5]) == wanted


@case(["V_BITOP3_B32", "V_BITOP3_B16"])
def _bitop3(name: str) -> None:
    a, b, c = 0xF0F0, 0xCCCC, 0xAAAA
    registers = np.stack([lanes_of([value]) for value in (a, b, c)])
    for table in (0xCA, 0x80, 0x01, 0x96):
        fields = {"src0": 256, "src1": 257, "src2": 258, "vdst": 259, "opsel": 0, "clmp": 0}
        fields |= {"omod": table >> 6, "abs": table >> 3 & 7, "neg": table & 7}
        found = int(run(instruction(name, "VOP3", fields), registers=registers).v[3, 0, 0])
        for bit in range(16):
            index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1
            assert found >> bit & 1 == table >> index & 1, (table, bit)


@case([f"V_CMP{x}_CLASS_{t}" for x in ("", "X") for t in ("F16", "F32", "F64")])
def _class(name: str) -> None:
    kind: Any = {"F16": np.float16, "F32": np.float32, "F64": np.float64}[name[-3:]]
    tiny = np.finfo(kind).smallest_subnormal
    values = np.array([np.nan, -np.inf, -1.5, -tiny, -0.0, 0.0, tiny, 1.5, np.inf], kind)
    size = np.dtype(kind).itemsize
    raw = values.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[size]).astype(U64)
    for number in range(len(values)):
        registers = np.stack(
            [
                lanes_of(raw & U64(0xFFFFFFFF)),
                lanes_of(raw >> U64(32)),
                lanes_of([1 << number + 1] * 9),
            ]
        )
        fields = {"src0": 256, "src1": 258, "vdst": 20}
        w = run(instruction(name, "VOP3_SDST", fields), registers=registers)
        assert list(np.flatnonzero(w.lanes(20)[0])) == [number]
        assert (list(np.flatnonzero(w.exec[0])) == [number]) is name.startswith("V_CMPX")


@case([f"V_DIV_{step}_{kind}" for step in ("SCALE", "FMAS") for kind in ("F32", "F64")])
def _division(name: str) -> None:
    """The whole division, as compilers write it, of numbers that need scaling and of others."""
    kind, form = (np.float32, "F32") if name.endswith("F32") else (np.float64, "F64")
    pairs = [
        (1.0, 3.0),
        (-7.0, 2.5),
        (1e-30, 3e-5),
        (3e20, 2e-10),
        (0.0, 5.0),
        (5.0, 0.0),
        (1.0, np.inf),
    ]
    n, d = (np.array([pair[i] for pair in pairs], kind) for i in range(2))
    step = 2 if kind == np.float64 else 1
    registers = np.zeros((40, 1, 64), U32)

    def put(number: int, values: Array) -> None:
        raw = values.view(U64 if step == 2 else U32).astype(U64)
        registers[number, 0, : len(values)] = raw.astype(U32)
        if step == 2:
            registers[number + 1, 0, : len(values)] = (raw >> U64(32)).astype(U32)

    put(0, n)
    put(2, d)
    w = waves(registers=registers)

    def do(op: str, dst: int, *sources: int, encoding: str = "VOP3", neg: int = 0) -> None:
        fields = {f"src{i}": 256 + s for i, s in enumerate(sources)} | {"vdst": 256 + dst}
        fields |= {"sdst": 106, "neg": neg}
        run(instruction(op, encoding, fields), w)

    one = np.zeros((1, 64), kind) + 1
    raw = one.view(U64 if step == 2 else U32).astype(U64)
    w.v[4], w.v[5] = raw.astype(U32), (raw >> U64(32)).astype(U32)
    do(f"V_DIV_SCALE_{form}", 6, 2, 2, 0, encoding="VOP3SD")
    do(f"V_DIV_SCALE_{form}", 8, 0, 2, 0, encoding="VOP3SD")
    do(f"V_RCP_{form}", 10, 6)
    for _ in range(2):
        do(f"V_FMA_{form}", 12, 6, 10, 4, neg=1)
        do(f"V_FMA_{form}", 10, 12, 10, 10)
    do(f"V_MUL_{form}", 14, 8, 10)
    do(f"V_FMA_{form}", 16, 6, 14, 8, neg=1)
    do(f"V_DIV_FMAS_{form}", 18, 16, 10, 14)
    do(f"V_DIV_FIXUP_{form}", 20, 18, 2, 0)
    raw = w.v[20, 0].astype(U64) | (w.v[21, 0].astype(U64) << U64(32) if step == 2 else U64(0))
    found = raw.astype(U64 if step == 2 else U32).view(kind)[: len(pairs)]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, np.divide(n, d), rtol=3 * np.finfo(kind).eps)


@case(["S_BITSET0_B32", "S_BITSET1_B32"])
def _bitset(name: str) -> None:
    scalars = np.zeros(128, U32)
    scalars[0], scalars[4] = 5, 0xFF
    w = run(instruction(name, "SOP1", {"ssrc0": 0, "sdst": 4}), scalars=scalars)
    assert w.s[0, 4] == (0xDF if "SET0" in name else 0xFF)


@case(["V_PK_MOV_B32"])
def _pk_mov(name: str) -> None:
    registers = np.stack([lanes_of([value]) for value in (1, 2, 3, 4)])
    fields = {"src0": 256, "src1": 258, "vdst": 260, "opsel_hi": 3, "opsel_hi2": 1}
    for opsel, wanted in ((0, [1, 3]), (1, [2, 3]), (2, [1, 4]), (3, [2, 4])):
        one = instruction(name, "VOP3P", fields | {"opsel": opsel})
        assert list(run(one, registers=registers).v[4:6, 0, 0]) == wanted


@case(["V_MAD_MIX_F32", "V_MAD_MIXLO_F16", "V_MAD_MIXHI_F16"])
def _mix(name: str) -> None:
    halves = int(np.array([2.0, 3.0], np.float16).view(U32)[0])
    registers = np.stack(
        [
            lanes_of([halves]),
            lanes_of([10.0], np.float32),
            lanes_of([0.5], np.float32),
            lanes_of([7 << 16 | 9]),
        ]
    )
    # The upper half of the first operand times an f32, plus an f32 whose sign is turned.
    fields = {"src0": 256, "src1": 257, "src2": 258, "vdst": 259, "opsel": 1, "opsel_hi": 1}
    fields |= {"opsel_hi2": 0, "neg": 4, "neg_hi": 0, "clmp": 0}
    found = int(run(instruction(name, "VOP3P", fields), registers=registers).v[3, 0, 0])
    half = int(np.array(29.5, np.float16).view(np.uint16))
    wanted = {
        "V_MAD_MIX_F32": int(f32(29.5)[0]),
        "V_MAD_MIXLO_F16": 7 << 16 | half,
        "V_MAD_MIXHI_F16": half << 16 | 9,
    }
    assert found == wanted[name]


@case(["V_DOT2_F32_F16", "V_DOT2_F32_BF16"])
def _dot2(name: str) -> None:
    values = np.array([[1.5, -2.0], [4.0, 0.25]], np.float32)
    if "BF16" in name:
        raw = [int(v[0]) >> 16 | int(v[1]) & 0xFFFF0000 for v in values.view(U32)]
    else:
        raw = [int(v.astype(np.float16).view(U32)[0]) for v in values]
    registers = np.stack([lanes_of([raw[0]]), lanes_of([raw[1]]), lanes_of([10.0], np.float32)])
    fields = {"src0": 256, "src1": 257, "src2": 258, "vdst": 259, "opsel": 0, "opsel_hi": 3}
    w = run(instruction(name, "VOP3P", fields), registers=registers)
    assert w.v[3, 0, 0].view(np.float32) == 1.5 * 4.0 - 2.0 * 0.25 + 10.0


# ---------------------------------------------------------------------------------------------
# Across lanes


@case(["V_NOP", *NOTHING])
def _nothing(name: str) -> None:
    literals = Literals()
    form = "VOP1" if name == "V_NOP" else "SOPP"
    step = program.bind(instruction(name, form, {"simm16": 0}), literals)
    w = waves(registers=random_bits(rng(), "u32", (8, 1, 64)).astype(U32))
    before = w.v.copy(), w.s.copy()
    if step is not None:
        step(w)
    assert (w.v == before[0]).all()
    assert (w.s == before[1]).all()


@case(["V_READFIRSTLANE_B32"])
def _readfirstlane(name: str) -> None:
    for active, wanted in ((2**64 - 1, 100), (0b1000, 103), (0, 100)):
        one = instruction(name, "VOP1", {"src0": 256, "vdst": 256 + 9})
        w = run(one, registers=(LANES + 100).astype(U32)[None, None], active=active)
        assert w.s[0, 9] == wanted


@case(["V_READLANE_B32"])
def _readlane(name: str) -> None:
    one = instruction(name, "VOP3", {"src0": 256, "src1": 128 + 5, "vdst": 9})
    assert run(one, registers=(LANES + 100).astype(U32)[None, None]).s[0, 9] == 105


@case(["V_WRITELANE_B32"])
def _writelane(name: str) -> None:
    one = instruction(name, "VOP3", {"src0": 128 + 33, "src1": 128 + 5, "vdst": 256})
    # Whatever EXEC says.
    assert list(run(one, active=0).v[0, 0, 4:7]) == [0, 33, 0]


@case(["V_PERMLANE16_SWAP_B32", "V_PERMLANE32_SWAP_B32"])
def _swap(name: str) -> None:
    distance = 16 if "16" in name else 32
    registers = np.stack([LANES, LANES + 100]).astype(U32)[:, None]
    w = run(instruction(name, "VOP1", {"src0": 256, "vdst": 257}), registers=registers)
    source, target = LANES.copy(), LANES + 100
    for lane in range(64):
        if lane // distance % 2 == 0:
            source[lane], target[lane + distance] = target[lane + distance], source[lane]
    assert (w.v[0, 0] == source).all()
    assert (w.v[1, 0] == target).all()


@case(["V_ACCVGPR_READ", "V_ACCVGPR_WRITE", "V_ACCVGPR_MOV_B32"])
def _accvgpr(name: str) -> None:
    registers = np.zeros((64, 1, 64), U32)
    registers[3], registers[32 + 3] = 5, 6
    w = run(instruction(name, "VOP3P", {"src0": 259, "vdst": 260}), registers=registers)
    place, wanted = {"READ": (4, 6), "WRITE": (36, 5), "B32": (36, 6)}[name.rpartition("_")[2]]
    assert (w.v[place] == wanted).all()


@case(["DS_BPERMUTE_B32", "DS_PERMUTE_B32"])
def _permute(name: str) -> None:
    generator = rng()
    address, active = generator.integers(0, 2**32, 64, np.uint64).astype(U32), 0x0FF0FF00FF00FFF0
    registers = np.stack([address, LANES + 100, LANES * 0 + 7]).astype(U32)[:, None]
    fields = {"addr": 256, "data0": 257, "vdst": 258, "offset0": 8, "offset1": 0}
    w = run(instruction(name, "DS", fields), registers=registers, active=active)
    on = [bool(active >> lane & 1) for lane in range(64)]
    wanted = [0] * 64
    for lane in range(64):
        other = (int(address[lane]) + 8) // 4 % 64
        if "BP" in name and on[other]:
            wanted[lane] = other + 100
        elif "BP" not in name and on[lane]:
            wanted[other] = lane + 100
    assert list(w.v[2, 0]) == [wanted[lane] if on[lane] else 7 for lane in range(64)]


@case(["DS_SWIZZLE_B32"])
def _swizzle(name: str) -> None:
    for offset, wanted in (
        (0x8000 | 0b00011011, LANES // 4 * 4 + 3 - LANES % 4),
        (0x041F, LANES ^ 1),
    ):
        fields = {"addr": 256, "vdst": 258, "offset0": offset & 0xFF, "offset1": offset >> 8}
        w = run(instruction(name, "DS", fields), registers=LANES.astype(U32)[None, None])
        assert (w.v[2, 0] == wanted).all()


# ---------------------------------------------------------------------------------------------
# Matrices, element by element as the layout has them


@case([name for name in pseudocode() if supported(name)])
def _matrix(name: str) -> None:
    words = re.match(r"V_MFMA_F32_(\d+)X\d+X(\d+)_([A-Z0-9]+)(?:_(\w+))?", name)
    assert words
    rows, k = int(words[1]), int(words[2])
    kinds = words[3], words[4] or words[3]
    for fnuz in {False, kinds[0] in FORMATS}:
        _multiplied(name, rows, k, kinds, fnuz)


def _packed(values: Array, kind: str, fnuz: bool) -> Array:
    """Values of a lane as its registers hold them."""
    if kind == "F16":
        return values.astype(np.float16).view(U32)
    if kind == "BF16":
        raw = values.view(U32) >> U32(16)
        return raw[0::2] | raw[1::2] << U32(16)
    if kind in FORMATS:
        return encoded(values, eight_bits(kind, fnuz)).view(U32)
    return values.view(U32)


def _multiplied(name: str, rows: int, k: int, kinds: tuple[str, str], fnuz: bool) -> None:
    generator = rng()
    groups = 64 // rows
    part = k // groups
    a, b = (generator.integers(-8, 9, (rows, k)).astype(np.float32) / 4 for _ in range(2))
    registers = np.zeros((40, 1, 64), U32)
    for base, matrix, kind in ((0, a, kinds[0]), (8, b, kinds[1])):
        if kind == "BF8":
            # Two bits behind the point: 7 is none of its numbers.
            matrix[np.abs(matrix) * 4 == 7] = 0.5
        for lane in range(64):
            own = matrix[lane % rows, lane // rows * part :][:part]
            words = _packed(own, kind, fnuz)
            registers[base : base + len(words), 0, lane] = words
    count = rows * rows // 64
    c = generator.integers(-8, 9, (count, 64)).astype(np.float32)
    registers[16 : 16 + count, 0] = c.view(U32)
    fields = {"src0": 256, "src1": 264, "src2": 272, "vdst": 272}
    # EXEC counts for nothing.
    one = instruction(name, "VOP3P_MFMA", fields)
    w = run(one, registers=registers, active=1, fnuz=fnuz)
    product = a @ b.T
    for register in range(count):
        for lane in range(64):
            # 4 rows a group of lanes, and the next register group below those of all lanes.
            row = register // 4 * 4 * groups + lane // rows * 4 + register % 4
            found = w.v[16 + register, 0, lane].view(np.float32)
            assert found == product[row, lane % rows] + c[register, lane], (register, lane)


# ---------------------------------------------------------------------------------------------
# Floats of 8 bits, held against the reference's


def eight_bits(name: str, fnuz: bool) -> Format:
    return {"FP8": (FP8, FP8_FNUZ), "BF8": (BF8, BF8_FNUZ)}[name][fnuz]


@case(["V_CVT_F32_FP8", "V_CVT_F32_BF8", "V_CVT_PK_F32_FP8", "V_CVT_PK_F32_BF8"])
def _from_eight_bits(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(64, 4)
    for fnuz, select in itertools.product((False, True), range(4)):
        wanted = decoded(codes, eight_bits(name[-3:], fnuz)).astype(np.float32)
        pair = "PK" in name
        fields = {"src0": SDWA, "vsrc0": 256, "vdst": 258, "dst_sel": 6}
        # Bytes are 0 to 3, words 4 and 5.
        fields["src0_sel"] = 4 + select % 2 if pair else select
        one = instruction(name, "VOP1_SDWA", fields)
        w = run(one, registers=codes.view(U32).T[:, None], fnuz=fnuz)
        found = w.v[2:4, 0].view(np.float32)
        first = select % 2 * 2 if pair else select
        np.testing.assert_array_equal(found[0], wanted[:, first])
        if pair:
            np.testing.assert_array_equal(found[1], wanted[:, first + 1])


@case(["V_CVT_PK_FP8_F32", "V_CVT_PK_BF8_F32"])
def _to_eight_bits(name: str) -> None:
    for fnuz, high in itertools.product((False, True), repeat=2):
        to = eight_bits(name[9:12], fnuz)
        every = decoded(np.arange(128), to)
        finite = every[np.isfinite(every)]
        # Each number, what is halfway to the next, and what is just beside that.
        half = (finite[:-1] + finite[1:]) / 2
        values = np.concatenate([finite, half, half * (1 + 2.0**-20), half * (1 - 2.0**-20)])
        values = np.resize(np.concatenate([values, -values]), (9, 2, 64)).astype(np.float32)
        fields = {"src0": 256, "src1": 257, "vdst": 258, "opsel": high << 3}
        for low, other in values:
            registers = np.stack([low.view(U32), other.view(U32), LANES * 0 + 0x12345678])
            one = instruction(name, "VOP3", fields)
            w = run(one, registers=registers.astype(U32)[:, None], fnuz=fnuz)
            pair = encoded(low, to).astype(U32) | encoded(other, to).astype(U32) << U32(8)
            whole = pair << U32(16) | U32(0x5678) if high else pair | U32(0x12340000)
            assert (w.v[2, 0] == whole).all()
        odd = f32(to.largest * 1.5, -to.largest * 1.5, np.inf, np.nan)
        fields["src1"] = 256
        w = run(instruction(name, "VOP3", fields | {"opsel": 0}), registers=_row(odd), fnuz=fnuz)
        found = decoded(w.v[2, 0, :4] & U32(0xFF), to)
        ends = [np.inf, -np.inf, np.inf, np.nan] if to.infinity else [np.nan] * 4
        np.testing.assert_array_equal(found, ends)


def _row(values: Array) -> Array:
    row = np.zeros((1, 1, 64), U32)
    row[0, 0, : len(values)] = values
    return row


# ---------------------------------------------------------------------------------------------
# Memory

_SIZES = {"BYTE": 1, "U8": 1, "I8": 1, "B8": 1, "SHORT": 2, "U16": 2, "I16": 2, "B16": 2}


def _shape(name: str) -> tuple[int, bool, bool, bool]:
    """Bytes of an access, whether it is signed, fills half a register, and the upper one."""
    words = re.search(r"(?:DWORDX?|B)(\d*)(?:_D16)?(?:_HI)?$", name)
    small = re.search(r"_([USI]?)(BYTE|SHORT|8|16)(_D16)?(_HI)?$", name) or re.search(
        r"_(B)(8|16)(_D16)?(_HI)?$", name
    )
    if small:
        size = 1 if small[2] in ("BYTE", "8") else 2
        return size, small[1] in ("S", "I"), bool(small[3]), bool(small[4])
    assert words
    bits = int(words[1] or 1)
    return (
        (bits // 8 if "_B" in name[3:] and name.startswith("DS") else 4 * bits),
        False,
        False,
        False,
    )


def _place(
    name: str, addresses: Array, map_: AddressMap, content: Array
) -> tuple[dict[str, int], Array, Array]:
    """Fields and registers with which an access reaches content at addresses within it."""
    registers, scalars = np.zeros((40, 1, 64), U32), np.zeros(128, U32)
    base = map_.own(content)
    fields = {"offset": 4, "saddr": OFF, "acc": 0, "sc0": 0, "lds": 0}
    if name.startswith("BUFFER"):
        scalars[8:12] = base & 0xFFFFFFFF, base >> 32, content.nbytes, 0x20000
        registers[0] = addresses - 8
        scalars[12] = 4
        fields |= {"srsrc": 8, "soffset": 12, "offen": 1, "idxen": 0, "vaddr": 256}
    elif name.startswith("SCRATCH"):
        registers[0] = addresses - 4
        fields |= {"addr": 256, "sve": 1}
    else:
        full = (addresses + np.int64(base) - 4).astype(U64)
        registers[0], registers[1] = full.astype(U32), (full >> U64(32)).astype(U32)
        fields |= {"addr": 256}
    return fields, registers, scalars


def _form(name: str) -> str:
    space = name.split("_", maxsplit=1)[0]
    return {"BUFFER": "MUBUF"}.get(space, space)


def _read_back(name: str, w: object, content: Array) -> Array:
    return w.machine.scratch.reshape(64, -1) if name.startswith("SCRATCH") else content  # type: ignore[attr-defined]


@case([n for n in BUFFERS if "_LOAD_" in n and "_LDS_" not in n])
def _load(name: str) -> None:
    size, signed, half, high = _shape(name)
    generator, map_ = rng(), AddressMap()
    content = generator.integers(0, 256, 64 * 24, U8)
    scratch = name.startswith("SCRATCH")
    addresses = np.full(64, 16) if scratch else generator.permutation(64) * 16 + 16
    fields, registers, scalars = _place(name, addresses, map_, content)
    registers[6] = 0x5555AAAA
    fields |= {"vdata": 262, "vdst": 262}
    active = 0xFFFF0000FFFFFFFF
    w = waves(registers=registers, scalars=scalars, map_=map_, active=active)
    if scratch:
        w.machine.scratch[:] = np.resize(content, w.machine.scratch.shape)
    run(instruction(name, _form(name), fields), w)
    rows = _read_back(name, w, content)
    for lane in range(64):
        source = rows[lane] if scratch else rows
        raw = bytes(source[addresses[lane] : addresses[lane] + size])
        number = int.from_bytes(raw, "little", signed=signed) & (1 << max(32, 8 * size)) - 1
        if half:
            number &= 0xFFFF
            number = number << 16 | 0xAAAA if high else 0x55550000 | number
        found = sum(int(w.v[6 + word, 0, lane]) << 32 * word for word in range(max(1, size // 4)))
        wanted = number if active >> lane & 1 else 0x5555AAAA
        assert found == wanted, (lane, hex(found), hex(wanted))


@case([n for n in BUFFERS if "_STORE_" in n])
def _store(name: str) -> None:
    size, _, _, high = _shape(name)
    generator, map_ = rng(), AddressMap()
    content = np.zeros(64 * 24, U8)
    scratch = name.startswith("SCRATCH")
    addresses = np.full(64, 16) if scratch else generator.permutation(64) * 16 + 16
    fields, registers, scalars = _place(name, addresses, map_, content)
    registers[6:10, 0] = generator.integers(0, 2**32, (4, 64), U64).astype(U32)
    fields |= {"vdata": 262, "data": 262}
    active = 0xFFFF0000FFFFFFFF
    w = waves(registers=registers, scalars=scalars, map_=map_, active=active)
    run(instruction(name, _form(name), fields), w)
    rows = _read_back(name, w, content)
    for lane in range(64):
        source = rows[lane] if scratch else rows
        found = bytes(source[addresses[lane] : addresses[lane] + size])
        raw = b"".join(struct.pack("<I", int(registers[6 + word, 0, lane])) for word in range(4))
        wanted = raw[2 if high else 0 :][:size] if active >> lane & 1 else bytes(size)
        assert found == wanted, lane


@case([n for n in BUFFERS if "_LDS_" in n])
def _load_lds(name: str) -> None:
    size, *_ = _shape(name)
    map_ = AddressMap()
    content = rng().integers(0, 256, 64 * 24, U8)
    addresses = (63 - LANES) * 16 + 16
    fields, registers, scalars = _place(name, addresses, map_, content)
    scalars[124] = 32
    w = run(
        instruction(name, "GLOBAL", fields),
        registers=registers,
        scalars=scalars,
        map_=map_,
        lds_bytes=2048,
    )
    for lane in range(64):
        start = 32 + 4 + lane * size
        found = bytes(w.machine.lds[start : start + size])
        assert found == bytes(content[addresses[lane] : addresses[lane] + size]), lane


_UPDATES: dict[str, Callable[[int, int], int]] = {
    "SWAP": lambda old, value: value,
    "ADD": lambda old, value: old + value,
    "SUB": lambda old, value: old - value,
    "SMIN": lambda old, value: min(old, value, key=lambda x: x - (x >> 31 << 32)),
    "UMIN": min,
    "SMAX": lambda old, value: max(old, value, key=lambda x: x - (x >> 31 << 32)),
    "UMAX": max,
    "AND": lambda old, value: old & value,
    "OR": lambda old, value: old | value,
    "XOR": lambda old, value: old ^ value,
}


def _as_float(bits: int, kind: type) -> float:
    return float(
        np.array(
            [bits], U64 if kind == np.float64 else U32 if kind == np.float32 else np.uint16
        ).view(kind)[0]
    )


def _updated(kind: str, old: int, value: int) -> int:
    if kind.endswith("F32") or kind.endswith("F64"):
        float_ = np.float32 if kind.endswith("F32") else np.float64
        total = np.array([_as_float(old, float_) + _as_float(value, float_)], float_)
        return int(total.view(U32 if float_ == np.float32 else U64)[0])
    if kind == "PK_ADD_F16":
        pair = [
            np.float16(
                _as_float(old >> at & 0xFFFF, np.float16)
                + _as_float(value >> at & 0xFFFF, np.float16)
            )
            for at in (0, 16)
        ]
        return int(np.array(pair, np.float16).view(U32)[0])
    if kind == "PK_ADD_BF16":
        # Small numbers: every sum is exact.
        parts = []
        for at in (0, 16):
            total_ = np.float32(
                _as_float((old >> at & 0xFFFF) << 16, np.float32)
                + _as_float((value >> at & 0xFFFF) << 16, np.float32)
            )
            parts.append(int(np.array([total_]).view(U32)[0]) >> 16)
        return parts[0] | parts[1] << 16
    return _UPDATES[kind.removesuffix("_X2")](old, value)


@case([n for n in BUFFERS if "_ATOMIC_" in n])
def _atomic(name: str) -> None:
    kind = name.partition("_ATOMIC_")[2]
    size = 8 if kind.endswith(("X2", "F64")) else 4
    generator, map_ = rng(), AddressMap()
    # Four lanes share each address.
    addresses = LANES // 4 * 8 + 16
    content = np.zeros(64 * 24, U8)
    fields, registers, scalars = _place(name, addresses, map_, content)
    if "F" in kind:
        small = generator.integers(0, 8, 64)
        float_ = {"ADD_F32": np.float32, "ADD_F64": np.float64}.get(kind)
        if float_ is not None:
            raw = small.astype(float_).view(U32 if size == 4 else U64).astype(U64)
        elif kind == "PK_ADD_F16":
            raw = np.repeat(small.astype(np.float16), 2).view(U32).astype(U64)
        else:
            raw = (small.astype(np.float32).view(U32) & U32(0xFFFF0000)).astype(U64)
            raw |= raw >> U64(16)
    else:
        raw = generator.integers(0, 2**63, 64, U64) & (U64(2**32 - 1) if size == 4 else U64(2**63))
    registers[6, 0], registers[7, 0] = raw.astype(U32), (raw >> U64(32)).astype(U32)
    fields |= {"vdata": 262, "data": 262, "vdst": 264, "sc0": 1}
    w = run(instruction(name, _form(name), fields), registers=registers, scalars=scalars, map_=map_)
    memory: dict[int, int] = {}
    for lane in range(64):
        place = int(addresses[lane])
        old = memory.get(place, 0)
        first = 6 if name.startswith("BUFFER") else 8
        returned = sum(int(w.v[first + word, 0, lane]) << 32 * word for word in range(size // 4))
        assert returned == old, lane
        memory[place] = _updated(kind, old, int(raw[lane])) & (1 << 8 * size) - 1
    for place, wanted in memory.items():
        assert int.from_bytes(bytes(content[place : place + size]), "little") == wanted


@case(SCALAR_MEMORY)
def _scalar_load(name: str) -> None:
    count = int(re.search(r"(\d*)$", name)[1] or 1)  # type: ignore[index]
    map_ = AddressMap()
    content = rng().integers(0, 2**32, 64, U64).astype(U32)
    base = map_.own(content)
    scalars = np.zeros(128, U32)
    scalars[8:11], scalars[12] = (base & 0xFFFFFFFF, base >> 32, 4 * (4 + count)), 8
    fields = {"sbase": 8, "sdata": 32, "offset": 8, "imm": 1, "soffset_en": 1, "soffset": 12}
    w = run(instruction(name, "SMEM", fields), scalars=scalars, map_=map_)
    assert (w.s[0, 32 : 32 + count] == content[4 : 4 + count]).all()


@case([n for n in LDS if n.startswith("DS_READ_") and "TR" not in n])
def _lds_read(name: str) -> None:
    size, signed, half, high = _shape(name)
    w = waves(
        registers=np.stack([LANES * 16, LANES * 0 + 0x5555AAAA]).astype(U32)[:, None],
        lds_bytes=2048,
    )
    w.machine.lds[:] = rng().integers(0, 256, len(w.machine.lds), U8)
    run(
        instruction(
            name, "DS", {"addr": 256, "vdst": 257, "offset0": 8, "offset1": 1, "acc": 0, "gds": 0}
        ),
        w,
    )
    for lane in range(64):
        start = lane * 16 + 264
        number = int.from_bytes(bytes(w.machine.lds[start : start + size]), "little", signed=signed)
        number &= (1 << max(32, 8 * size)) - 1
        if half:
            number &= 0xFFFF
            number = number << 16 | 0xAAAA if high else 0x55550000 | number
        assert sum(int(w.v[1 + n, 0, lane]) << 32 * n for n in range(max(1, size // 4))) == number


@case([n for n in LDS if n.startswith("DS_WRITE_")])
def _lds_write(name: str) -> None:
    size, _, _, high = _shape(name)
    registers = np.zeros((6, 1, 64), U32)
    registers[0] = LANES * 16
    registers[1:5, 0] = rng().integers(0, 2**32, (4, 64), U64).astype(U32)
    fields = {"addr": 256, "data0": 257, "data1": 0, "offset0": 8, "offset1": 1, "acc": 0, "gds": 0}
    w = run(instruction(name, "DS", fields), registers=registers, lds_bytes=2048)
    for lane in range(64):
        raw = b"".join(struct.pack("<I", int(registers[1 + n, 0, lane])) for n in range(4))
        start = lane * 16 + 264
        assert bytes(w.machine.lds[start : start + size]) == raw[2 if high else 0 :][:size]


@case([n for n in LDS if re.match("DS_(READ|WRITE)2", n)])
def _lds_pair(name: str) -> None:
    words = 2 if name.endswith("B64") else 1
    step = 4 * words * (64 if "ST64" in name else 1)
    registers = np.zeros((12, 1, 64), U32)
    spacing = 4 * words if "ST64" in name else 16 * words
    registers[0] = LANES * spacing
    registers[1:5, 0] = rng().integers(0, 2**32, (4, 64), U64).astype(U32)
    w = waves(registers=registers, lds_bytes=4096)
    fields = {
        "addr": 256,
        "data0": 257,
        "data1": 257 + words,
        "vdst": 257,
        "offset0": 1,
        "offset1": 3,
    }
    if "READ" in name:
        w.machine.lds[:] = rng().integers(0, 256, len(w.machine.lds), U8)
    run(instruction(name, "DS", fields | {"acc": 0, "gds": 0}), w)
    for lane in range(64):
        for pair, offset in enumerate((1, 3)):
            start = lane * spacing + offset * step
            raw = bytes(w.machine.lds[start : start + 4 * words])
            found = [int(w.v[1 + pair * words + n, 0, lane]) for n in range(words)]
            assert list(struct.unpack(f"<{words}I", raw)) == found


@case(["DS_READ_B64_TR_B16"])
def _transposed(name: str) -> None:
    w = waves(registers=(LANES * 8).astype(U32)[None, None], lds_bytes=1024)
    w.machine.lds.view(np.uint16)[:256] = np.arange(256)
    fields = {"addr": 256, "vdst": 258, "offset0": 0, "offset1": 0, "acc": 0, "gds": 0}
    run(instruction(name, "DS", fields), w)
    for lane in range(64):
        halves = np.ascontiguousarray(w.v[2:4, 0, lane]).view(np.uint16)
        # 16 lanes read four rows of 16 values; a lane gets a column.
        assert list(halves) == [lane // 16 * 64 + row * 16 + lane % 16 for row in range(4)]


@case(["DS_ADD_F32"])
def _lds_add(name: str) -> None:
    registers = np.stack([(LANES // 8 * 4).astype(U32), (LANES + 1).astype(np.float32).view(U32)])[
        :, None
    ]
    w = waves(registers=registers)
    w.machine.lds[:] = 0
    run(
        instruction(name, "DS", {"addr": 256, "data0": 257, "offset0": 0, "offset1": 0, "acc": 0}),
        w,
    )
    assert list(w.machine.lds_words.view(np.float32)[:8]) == [
        sum(range(8 * n + 1, 8 * n + 9)) for n in range(8)
    ]


# ---------------------------------------------------------------------------------------------
# Control flow: test_schedule runs programs with these


@case(["S_GETPC_B64"])
def _getpc(name: str) -> None:
    w = waves()
    w.machine.entry = 0x123456789000
    run(instruction(name, "SOP1", {"sdst": 10}), w)
    # After the instruction, which the helper makes 8 bytes long.
    assert int(w.s[0, 10]) | int(w.s[0, 11]) << 32 == 0x123456789008


@case(["S_SETREG_IMM32_B32"])
def _setreg(name: str) -> None:
    # Two bits of the mode from bit 4: f32 denormals, which are always kept.
    one = instruction(name, "SOPK_LIT", {"simm16": 1 << 11 | 4 << 6 | 1}, literal=3)
    assert (run(one).s == waves().s).all()


@case([*BRANCHES, *ENDS])
def _branches(name: str) -> None:
    from tests.emulate import programs  # noqa: PLC0415

    programs.check(name)
