"""Every operation of the emulator, compared with the vendor's pseudocode."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
import pytest

from gfxemu.arrays import U32, U64, Array
from gfxemu.isa import CDNA, RDNA3, RDNA4
from gfxemu.operations import PACKED, SCALAR, SIZES, VECTOR, Operation
from gfxemu.registers import VCC
from gfxemu.tests import hand_computed, machines
from gfxemu.tests.vendor_pseudocode import Lane, NotUnderstoodError, Value, pseudocode, u

#: Operations whose results the hardware approximates.
ROUGH = ("EXP", "LOG", "RCP", "RSQ", "SQRT", "SIN", "COS")
_SOURCES = (0, 2, 4)  # Registers of the operands, of which each may take two
_RESULT = 8
LANES = 64
INSTRUCTION_SETS = (CDNA, RDNA3, RDNA4)


def type_of(kind: str, operation: Operation) -> str:
    if kind.startswith("dst"):
        return kind.partition(":")[2] or operation.outputs[0]
    return {"lit": "f32", "k": "i16", "ku": "u16"}.get(kind, kind)


@cache
def understood(name: str, tables: str = CDNA.tables) -> bool:
    """Return whether the pseudocode of an operation can be run, whatever it computes."""
    text = pseudocode(tables).get(name)
    if text is None or "ROUND_TOWARD_ZERO" in text:
        return False
    lane = Lane({k: u(1, 64) for k in ("S0", "S1", "S2", "D0", "VCC", "EXEC", "laneId", "SIMM16")})
    lane.values |= {"SCC": u(1, 1), "SIMM32": u(0x3F800000)}
    try:
        with np.errstate(all="ignore"):
            lane.run(text)
    except (NotUnderstoodError, NameError, AttributeError, TypeError, OverflowError, ValueError):
        return False
    return True


def vector_names(tables: str = CDNA.tables) -> list[str]:
    # The hardware differs from the pseudocode: hand_computed tests these operations.
    excluded = {"V_LDEXP_F32", "V_LDEXP_F64", "V_SIN_F32", "V_COS_F32", "V_TRIG_PREOP_F64"}
    excluded |= {f"V_FREXP_EXP_{kind}" for kind in ("I16_F16", "I32_F32", "I32_F64")}
    excluded |= {f"V_DIV_{step}_{kind}" for step in ("FMAS", "FIXUP") for kind in ("F32", "F64")}
    excluded |= {"V_DIV_FIXUP_F16", "V_LDEXP_F16", "V_FRACT_F16", "V_FRACT_F32", "V_FRACT_F64"}
    # The emulator rounds these sums once.
    excluded |= {name for name in VECTOR if name.startswith("V_DOT2") and "_F32_" in name}
    # hand_computed tests operations with a scalar result.
    excluded |= {name for name in VECTOR if name.startswith("V_S_")}
    return [
        n
        for n, o in VECTOR.items()
        if understood(n, tables)
        and o.outputs
        and "table" not in o.inputs
        and n not in excluded
        # V_CMPX of RDNA writes only EXEC: test_rdna.py tests it.
        and not (n.startswith("V_CMPX") and tables != CDNA.tables)
    ]


def scalar_names(tables: str = CDNA.tables) -> list[str]:
    names = [n for n in SCALAR if understood(n, tables) and "EXEC" not in n]
    # hand_computed tests operations with a literal.
    return [n for n in names if "lit" not in SCALAR[n].inputs]


def packed_names(tables: str = CDNA.tables) -> list[str]:
    return [n for n in PACKED if understood(n, tables)]


def each_tables(names: Callable[[str], Iterable[str]]) -> list[tuple[str, str]]:
    """Pair each operation with every instruction set that has different pseudocode for it."""
    found: dict[tuple[str, str], str] = {}
    for isa in INSTRUCTION_SETS:
        for name in names(isa.tables):
            found.setdefault((name, pseudocode(isa.tables)[name]), isa.tables)
    return [(name, tables) for (name, _), tables in found.items()]


def expected(
    name: str, tables: str, lane: int, state: dict[str, Value], mask: int
) -> dict[str, Value]:
    run = Lane(dict(state) | {"laneId": u(lane), "VCC": u(mask, 64), "EXEC": u(2**64 - 1, 64)})
    with np.errstate(all="ignore"):
        run.run(pseudocode(tables)[name])
    return run.values


def same(found: int, wanted: Value, kind: str, rough: bool) -> bool:
    width = SIZES[kind] * 8
    got = Value("b", 64, found).as_(kind[0], width)
    want = Value("b", 64, wanted.bits).as_(kind[0], width)
    if kind[0] == "f":
        if np.isnan(want.value):
            return bool(np.isnan(got.value))
        if rough:
            relative = 2e-3 if width == 16 else 2e-6
            return bool(np.isclose(float(got.value), float(want.value), relative, 1e-5))
        if got.value == 0 and want.value == 0:
            # NumPy returns +0 or -0 when both are operands.
            return True
    return got.bits == want.bits


def _check_vector_operation(name: str, tables: str, rng: np.random.Generator) -> None:
    operation = VECTOR[name]
    kinds = [k for k in operation.inputs if k not in ("mask", "vcc", "signs")]
    bits = [machines.random_bits(rng, type_of(k, operation), (1, LANES)) for k in kinds]
    registers = np.zeros((12, 1, LANES), U32)
    fields = {"src0": 256, "src1": 258, "src2": 260, "vdst": 256 + _RESULT, "sdst": 20}
    fields |= {"opsel_hi": 3} if name.startswith("V_DOT") else {}
    values: list[tuple[str, Array]] = []
    place = 0
    for kind, raw in zip(kinds, bits, strict=True):
        if kind == "dst":
            machines.put(registers, _RESULT, raw)
            values.append(("D0", raw))
        elif kind == "lit":
            raw[:] = raw[0, 0]
            values.append(("SIMM32", raw))
        else:
            machines.put(registers, _SOURCES[place], raw)
            values.append((f"S{place}", raw))
            place += 1
    mask = int(rng.integers(0, 2**63))
    form = "VOP3SD" if operation.outputs[-1] == "mask" and len(operation.outputs) > 1 else "VOP3"
    if "lit" in operation.inputs:
        form, fields = "VOP2", {"src0": 256, "vsrc1": 258, "vdst": 256 + _RESULT}
    if "mask" in operation.inputs:
        fields["src2"] = 24
    if operation.outputs[0] == "mask":
        form, fields["vdst"] = "VOP3_SDST", 20
    scalars = np.zeros(128, U32)
    for number in (24, VCC):
        scalars[number], scalars[number + 1] = mask & 0xFFFFFFFF, mask >> 32
    literal = next((int(raw[0, 0]) for (n, raw) in values if n == "SIMM32"), None)
    insn = machines.instruction(name, form, fields, literal=literal)
    w = machines.run(insn, registers=registers, scalars=scalars)
    for lane in range(LANES):
        state = {n: u(int(raw[0, lane]), 64) for n, raw in values} | {"D1": u(0, 1)}
        state.setdefault("D0", u(0, 64))
        want = expected(name, tables, lane, state, mask)
        _compare(w, operation, want, lane, name, [hex(v.bits) for v in state.values()])


def _compare(
    w: machines.Waves,
    operation: Operation,
    want: dict[str, Value],
    lane: int,
    name: str,
    state: list[str],
) -> None:
    rough = any(word in name for word in ROUGH)
    for kind in operation.outputs:
        if kind == "mask":
            found = int(w.lanes(20)[0, lane])
            source = want["D0"] if operation.outputs[0] == "mask" else want.get("D1", want["VCC"])
            if len(operation.outputs) > 1 and name.startswith(("V_ADD", "V_SUB")):
                source = want["VCC"]
            wanted = source.bits if source.width == 1 else source.bits >> lane & 1
            if name.startswith("V_MAD"):
                wanted = want["D1"].bits & 1
            assert found == wanted, (name, lane, kind, state)
            continue
        found = int(machines.take(w.v, _RESULT, U64)[0, lane])
        assert same(found, want["D0"], kind, rough), (name, lane, hex(found), want["D0"], state)


def _check_scalar_operation(name: str, tables: str, rng: np.random.Generator) -> None:
    constant = any(kind in ("k", "ku") for kind in SCALAR[name].inputs)
    # A constant is part of the instruction, other operands differ in each wave.
    for _ in range(8 if constant else 1):
        _check_waves(name, tables, rng, LANES // 8 if constant else LANES)


def _check_waves(name: str, tables: str, rng: np.random.Generator, waves: int) -> None:
    operation = SCALAR[name]
    scalars = np.zeros((waves, 128), U32)
    states: list[dict[str, Value]] = [{"SCC": u(0, 1), "D0": u(0, 64)} for _ in range(waves)]
    fields = {"ssrc0": 0, "ssrc1": 2, "sdst": _RESULT, "simm16": 0}
    form, place = "SOP2", 0
    for kind in operation.inputs:
        column = machines.random_bits(rng, type_of(kind, operation), (waves,))
        if kind in ("k", "ku"):
            form, column[:] = "SOPK", column[0] & U64(0xFFFF)
            fields["simm16"] = int(column[0])
        elif kind != "scc":
            register = _RESULT if kind.startswith("dst") else _SOURCES[place]
            machines.put(scalars.T, register, column)
        for raw, state in zip(column.tolist(), states, strict=True):
            if kind == "scc":
                state["SCC"] = u(raw & 1, 1)
            elif kind.startswith("dst"):
                state["D0"] = u(raw, 64)
                state.setdefault("S0", u(raw, 64))
            elif kind in ("k", "ku"):
                # The register is the first operand of comparisons, the destination of others.
                state["S1" if "CMPK" in name else "S0"] = u(raw, 64)
                if tables != CDNA.tables:
                    # RDNA's pseudocode calls the constant SIMM16, and the register S0.
                    state |= {"SIMM16": u(raw, 16), "S0": state["D0"]}
            else:
                state[f"S{place}"] = u(raw, 64)
        place += kind not in ("scc", "k", "ku") and not kind.startswith("dst")
    condition = np.array([[bool(state["SCC"].value)] for state in states])
    insn = machines.instruction(name, form, fields)
    w = machines.run(insn, scalars=scalars, scc=condition, count=waves)
    for wave, state in enumerate(states):
        want = expected(name, tables, 0, state, 0)
        for kind in operation.outputs:
            if kind == "scc":
                assert bool(w.scc[wave, 0]) == want["SCC"].value, (name, state)
            else:
                found = int(machines.take(w.s.T, _RESULT, U64)[wave])
                assert same(found, want["D0"], kind, False), (name, hex(found), want["D0"], state)


def _check_packed_operation(name: str, tables: str, rng: np.random.Generator) -> None:
    operation = PACKED[name]
    kind = operation.inputs[0]
    double = SIZES[kind] == 4
    registers = np.zeros((12, 1, LANES), U32)
    sources = []
    for place in range(len(operation.inputs)):
        low, high = (machines.random_bits(rng, kind, (1, LANES)) for _ in range(2))
        half = U64(32 if double else 16)
        low_bits = (U64(1) << half) - U64(1)
        raw = low & low_bits | (high & low_bits) << half
        machines.put(registers, _SOURCES[place], raw)
        sources.append(raw)
    fields = {"src0": 256, "src1": 258, "src2": 260, "vdst": 256 + _RESULT}
    fields |= {"opsel": 0, "opsel_hi": 3, "opsel_hi2": 1}
    w = machines.run(machines.instruction(name, "VOP3P", fields), registers=registers)
    for lane in range(LANES):
        state = {f"S{n}": u(int(raw[0, lane]), 64) for n, raw in enumerate(sources)}
        state |= {"D0": u(0, 64), "tmp": u(0, 64), "OPSEL": u(0, 4), "OPSEL_HI": u(7, 4)}
        want = expected(name, tables, lane, state, 0)["D0"].bits
        width = 32 if double else 16
        for at in (0, width):
            found = int(machines.take(w.v, _RESULT, U64)[0, lane])
            part = u(want >> at, width)
            got = found >> at & (1 << width) - 1
            assert same(got, part, kind, False), (name, lane, hex(found), hex(want))


Check = Callable[[str, str, np.random.Generator], None]
#: The check of an operation's results; its name, and the instruction set of the pseudocode.
OPERATIONS: list[tuple[Check, str, str]] = [
    (check, name, tables)
    for check, names in (
        (_check_vector_operation, vector_names),
        (_check_scalar_operation, scalar_names),
        (_check_packed_operation, packed_names),
    )
    for name, tables in each_tables(names)
]


@pytest.mark.parametrize(
    "rounds", [range(1), pytest.param(range(1, 6), marks=pytest.mark.thorough)], ids=["", "more"]
)
@pytest.mark.parametrize(("check", "name", "tables"), OPERATIONS)
def test_operation(check: Check, name: str, tables: str, rounds: range) -> None:
    """Prevents: an operation that computes other results or an SCC than the vendor's pseudocode."""
    for number in rounds:
        seed = zlib.crc32(f"{name}{number or ''}".encode())
        check(name, tables, np.random.default_rng(seed))


def test_every_operation_has_a_test() -> None:
    """Prevents: an emulated operation whose results no test checks."""
    covered = hand_computed.covered()
    saves = {n for n in SCALAR if "EXEC_B64" in n}
    checked = {name for _, name, _ in OPERATIONS} | saves
    left = sorted(set(covered) - checked - hand_computed.names())
    assert not left, f"without a test: {' '.join(left)}"
