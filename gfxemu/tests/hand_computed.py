"""Expected results, computed by hand, of operations whose pseudocode cannot be run."""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal, getcontext
from typing import Any

import numpy as np
import pytest

from gfxemu.arrays import I64, U8, U32, U64, Array
from gfxemu.encode import OPERATIONS, WAITS_AND_HINTS
from gfxemu.encode_matrix import ELEMENTS, INTEGERS, supported
from gfxemu.encode_memory import BUFFERS, LDS, SCALAR_MEMORY
from gfxemu.faults import EmulationError
from gfxemu.isa import CDNA, RDNA3, RDNA4, Isa
from gfxemu.memory import AddressMap
from gfxemu.operands import SDWA, UnsupportedError
from gfxemu.operations import SCALAR, VECTOR
from gfxemu.program import BRANCHES, ENDS
from gfxemu.registers import EXEC, OFF
from gfxemu.tests.machines import (
    Waves,
    encode,
    instruction,
    make_program,
    put,
    random_bits,
    run,
    run_program,
    take,
    waves,
)
from gfxemu.tests.vendor_pseudocode import pseudocode
from qola_base.formats import BF8, BF8_FNUZ, FP8, FP8_FNUZ, decoded, encoded

Case = Callable[[str], None]
CASES: dict[str, Case] = {}
LANES = np.arange(64)
#: Floats of 8 bits: OCP's and FNUZ.
FORMATS = {"FP8": (FP8, FP8_FNUZ), "BF8": (BF8, BF8_FNUZ)}


def names() -> set[str]:
    """Return the operations that have a case."""
    return set(CASES)


def covered() -> list[str]:
    """Return all emulated operations, sorted."""
    documented = {name for isa in (CDNA, RDNA3, RDNA4) for name in pseudocode(isa.tables)}
    matrix = [name for name in documented if supported(name)]
    return sorted(OPERATIONS | set(matrix))


def case(covered: Iterable[str]) -> Callable[[Case], Case]:
    """Register the decorated function as the case of some operations; it receives the name."""

    def register(function: Case) -> Case:
        CASES.update(dict.fromkeys(covered, function))
        return function

    return register


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def f16(*values: float) -> Array:
    return np.array(values, np.float16).view(np.uint16)


def f32(*values: float) -> Array:
    return np.array(values, np.float32).view(U32)


def f64(*values: float) -> Array:
    return np.array(values).view(U64)


def u32(*values: int) -> Array:
    return np.array([value % 2**32 for value in values], U32)


def run_operation(name: str, *sources: Array, form: str = "VOP3", **fields: int) -> Array:
    """Run an operation on registers 0, 2 and 4; return register 10, a copy of the last operand.

    Args:
        sources: bits of the first lanes; 64-bit values take two registers.
    """
    registers = np.zeros((12, 1, 64), U32)
    for number, bits in enumerate(sources):
        put(registers, 2 * number, bits)
    put(registers, 10, sources[-1])
    all_fields = {"src0": 256, "src1": 258, "vsrc1": 258, "src2": 260, "vdst": 266} | fields
    w = run(instruction(name, form, all_fields), registers=registers)
    return w.v[10:12, 0, : len(sources[0])]


_HALVES = f16(2.5, -2.5, 0.25, 4.0, 1000.5, 3.0)
#: Operands of operations, type of the result, and the result, which is approximate if it is a float
#: of 16 or 32 bits.
COMPUTED: dict[str, tuple[list[Array], Any, list[Any] | Array]] = {
    "V_SIN_F32": ([f32(0.0, 0.25, 0.5, 0.75, 1.25)], np.float32, [0.0, 1.0, 0.0, -1.0, 1.0]),
    "V_COS_F32": ([f32(0.0, 0.25, 0.5, 1.0)], np.float32, [1.0, 0.0, -1.0, 1.0]),
    "V_RCP_F16": ([f16(1.0, 2.0, -0.5, 3.0)], np.float16, [1.0, 0.5, -2.0, 1 / 3]),
    "V_EXP_F16": ([f16(1.0, 2.0, -0.5, 3.0)], np.float16, [2.0, 4.0, 0.5**0.5, 8.0]),
    "V_LDEXP_F32": ([f32(1.5, 0.0, 3.0), u32(3, 2**31 - 1, -200)], *(np.float32, [12.0, 0.0, 0.0])),
    "V_FREXP_EXP_I32_F32": ([f32(0.0, 1.0, 0.75, 1e-40, np.inf)], *(np.int32, [0, 1, 0, -132, 0])),
    "V_FREXP_EXP_I32_F64": ([f64(0.0, 1.0, 0.75, 5e-324, np.inf)], np.int32, [0, 1, 0, -1073, 0]),
    "V_FREXP_EXP_I16_F16": ([f16(0.0, 1.0, 0.75, 6e-8, np.inf)], np.int16, [0, 1, 0, -23, 0]),
    "V_FREXP_MANT_F16": ([f16(0.0, 1.0, 3.0, 6e-8)], np.float16, [0, 0.5, 0.75, 0.5]),
    "V_SAD_U32": ([u32(5, 2), u32(3, 9), u32(10, 1)], U32, [12, 8]),
    "V_SAD_U16": ([u32(0x00050002), u32(0x00030009), u32(10)], U32, [2 + 7 + 10]),
    "V_SAD_U8": ([u32(0x05FF0002), u32(0x03000009), u32(10)], U32, [2 + 255 + 7 + 10]),
    "V_SAD_HI_U8": ([u32(0x05FF0002), u32(0x03000009), u32(10)], U32, [(264 << 16) + 10]),
    # Bytes that are 0 in the second operand do not count.
    "V_MSAD_U8": ([u32(0x05FF0002), u32(0x03000009), u32(10)], U32, [2 + 7 + 10]),
    # Selectors 8 to 11 replicate the signs of bytes 1, 3, 5 and 7.
    "V_PERM_B32": (
        [
            *(u32(0x8899AABB).repeat(5), u32(0x44D566F7).repeat(5)),
            u32(0x03020100, 0x07060504, 0x0C0D0800, 0x0B0A0908, 0x04FF0301),
        ],
        *(U32, [0x44D566F7, 0x8899AABB, 0x00FF00F7, 0xFFFF0000, 0xBBFF4466]),
    ),
    "V_FREXP_MANT_F64": (
        [f64(0.0, 1.0, -3.0, 5e-324, -np.inf)],
        *(np.float64, [0, 0.5, -0.75, 0.5, -np.inf]),
    ),
    "V_LDEXP_F64": ([f64(1.5), u32(4)], np.float64, [24.0]),
    "V_LDEXP_F16": ([f16(1.5, -3.0, 0.001), u32(4, -2, 30)], np.uint16, f16(24.0, -0.75, np.inf)),
    "V_FLOOR_F16": ([_HALVES], np.uint16, f16(2, -3, 0, 4, 1000, 3)),
    "V_CEIL_F16": ([_HALVES], np.uint16, f16(3, -2, 1, 4, 1001, 3)),
    "V_RNDNE_F16": ([_HALVES], np.uint16, f16(2, -2, 0, 4, 1000, 3)),
    "V_RSQ_F16": ([f16(2.5, 0.25, 4.0, 3.0)], np.float16, [2.5**-0.5, 2.0, 0.5, 3**-0.5]),
    "V_CVT_PKRTZ_F16_F32": (
        [f32(1.0009765, 70000.0, -1.0009765, np.inf, 1e-9)] * 2,
        *(U32, np.repeat(f16(1.0, 65504.0, -1.0, np.inf, 0.0), 2).view(U32)),
    ),
    "V_DIV_FIXUP_F16": (
        [
            f16(-1.5, 1.5, np.nan, np.nan, np.nan, np.nan),
            *(f16(2, 2, 7, -0.0, 2, np.inf), f16(3, -3, 0, 5, np.inf, -1)),
        ],
        *(np.uint16, f16(1.5, -1.5, 0, -np.inf, np.inf, -0.0)),
    ),
}


@case(COMPUTED)
def _computed(name: str) -> None:
    sources, kind, wanted = COMPUTED[name]
    found = take(run_operation(name, *sources), 0, kind)
    rough, least = {np.float16: (2e-3, 1e-7), np.float32: (1e-6, 1e-7)}.get(kind, (0, 0))
    np.testing.assert_allclose(found, np.array(wanted, kind), rtol=rough, atol=least)


@case(["V_FMAC_F16"])
def _fmac_f16(name: str) -> None:
    # The other half of the destination is unchanged.
    addend = f16(0.5).astype(U32) | U32(7 << 16)
    found = run_operation(name, f16(2.0), f16(3.0), addend, form="VOP2")
    assert found[0, 0] == int(f16(6.5)[0]) | 7 << 16


@case(["V_MAD_F32", "V_MAC_F32", "V_MADMK_F32", "V_MADAK_F32"])
def _mac(name: str) -> None:
    # The product is rounded: a fused operation would return 2**-24 instead of 0.
    a, b = f32(1.0 + 2**-12, 3.0), f32(1.0 + 2**-12, 2.0)
    addend = f32(-1.0 - 2**-11, 0.5)
    if name in ("V_MAD_F32", "V_MAC_F32"):
        form = "VOP2" if name == "V_MAC_F32" else "VOP3"
        found = run_operation(name, a, b, addend, form=form)[0]
    else:
        literal = int((b if name == "V_MADMK_F32" else addend)[0])
        fields = {"src0": 256, "vsrc1": 258, "vdst": 266, "literal": literal}
        second = addend if name == "V_MADMK_F32" else b
        registers = np.zeros((3, 1, 64), U32)
        registers[0, 0, :2], registers[2, 0, :2] = a, second
        w = run(instruction(name, "VOP2_LIT", fields, literal=literal), registers=registers)
        found = w.v[10, 0, :1]
    assert found.view(np.float32).tolist() == [0.0, 6.5][: len(found)]


@case(["V_BITOP3_B32", "V_BITOP3_B16"])
def _bitop3(name: str) -> None:
    a, b, c = 0xF0F0, 0xCCCC, 0xAAAA
    for table in (0xCA, 0x80, 0x01, 0x96):
        fields = {"omod": table >> 6, "abs": table >> 3 & 7, "neg": table & 7}
        found = int(run_operation(name, u32(a), u32(b), u32(c), form="VOP3", **fields)[0, 0])
        for bit in range(16):
            index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1
            assert found >> bit & 1 == table >> index & 1, (table, bit)


@case([f"V_CMP{x}_CLASS_{t}" for x in ("", "X") for t in ("F16", "F32", "F64")])
def _class(name: str) -> None:
    kind: Any = {"F16": np.float16, "F32": np.float32, "F64": np.float64}[name[-3:]]
    tiny = np.finfo(kind).smallest_subnormal
    values = np.array([np.nan, -np.inf, -1.5, -tiny, -0.0, 0.0, tiny, 1.5, np.inf], kind)
    registers = np.zeros((3, 1, 64), U32)
    put(registers, 0, values)
    for number in range(len(values)):
        registers[2, 0, : len(values)] = 1 << number + 1
        fields = {"src0": 256, "src1": 258, "vdst": 20}
        w = run(instruction(name, "VOP3_SDST", fields), registers=registers)
        assert list(np.flatnonzero(w.lanes(20)[0])) == [number]
        assert (list(np.flatnonzero(w.exec[0])) == [number]) is name.startswith("V_CMPX")


@case([f"V_FRACT_{kind}" for kind in ("F16", "F32", "F64")])
def _fract(name: str) -> None:
    kind: Any = {"F16": np.float16, "F32": np.float32, "F64": np.float64}[name[-3:]]
    tiny = np.finfo(kind).smallest_subnormal
    values = np.array([2.75, -2.75, 3.0, -0.0, -1e-19, -tiny, tiny, np.inf, np.nan], kind)
    found = take(run_operation(name, values), 0, kind)
    # The result is always less than 1, whatever the difference rounds to.
    below_1 = np.nextafter(kind(1), kind(0))
    ends = [0 if kind == np.float16 else below_1, below_1, tiny, np.nan, np.nan]
    np.testing.assert_array_equal(found, np.array([0.75, 0.25, 0, 0, *ends], kind))


@case(["V_TRIG_PREOP_F64"])
def _trig_preop(name: str) -> None:
    pi = "3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280"
    getcontext().prec = 120
    fraction = 2 / Decimal(pi)
    for exponent, segment in itertools.product((1023, 1077, 1080, 1100), range(4)):
        shift = 53 * segment + max(0, exponent - 1077)
        bits = int(fraction * 2 ** (shift + 53)) % 2**53
        angle = np.array([exponent << 52 | 12345], U64)
        found = take(run_operation(name, angle, u32(segment)), 0, np.float64)[0]
        assert found == math.ldexp(bits, -53 - shift), (exponent, segment)
    # Beyond all bits, and with the scale of the largest angles.
    assert not run_operation(name, np.array([2000 << 52], U64), u32(31)).any()


@case([f"V_DIV_{step}_{kind}" for step in ("SCALE", "FMAS", "FIXUP") for kind in ("F32", "F64")])
def _division(name: str) -> None:
    """Run a whole division, as compilers emit it, with and without scaling."""
    kind, form = (np.float32, "F32") if name.endswith("F32") else (np.float64, "F64")
    limits = np.finfo(kind)
    least, tiny, large = limits.smallest_subnormal, limits.tiny, limits.max
    pairs = [(1.0, 3.0), (-7.0, 2.5), (1e-30, 3e-5), (3e20, 2e-10)]
    pairs += [(0.0, 5.0), (5.0, 0.0), (1.0, np.inf)]
    # Quotients that overflow, are denormal (rounded once) or 0, and large and small denominators.
    pairs += [(large, least), (large, tiny), (1.0, least), (tiny, -1.5), (least, 3.0)]
    pairs += [(tiny, large), (least, large), (4.0, large), (large, large), (3 * least, 2 * least)]
    n, d = (np.array([pair[i] for pair in pairs], kind) for i in range(2))
    w = waves()
    for number, values in ((0, n), (2, d), (4, np.ones(64, kind))):
        put(w.v, number, values)

    def do(op: str, dst: int, *sources: int, encoding: str = "VOP3", neg: int = 0) -> None:
        fields = {f"src{i}": 256 + s for i, s in enumerate(sources)} | {"vdst": 256 + dst}
        fields |= {"sdst": 106, "neg": neg}
        run(instruction(op, encoding, fields), w)

    do(f"V_DIV_SCALE_{form}", 6, 2, 2, 0, encoding="VOP3SD")
    do(f"V_DIV_SCALE_{form}", 8, 0, 2, 0, encoding="VOP3SD")
    do(f"V_RCP_{form}", 10, 6)
    for _ in range(2):
        do(f"V_FMA_{form}", 12, 6, 10, 4, neg=1)
        do(f"V_FMA_{form}", 10, 12, 10, 10)
    do(f"V_MUL_{form}", 14, 8, 10)
    for _ in range(1 if form == "F64" else 2):
        do(f"V_FMA_{form}", 16, 6, 14, 8, neg=1)
        do(f"V_FMA_{form}", 14, 16, 10, 14)
    do(f"V_FMA_{form}", 16, 6, 14, 8, neg=1)
    do(f"V_DIV_FMAS_{form}", 18, 16, 10, 14)
    do(f"V_DIV_FIXUP_{form}", 20, 18, 2, 0)
    found = take(w.v, 20, kind)[0, : len(pairs)]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, np.divide(n, d))


@case(["S_BITSET0_B32", "S_BITSET1_B32"])
def _bitset(name: str) -> None:
    scalars = np.zeros(128, U32)
    scalars[0], scalars[4] = 5, 0xFF
    w = run(instruction(name, "SOP1", {"ssrc0": 0, "sdst": 4}), scalars=scalars)
    assert w.s[0, 4] == (0xDF if "SET0" in name else 0xFF)


@case(["V_PK_MOV_B32"])
def _pk_mov(name: str) -> None:
    pairs = np.array([1 | 2 << 32], U64), np.array([3 | 4 << 32], U64)
    for opsel, wanted in ((0, [1, 3]), (1, [2, 3]), (2, [1, 4]), (3, [2, 4])):
        fields = {"opsel": opsel, "opsel_hi": 3, "opsel_hi2": 1}
        assert run_operation(name, *pairs, form="VOP3P", **fields)[:, 0].tolist() == wanted


@case(["V_MAD_MIX_F32", "V_MAD_MIXLO_F16", "V_MAD_MIXHI_F16"])
def _mix(name: str) -> None:
    # The upper half of the first operand times an f32, minus an f32.
    fields = {"opsel": 1, "opsel_hi": 1, "neg": 4}
    sources = f16(2.0, 3.0).view(U32), f32(10.0), f32(0.5)
    found = int(run_operation(name, *sources, form="VOP3P", **fields)[0, 0])
    old, half = int(sources[-1][0]), int(f16(29.5)[0])
    wanted = {
        "V_MAD_MIX_F32": int(f32(29.5)[0]),
        "V_MAD_MIXLO_F16": old & 0xFFFF0000 | half,
        "V_MAD_MIXHI_F16": half << 16 | old & 0xFFFF,
    }
    assert found == wanted[name]


@case([f"V_DOT2{c}_F32_{kind}" for c in ("", "C", "ACC") for kind in ("F16", "BF16")])
def _dot2(name: str) -> None:
    values = [(1.5, -2.0), (4.0, 0.25)]
    if "BF16" in name:
        pairs = [(f32(low) >> U32(16)) | (f32(high) & U32(0xFFFF0000)) for low, high in values]
    else:
        pairs = [f16(*pair).view(U32) for pair in values]
    form = "VOP3P" if name.startswith("V_DOT2_") else "VOP2"
    found = run_operation(name, *pairs, f32(10.0), form=form, opsel=0, opsel_hi=3)
    assert found[0].view(np.float32).tolist() == [1.5 * 4.0 - 2.0 * 0.25 + 10.0]


@case(["V_DOT4_I32_IU8", "V_DOT8_I32_IU4"])
def _dot_of_either_sign(name: str) -> None:
    bits = int(name[-1])
    registers = rng().integers(0, 2**32, (2, 64), U64).astype(U32)
    for neg, clamp in itertools.product(range(4), (0, 1)):
        parts = []
        for place, row in enumerate(registers):
            part = row[:, None].astype(I64) >> np.arange(0, 32, bits) & 2**bits - 1
            signed = neg >> place & 1
            parts.append(np.where(signed & part >> bits - 1, part - 2**bits, part))
        total = (parts[0] * parts[1]).sum(axis=1) + 2**31 - 1000
        total = np.minimum(total, 2**31 - 1) if clamp else total
        fields = {"neg": neg, "clmp": clamp, "opsel_hi": 3}
        addend = np.full(64, 2**31 - 1000, U32)
        found = run_operation(name, *registers, addend, form="VOP3P", **fields)
        assert (found[0] == total.astype(U64).astype(U32)).all()


# ---------------------------------------------------------------------------------------------
# Across lanes


@case(["V_NOP", *WAITS_AND_HINTS])
def _nothing(name: str) -> None:
    form = "VOP1" if name == "V_NOP" else "SOPP"
    registers = random_bits(rng(), "u32", (8, 1, 64)).astype(U32)
    w = run(instruction(name, form, {"simm16": 0}), registers=registers)
    assert (w.v[:8] == registers).all()
    assert (w.s == waves().s).all()


@case(["V_READFIRSTLANE_B32"])
def _readfirstlane(name: str) -> None:
    for active, wanted in ((2**64 - 1, 100), (0b1000, 103), (0, 100)):
        insn = instruction(name, "VOP1", {"src0": 256, "vdst": 256 + 9})
        w = run(insn, registers=(LANES + 100).astype(U32)[None, None], active=active)
        assert w.s[0, 9] == wanted


@case(["V_READLANE_B32"])
def _readlane(name: str) -> None:
    insn = instruction(name, "VOP3", {"src0": 256, "src1": 128 + 5, "vdst": 9})
    assert run(insn, registers=(LANES + 100).astype(U32)[None, None]).s[0, 9] == 105


@case(["V_WRITELANE_B32"])
def _writelane(name: str) -> None:
    insn = instruction(name, "VOP3", {"src0": 128 + 33, "src1": 128 + 5, "vdst": 256})
    # V_WRITELANE ignores EXEC.
    assert list(run(insn, active=0).v[0, 0, 4:7]) == [0, 33, 0]


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
    fields = {"addr": 256, "data0": 257, "vdst": 258, "offset0": 8}
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
# Matrices, element by element in the register layout


@case([name for isa in (CDNA, RDNA3, RDNA4) for name in pseudocode(isa.tables) if supported(name)])
def _matrix(name: str) -> None:
    words = re.match(
        r"V_(?:MFMA|WMMA)_(?:F32|F64|I32)_(\d+)X\d+X(\d+)_([A-Z0-9]+)(?:_(\w+))?", name
    )
    assert words
    rows, k = int(words[1]), int(words[2])
    if words[3] == "F64":
        _check_doubles(name)
        return
    if words[3] == "I8":
        _check_multiplication(name, rows, k, ("I8", "I8"), False, neg=3)
        return
    if words[3] == "F8F6F4":
        # CBSZ and BLGP select the formats of A and B; only gfx950 has this operation.
        for cbsz, blgp in itertools.product((0, 1), repeat=2):
            formats = ("FP8", "BF8")[cbsz], ("FP8", "BF8")[blgp]
            _check_multiplication(name, rows, k, formats, False, cbsz=cbsz, blgp=blgp)
        return
    kinds = words[3], words[4] or words[3]
    if words[3] in INTEGERS:
        for isa, neg in itertools.product((RDNA3, RDNA4), range(4)):
            if name in pseudocode(isa.tables):
                _check_multiplication(name, rows, k, kinds, False, isa, neg=neg)
        return
    if "WMMA" in name:
        for isa in (RDNA3, RDNA4):
            if name in pseudocode(isa.tables):
                _check_multiplication(name, rows, k, kinds, False, isa)
        return
    for fnuz in {False, kinds[0] in FORMATS}:
        _check_multiplication(name, rows, k, kinds, fnuz)


def _check_doubles(name: str) -> None:
    """Rows of a result that follow each other are in the four groups of lanes of two registers."""
    generator = rng()
    a, b = (generator.integers(-8, 9, (16, 4)).astype(np.float64) for _ in range(2))
    c = generator.integers(-8, 9, (4, 64)).astype(np.float64)
    registers = np.zeros((40, 1, 64), U32)
    operands = (a.T.ravel(), b.T.ravel(), *c)
    for number, values in zip((0, 4, 16, 18, 20, 22), operands, strict=True):
        put(registers, number, values)
    for source, addend in ((272, c), (242, np.ones((4, 64)))):
        fields = {"src0": 256, "src1": 260, "src2": source, "vdst": 280}
        w = run(instruction(name, "VOP3P_MFMA", fields), registers=registers, active=1)
        found = np.stack([take(w.v, number, np.float64)[0] for number in range(24, 32, 2)])
        assert (found == (a @ b.T).reshape(4, 64) + addend).all()


def _pack(values: Array, kind: str, fnuz: bool) -> Array:
    """Return the values of a lane packed into 32-bit registers."""
    if kind == "F16":
        return values.astype(np.float16).view(U32)
    if kind == "BF16":
        raw = values.view(U32) >> U32(16)
        return raw[0::2] | raw[1::2] << U32(16)
    if kind in INTEGERS:
        bits = 32 // ELEMENTS[kind]
        codes = (values.astype(I64) & (1 << bits) - 1).reshape(-1, ELEMENTS[kind])
        return (codes << bits * np.arange(ELEMENTS[kind])).sum(axis=1).astype(U32)
    if kind in FORMATS:
        return encoded(values, FORMATS[kind][fnuz]).view(U32)
    return values.view(U32)


def _check_multiplication(
    name: str,
    rows: int,
    k: int,
    kinds: tuple[str, str],
    fnuz: bool,
    isa: Isa = CDNA,
    **formats: int,
) -> None:
    generator = rng()
    lanes = isa.lanes
    groups = lanes // rows
    # Number of consecutive rows in adjacent registers of a lane.
    height = {CDNA: 4, RDNA3: 1, RDNA4: 8}[isa]
    # Every lane of RDNA3 holds all of K.
    part = k if isa is RDNA3 else k // groups
    lows, highs, scale = (-8, -8), (9, 9), 4
    if integers := kinds[0] in INTEGERS:
        half = 1 << 32 // ELEMENTS[kinds[0]] - 1
        # Bit 0 of NEG makes A signed, bit 1 makes B signed.
        first, second = (-half if formats["neg"] >> place & 1 else 0 for place in range(2))
        lows, highs, scale = (first, second), (first + 2 * half, second + 2 * half), 1
    a, b = (
        generator.integers(low, high, (rows, k)).astype(np.float32) / np.float32(scale)
        for low, high in zip(lows, highs, strict=True)
    )
    number: Any = np.int32 if integers else np.float32
    registers = np.zeros((40, 1, lanes), U32)
    for base, matrix, kind in ((0, a, kinds[0]), (8, b, kinds[1])):
        for lane in range(lanes):
            values = matrix[lane % rows, lane // rows * part % k :][:part]
            words = _pack(values, kind, fnuz)
            registers[base : base + len(words), 0, lane] = words
    count = rows * rows // lanes
    c = generator.integers(-8, 9, (count, lanes)).astype(number)
    registers[16 : 16 + count, 0] = c.view(U32)
    fields = {"src0": 256, "src1": 264, "src2": 272, "vdst": 272, **formats}
    # The operation ignores EXEC.
    insn = instruction(name, "VOP3P_MFMA" if isa is CDNA else "VOP3P", fields, isa=isa)
    w = run(insn, registers=registers, active=1, fnuz=fnuz)
    product = a @ b.T
    for register in range(count):
        for lane in range(lanes):
            # Each lane group holds `height` rows; the next registers follow the rows of all groups.
            first = register // height * groups + lane // rows
            row = first * height + register % height
            found = w.v[16 + register, 0, lane].view(number)
            assert found == product[row, lane % rows] + c[register, lane], (register, lane)


# ---------------------------------------------------------------------------------------------
# Floats of 8 bits, compared with the reference's


@case(["V_CVT_F32_FP8", "V_CVT_F32_BF8", "V_CVT_PK_F32_FP8", "V_CVT_PK_F32_BF8"])
def _from_eight_bits(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(64, 4)
    for fnuz, select in itertools.product((False, True), range(4)):
        wanted = decoded(codes, FORMATS[name[-3:]][fnuz]).astype(np.float32)
        pair = "PK" in name
        fields = {"src0": SDWA, "vsrc0": 256, "vdst": 258, "dst_sel": 6}
        # Selectors 0 to 3 are bytes, 4 and 5 are words.
        fields["src0_sel"] = 4 + select % 2 if pair else select
        insn = instruction(name, "VOP1_SDWA", fields)
        w = run(insn, registers=codes.view(U32).T[:, None], fnuz=fnuz)
        found = w.v[2:4, 0].view(np.float32)
        first = select % 2 * 2 if pair else select
        np.testing.assert_array_equal(found[0], wanted[:, first])
        if pair:
            np.testing.assert_array_equal(found[1], wanted[:, first + 1])


@case(["V_CVT_PK_FP8_F32", "V_CVT_PK_BF8_F32"])
def _to_eight_bits(name: str) -> None:
    for fnuz, high in itertools.product((False, True), repeat=2):
        format_ = FORMATS[name[9:12]][fnuz]
        decoded_codes = decoded(np.arange(128), format_)
        finite = decoded_codes[np.isfinite(decoded_codes)]
        # Each number, the midpoint to the next, and numbers next to the midpoint.
        half = (finite[:-1] + finite[1:]) / 2
        values = np.concatenate([finite, half, half * (1 + 2.0**-20), half * (1 - 2.0**-20)])
        values = np.resize(np.concatenate([values, -values]), (9, 2, 64)).astype(np.float32)
        fields = {"src0": 256, "src1": 257, "vdst": 258, "opsel": high << 3}
        for low, other in values:
            registers = np.stack([low.view(U32), other.view(U32), LANES * 0 + 0x12345678])
            insn = instruction(name, "VOP3", fields)
            w = run(insn, registers=registers.astype(U32)[:, None], fnuz=fnuz)
            pair = encoded(low, format_).astype(U32) | encoded(other, format_).astype(U32) << U32(8)
            whole = pair << U32(16) | U32(0x5678) if high else pair | U32(0x12340000)
            assert (w.v[2, 0] == whole).all()
        odd = f32(format_.largest * 1.5, -format_.largest * 1.5, np.inf, np.nan)
        registers = np.zeros((2, 1, 64), U32)
        put(registers, 0, odd)
        fields |= {"src1": 256, "opsel": 0}
        w = run(instruction(name, "VOP3", fields), registers=registers, fnuz=fnuz)
        found = decoded(w.v[2, 0, :4] & U32(0xFF), format_)
        ends = [np.inf, -np.inf, np.inf, np.nan] if format_.infinity else [np.nan] * 4
        np.testing.assert_array_equal(found, ends)


# ---------------------------------------------------------------------------------------------
# Memory


def _shape(name: str) -> tuple[int, bool, bool, bool]:
    """Return the bytes of an access; whether it is signed, half a register, the upper half."""
    small = re.search(r"_([USIB]?)(BYTE|SHORT|8|16)(_D16)?(_HI)?$", name)
    if small:
        size = 1 if small[2] in ("BYTE", "8") else 2
        return size, small[1] in ("S", "I"), bool(small[3]), bool(small[4])
    words = re.search(r"(DWORDX?|B)(\d*)$", name)
    assert words
    size = int(words[2]) // 8 if words[1] == "B" else 4 * int(words[2] or 1)
    return size, False, False, False


#: Active lanes in tests of accesses.
_ACTIVE = 0xFFFF0000FFFFFFFF
_OLD = 0x5555AAAA


class _Access:
    """An access of each lane to a separate block of 16 bytes.

    Attributes:
        content: memory that the lanes access, in bytes.
        addresses: offset into the content for each lane, in bytes.
    """

    def __init__(self, name: str, content: Array, addresses: Array) -> None:
        self.name, self.content, self.addresses = name, content, addresses
        self.space, self.map = name.partition("_")[0], AddressMap()
        self.registers, self.scalars = np.zeros((40, 1, 64), U32), np.zeros(128, U32)
        base = self.map.own(content)
        self.fields = {"offset": 4, "saddr": OFF}
        self.fields |= dict.fromkeys(("vdata", "vdst", "data", "data0"), 262)
        if self.space == "BUFFER":
            self.scalars[8:12] = base & 0xFFFFFFFF, base >> 32, content.nbytes, 0x20000
            self.registers[0] = addresses - 8
            self.scalars[12] = 4
            self.fields |= {"srsrc": 8, "soffset": 12, "offen": 1, "vaddr": 256}
        elif self.space in ("SCRATCH", "DS"):
            self.registers[0] = addresses - 4
            self.fields |= {"addr": 256, "sve": 1, "offset0": 4}
        else:
            put(self.registers, 0, addresses + np.int64(base) - 4)
            self.fields |= {"addr": 256}

    def run(self, active: int = 2**64 - 1) -> Waves:
        """Run the access; copy the content to scratch memory and LDS first."""
        w = waves(
            *(self.registers, self.scalars, active), lds_bytes=self.content.nbytes, map_=self.map
        )
        w.machine.scratch[:] = np.resize(self.content, w.machine.scratch.shape)
        w.machine.lds[: self.content.nbytes] = self.content
        form = {"BUFFER": "MUBUF"}.get(self.space, self.space)
        return run(instruction(self.name, form, self.fields), w)

    def left(self, w: Waves, lane: int, size: int) -> bytes:
        """Return the bytes at a lane's address after the access."""
        rows = w.machine.scratch.reshape(64, -1)
        source = {"SCRATCH": rows[lane], "DS": w.machine.lds}.get(self.space, self.content)
        return bytes(source[self.addresses[lane] : self.addresses[lane] + size])


def _access(name: str, content: Array) -> _Access:
    scratch = name.startswith("SCRATCH")
    addresses = np.full(64, 16) if scratch else rng().permutation(64) * 16 + 16
    return _Access(name, content, addresses)


@case([n for n in (*BUFFERS, *LDS) if re.match(r"[A-Z]+_(LOAD_(?!LDS)|READ_(?!.*TR))", n)])
def _load(name: str) -> None:
    size, signed, half, high = _shape(name)
    access = _access(name, rng().integers(0, 256, 64 * 24, U8))
    access.registers[6] = _OLD
    w = access.run(_ACTIVE)
    for lane in range(64):
        raw = access.left(w, lane, size)
        number = int.from_bytes(raw, "little", signed=signed) & (1 << max(32, 8 * size)) - 1
        if half:
            number &= 0xFFFF
            number = number << 16 | _OLD & 0xFFFF if high else _OLD & 0xFFFF0000 | number
        found = sum(int(w.v[6 + word, 0, lane]) << 32 * word for word in range(max(1, size // 4)))
        assert found == (number if _ACTIVE >> lane & 1 else _OLD), (lane, hex(found), hex(number))


@case([n for n in (*BUFFERS, *LDS) if re.match("[A-Z]+_(STORE|WRITE)_", n)])
def _store(name: str) -> None:
    size, _, _, high = _shape(name)
    access = _access(name, np.zeros(64 * 24, U8))
    access.registers[6:10, 0] = rng().integers(0, 2**32, (4, 64), U64).astype(U32)
    w = access.run(_ACTIVE)
    for lane in range(64):
        raw = np.ascontiguousarray(access.registers[6:10, 0, lane]).tobytes()
        wanted = raw[2 if high else 0 :][:size] if _ACTIVE >> lane & 1 else bytes(size)
        assert access.left(w, lane, size) == wanted, lane


@case([n for n in BUFFERS if "_LDS_" in n])
def _load_lds(name: str) -> None:
    size, *_ = _shape(name)
    access = _Access(name, rng().integers(0, 256, 64 * 24, U8), (63 - LANES) * 16 + 16)
    access.scalars[124] = 32
    w = access.run()
    for lane in range(64):
        start = 32 + 4 + lane * size
        assert bytes(w.machine.lds[start : start + size]) == access.left(w, lane, size), lane


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
    "CMPSWAP": lambda old, value: value,
    "INC": lambda old, value: 0 if old >= value else old + 1,
    "DEC": lambda old, value: value if old == 0 or old > value else old - 1,
    "SMIN_X2": lambda old, value: min(old, value, key=lambda x: x - (x >> 63 << 64)),
    "SMAX_X2": lambda old, value: max(old, value, key=lambda x: x - (x >> 63 << 64)),
}


#: Element types of atomic float additions.
_ADDED = {"ADD_F32": np.float32, "ADD_F64": np.float64, "PK_ADD_F16": np.float16}
#: Of atomic minima and maxima.
_ORDERED = {
    f"{name}_{kind}": (number, function)
    for name, function in (("MIN", np.fmin), ("MAX", np.fmax))
    for kind, number in (("F32", np.float32), ("F64", np.float64))
}


_LDS_ATOMIC = re.compile(
    r"DS_(ADD|SUB|MIN|MAX|AND|OR|XOR|INC|DEC|WRXCHG|CMPST|CMPSTORE)(_RTN)?_([A-Z]\d\d)$"
)


def _kind(name: str) -> str:
    """Return the operation's name in global memory."""
    if "_ATOMIC_" in name:
        return name.partition("_ATOMIC_")[2]
    operation, _, number = _LDS_ATOMIC.fullmatch(name).groups()  # type: ignore[union-attr]
    sign = {"I": "S", "U": "U"}.get(number[0], "") if operation in ("MIN", "MAX") else ""
    operation = {"WRXCHG": "SWAP", "CMPST": "CMPSWAP", "CMPSTORE": "CMPSWAP"}.get(
        operation, operation
    )
    if number[0] == "F":
        return f"{operation}_{number}"
    return sign + operation + ("_X2" if "64" in number else "")


@case([n for n in (*BUFFERS, *LDS) if "_ATOMIC_" in n or _LDS_ATOMIC.fullmatch(n)])
def _atomic(name: str) -> None:
    kind = _kind(name)
    unsigned = U64 if kind.endswith(("X2", "F64")) else U32
    size = np.dtype(unsigned).itemsize
    # Each address is shared by four lanes.
    access = _Access(name, np.zeros(64 * 24, U8), LANES // 4 * 8 + 16)
    small = rng().integers(0, 8, 64)
    if kind == "PK_ADD_BF16":
        high = small.astype(np.float32).view(U32)
        raw = high | high >> U32(16)
    elif kind in _ORDERED:
        numbers = np.array([-2.5, -0.0, 0.0, 1.5, np.nan], _ORDERED[kind][0])
        raw = rng().choice(numbers, 64).view(unsigned)
    elif kind in _ADDED:
        raw = small.astype(_ADDED[kind]).repeat(2 if "PK" in kind else 1).view(unsigned)
    else:
        raw = rng().integers(0, 2**63, 64, U64).astype(unsigned)
    put(access.registers, 6, raw)
    compared = np.zeros(64, U64)
    if compares := kind.startswith("CMPSWAP"):
        raw, compared = small.astype(unsigned) & 3, rng().integers(0, 4, 64, U64)
        put(access.registers, 6, raw)
        access.registers[6 + size // 4, 0] = compared
        if name.startswith("DS"):
            # CDNA has the new number in the second operand, RDNA in the first one.
            access.fields["data1" if "STORE" in name else "data0"] = 262 + size // 4
            access.fields["data0" if "STORE" in name else "data1"] = 262
    returns = "_ATOMIC_" in name or "_RTN_" in name
    access.fields |= {"vdst": 264, "sc0": int(returns)}
    w = access.run()
    memory = dict.fromkeys(access.addresses.tolist(), unsigned(0))
    for lane, place in enumerate(access.addresses.tolist()):
        first = 6 if name.startswith("BUFFER") else 8
        returned = w.v[first : first + size // 4, 0, lane].tobytes()
        assert not returns or returned == memory[place].tobytes(), lane
        if not compares or memory[place] == compared[lane]:
            memory[place] = _updated(kind, memory[place], raw[lane])
    for lane, place in enumerate(access.addresses.tolist()):
        assert access.left(w, lane, size) == memory[place].tobytes()


def _updated(kind: str, old: Any, value: Any) -> Any:
    """Return the new number in memory; sums of bf16 pairs are exact here."""
    if kind == "PK_ADD_BF16":
        halves = [
            (np.array([n]) << U32(16) & U32(0xFFFF0000)).view(np.float32)
            + (np.array([m]) << U32(16) & U32(0xFFFF0000)).view(np.float32)
            for n, m in ((old, value), (old >> U32(16), value >> U32(16)))
        ]
        return halves[1].view(U32)[0] | halves[0].view(U32)[0] >> U32(16)
    if kind in _ORDERED:
        number, function = _ORDERED[kind]
        a, b = (np.array([bits]).view(number) for bits in (old, value))
        if a[0] == b[0] == 0:
            # +0 is more than -0.
            return old & value if kind.startswith("MAX") else old | value
        return function(a, b).view(old.dtype)[0]
    if kind in _ADDED:
        parts = [np.array([number]).view(_ADDED[kind]) for number in (old, value)]
        return (parts[0] + parts[1]).view(old.dtype)[0]
    bits = 8 * old.dtype.itemsize
    update = _UPDATES[kind if kind in _UPDATES else kind.removesuffix("_X2")]
    return old.dtype.type(update(int(old), int(value)) % 2**bits)


@case(SCALAR_MEMORY)
def _scalar_load(name: str) -> None:
    small: dict[str, tuple[Any, Any]] = {
        **{"UBYTE": (np.uint8, U32), "SBYTE": (np.int8, np.int32)},
        **{"USHORT": (np.uint16, U32), "SSHORT": (np.int16, np.int32)},
    }
    if kinds := small.get(name.rpartition("_")[2]):
        _small_scalar_load(name, *kinds)
        return
    count = int(re.search(r"(\d*)$", name)[1] or 1)  # type: ignore[index]
    map_ = AddressMap()
    content = rng().integers(0, 2**32, 64, U64).astype(U32)
    base = map_.own(content)
    scalars = np.zeros(128, U32)
    scalars[8:11], scalars[12] = (base & 0xFFFFFFFF, base >> 32, 4 * (4 + count)), 8
    fields = {"sbase": 8, "sdata": 32, "offset": 8, "imm": 1, "soffset_en": 1, "soffset": 12}
    w = run(instruction(name, "SMEM", fields), scalars=scalars, map_=map_)
    assert (w.s[0, 32 : 32 + count] == content[4 : 4 + count]).all()


def _small_scalar_load(name: str, stored: Any, result: Any) -> None:
    """Load from odd multiples of the size, too: addresses are not rounded to words."""
    map_ = AddressMap()
    content = rng().integers(0, 2**16, 64, np.uint16).view(stored)
    base, size = map_.own(content), content.itemsize
    for place in range(9):
        # The buffer ends after seven elements.
        scalars = np.zeros(128, U32)
        scalars[8:11] = base & 0xFFFFFFFF, base >> 32, 7 * size
        fields = {"sbase": 8, "sdata": 32, "offset": place * size, "imm": 1}
        w = run(instruction(name, "SMEM", fields, isa=RDNA4), scalars=scalars, map_=map_)
        wanted = 0 if "BUFFER" in name and place >= 7 else content[place]
        assert w.s[0, 32].view(result) == wanted, place


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
    run(instruction(name, "DS", fields), w)
    for lane in range(64):
        for pair, offset in enumerate((1, 3)):
            start = lane * spacing + offset * step
            raw = bytes(w.machine.lds[start : start + 4 * words])
            found = [int(w.v[1 + pair * words + n, 0, lane]) for n in range(words)]
            assert list(struct.unpack(f"<{words}I", raw)) == found


@case(["DS_READ_B64_TR_B16", "DS_READ_B64_TR_B8"])
def _transposed(name: str) -> None:
    kind, rows = (U8, 8) if name.endswith("B8") else (np.uint16, 4)
    w = waves(registers=(LANES * 8).astype(U32)[None, None], lds_bytes=1024)
    # 16 lanes read some rows of 16 values; a lane gets a column.
    values = rng().integers(0, 256, (4, rows, 16))
    w.machine.lds.view(kind)[: 64 * rows] = values.ravel()
    run(instruction(name, "DS", {"addr": 256, "vdst": 258}), w)
    for lane in range(64):
        found = np.ascontiguousarray(w.v[2:4, 0, lane]).view(kind)
        assert (found == values[lane // 16, :, lane % 16]).all()


# ---------------------------------------------------------------------------------------------
# Control flow: programs.py has programs with these, too


@case(["S_GETPC_B64"])
def _getpc(name: str) -> None:
    w = waves()
    w.machine.entry = 0x123456789000
    run(instruction(name, "SOP1", {"sdst": 10}), w)
    # The address after the instruction, which is 8 bytes long in this test.
    assert int(w.s[0, 10]) | int(w.s[0, 11]) << 32 == 0x123456789008


@case(["S_TRAP"])
def _trap(name: str) -> None:
    with pytest.raises(EmulationError, match="trap: the kernel ended itself"):
        run(instruction(name, "SOPP", {"simm16": 2}), waves(active=8))
    with pytest.raises(UnsupportedError):
        encode(instruction(name, "SOPP", {"simm16": 3}))


@case(["S_SETREG_IMM32_B32"])
def _setreg(name: str) -> None:
    # Sets bits 4 and 5 of the mode: f32 denormals, which the emulator always supports.
    insn = instruction(name, "SOPK_LIT", {"simm16": 1 << 11 | 4 << 6 | 1}, literal=3)
    assert (run(insn).s == waves().s).all()


@case(["S_GETREG_B32"])
def _getreg_of_mode(name: str) -> None:
    # Bits 4 to 7 of the mode, of a kernel that begins with 0; a place.
    scalars = np.full(128, 5, U32)
    for register in (1, 4, 20):
        fields = {"sdst": 10, "simm16": 3 << 11 | 4 << 6 | register}
        assert run(instruction(name, "SOPK", fields), scalars=scalars).s[0, 10] == 0
    with pytest.raises(UnsupportedError, match="hardware register 3"):
        encode(instruction(name, "SOPK", {"sdst": 10, "simm16": 3}))


@case(["S_MEMTIME", "S_MEMREALTIME", "S_SENDMSG_RTN_B64"])
def _time(name: str) -> None:
    form, field = ("SOP1", "sdst") if "MSG" in name else ("SMEM", "sdata")
    w = waves()
    reads = [instruction(name, form, {field: 10 + 2 * n, "ssrc0": 0x83}) for n in range(2)]
    run_program(make_program(reads), w)
    assert 0 < w.pair(10) < w.pair(12)


@case([*BRANCHES, *ENDS])
def _branches(name: str) -> None:
    from gfxemu.tests import programs  # noqa: PLC0415

    programs.check(name)


@case(["S_ROUND_MODE", "S_BARRIER_SIGNAL", "S_SENDMSG"])
def _signals(name: str) -> None:
    field, good, bad = {
        "S_ROUND_MODE": ("simm16", 0, 1),
        "S_BARRIER_SIGNAL": ("ssrc0", 193, 194),
        "S_SENDMSG": ("simm16", 3, 1),
    }[name]
    before = waves(lanes=32)
    w = run(instruction(name, "SOPP", {field: good}, isa=RDNA4))
    assert (w.s == before.s).all()
    with pytest.raises(UnsupportedError):
        run(instruction(name, "SOPP", {field: bad}, isa=RDNA4))


@case(["S_MIN_F32", "S_MAX_F32"])
def _scalar_extremes(name: str) -> None:
    pairs = [(1.5, -2.0), (-np.inf, 3.0), (np.nan, 4.0), (5.0, np.nan)]
    for a, b in pairs:
        insn = instruction(name, "SOP2", {"ssrc0": 0, "ssrc1": 2, "sdst": 8}, isa=RDNA4)
        scalars = np.zeros(128, U32)
        scalars[0], scalars[2] = f32(a, b)
        wanted = (np.fmin if "MIN" in name else np.fmax)(a, b)
        assert run(insn, scalars=scalars).s[0, 8].view(np.float32) == wanted


@case([n for n in SCALAR if "SAVEEXEC_B32" in n or "WREXEC_B32" in n])
def _save_exec(name: str) -> None:
    logic: dict[str, Callable[[int, int], int]] = {
        **{"AND": lambda a, e: a & e, "OR": lambda a, e: a | e, "XOR": lambda a, e: a ^ e},
        **{"NAND": lambda a, e: ~(a & e), "NOR": lambda a, e: ~(a | e)},
        **{"XNOR": lambda a, e: ~(a ^ e), "ANDN1": lambda a, e: ~a & e},
        **{"ORN1": lambda a, e: ~a | e, "ANDN2": lambda a, e: a & ~e, "ORN2": lambda a, e: a | ~e},
    }
    a, exec_ = 0xF0F03C5A, 0x12345678
    scalars = np.zeros(128, U32)
    # The next register, and the upper half of EXEC, must not change.
    scalars[2:4] = a, 7
    insn = instruction(name, "SOP1", {"ssrc0": 2, "sdst": 8}, isa=RDNA4)
    w = run(insn, scalars=scalars, active=exec_)
    wanted = logic[name.split("_")[1]](a, exec_) % 2**32
    assert w.s[0, EXEC] == wanted
    assert w.s[0, 8] == (wanted if "WREXEC" in name else exec_)
    assert w.s[0, 9] == w.s[0, EXEC + 1] == 0
    assert bool(w.scc[0, 0]) == (wanted != 0)
    assert (w.exec[0] == [wanted >> lane & 1 for lane in range(32)]).all()


def _extreme_of(name: str) -> Any:
    """Return the operation's function on numbers other than NaN, or None."""
    return {
        **{"MAX3": max, "MIN3": min, "MAXIMUM3": max, "MINIMUM3": min},
        **{"MAXIMUM": max, "MINIMUM": min},
        "MED3": lambda a, b, c: sorted((a, b, c))[1],
        **dict.fromkeys(("MAXMIN", "MAXIMUMMINIMUM"), lambda a, b, c: min(max(a, b), c)),
        **dict.fromkeys(("MINMAX", "MINIMUMMAXIMUM"), lambda a, b, c: max(min(a, b), c)),
    }.get(name.split("_")[1])


@case([n for n in (*VECTOR, *SCALAR) if _extreme_of(n)])
def _extremes(name: str) -> None:
    find, kind = _extreme_of(name), name.split("_")[2].lower()
    assert find
    operation = VECTOR.get(name) or SCALAR[name]
    numpy_type: Any = np.dtype(f"{kind[0]}{int(kind[1:]) // 8}")

    def compute(*operands: float) -> Any:
        bits = [np.array([x], numpy_type) for x in operands][: len(operation.inputs)]
        if name in VECTOR:
            found = run_operation(name, *bits)
        else:
            scalars = np.zeros(128, U32)
            for number, raw in enumerate(bits):
                put(scalars[:, None], 2 * number, raw)
            fields = {"ssrc0": 0, "ssrc1": 2, "sdst": 8}
            found = run(instruction(name, "SOP2", fields, isa=RDNA4), scalars=scalars).s.T[8:10]
        return take(found, 0, numpy_type)[0]

    numbers = np.array([[3, 1, 2], [1, 3, 2], [2, 1, 3], [-5, 4, 0], [7, 7, -7]])
    for row in np.abs(numbers) if kind[0] == "u" else numbers:
        assert compute(*row) == find(*row[: len(operation.inputs)]), row
    # MAXIMUM and MINIMUM return a NaN operand; the others return a number.
    if kind[0] == "f":
        found = compute(np.nan, 2.0, 2.0)
        assert np.isnan(found) if "IMUM" in name else found == 2


@case([n for n in VECTOR if n.startswith("V_S_")])
def _scalar_result(name: str) -> None:
    scalars = np.zeros(128, U32)
    scalars[2:3] = f32(0.25)
    insn = instruction(name, "VOP3", {"src0": 2, "vdst": 256 + 9}, isa=RDNA4)
    w = run(insn, scalars=scalars)
    wanted = {"EXP": 2**0.25, "LOG": -2.0, "RCP": 4.0, "RSQ": 2.0, "SQRT": 0.5}[name.split("_")[2]]
    assert np.isclose(w.s[0, 9].view(np.float32), wanted, rtol=1e-6)
    assert not w.v.any()


@case(["S_FMAMK_F32", "S_FMAAK_F32"])
def _scalar_literal(name: str) -> None:
    scalars = np.zeros(128, U32)
    scalars[2:3], scalars[4:5] = f32(3.0), f32(5.0)
    fields = {"ssrc0": 2, "ssrc1": 4, "sdst": 8}
    insn = instruction(name, "SOP2_LIT", fields, literal=int(f32(7.0)[0]), isa=RDNA4)
    found = run(insn, scalars=scalars).s[0, 8].view(np.float32)
    assert found == (3 * 7 + 5 if "MK" in name else 3 * 5 + 7)


@case(["V_SWAP_B32"])
def _swap_registers(name: str) -> None:
    registers = np.arange(64, dtype=U32).reshape(2, 1, 32)
    insn = instruction(name, "VOP1", {"src0": 256, "vdst": 257}, isa=RDNA4)
    w = run(insn, registers=registers, active=0xFFFF)
    assert (w.v[:2, 0, :16] == registers[::-1, 0, :16]).all()
    assert (w.v[:2, 0, 16:] == registers[:, 0, 16:]).all()


@case(["V_PERMLANE16_B32", "V_PERMLANEX16_B32"])
def _permuted_rows(name: str) -> None:
    order = rng().permutation(16)
    registers = np.zeros((3, 1, 32), U32)
    registers[0, 0] = np.arange(100, 132)
    registers[2, 0] = 7
    scalars = np.zeros(128, U32)
    scalars[2] = sum(int(lane) << 4 * place for place, lane in enumerate(order[:8]))
    scalars[3] = sum(int(lane) << 4 * place for place, lane in enumerate(order[8:]))
    # Lane 16 is inactive. FI reads it nevertheless; otherwise BOUND_CTRL returns 0.
    active = 0xFFFEFFFF
    for inactive, zeros in itertools.product((0, 1), repeat=2):
        fields = {"src0": 256, "src1": 2, "src2": 3, "vdst": 258, "opsel": inactive | zeros << 1}
        w = run(
            instruction(name, "VOP3", fields, isa=RDNA4),
            registers=registers,
            scalars=scalars,
            active=active,
            count=2,
        )
        for lane in range(32):
            row = lane // 16 ^ ("X16" in name)
            source = row * 16 + order[lane % 16]
            wanted = 100 + source
            if source == 16 and not inactive:
                wanted = 0 if zeros else 7
            if lane == 16:
                wanted = 7
            assert (w.v[2, :, lane] == wanted).all(), (lane, inactive, zeros)
