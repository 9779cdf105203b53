"""Building the engine, and forms of operands and modifiers that all operations share."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gfxemu import native
from gfxemu.arrays import F32, U32, U64, Array
from gfxemu.decode import Instruction
from gfxemu.expressions import VECTOR_NAMES, operations_header
from gfxemu.isa import ISAS
from gfxemu.memory import AddressMap
from gfxemu.native import EngineError, NativeRun
from gfxemu.operations import PACKED, SCALAR, VECTOR
from gfxemu.registers import EXEC, M0, OFF, VCC
from gfxemu.tests.hand_computed import LANES
from gfxemu.tests.machines import (
    Waves,
    instruction,
    make_program,
    put,
    run,
    run_program,
    take,
    waves,
)

#: An arch with waves of 64 lanes, and one with waves of 32.
ARCHS = pytest.mark.parametrize("arch", ["gfx950", "gfx1201"])


def random_floats(shape: tuple[int, ...], kind: Any = F32, seed: int = 1) -> Array:
    """Return numbers between -4 and 4, some of them special."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-64, 65, shape) / 16
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.0])
    return np.where(rng.random(shape) < 0.2, rng.choice(special, shape), values).astype(kind)


# ---------------------------------------------------------------------------------------------
# The engine as a library


def test_the_engine_compiles(tmp_path: Path) -> None:
    """Prevents: an engine that only Bazel can compile, so that pip users have none."""
    program = native.compiler({"PATH": "/usr/bin:/bin", "QOLA_CACHE_HOME": str(tmp_path)})
    (tmp_path / "probe.c").write_text("#include <stdlib.h>\n_Float16 probe;\n")
    probe = [program, "-fsyntax-only", str(tmp_path / "probe.c")]
    if not program or subprocess.run(probe, check=False).returncode:
        pytest.skip("no C compiler with its headers")
    (tmp_path / "operations.h").write_text(operations_header())
    command = [program, "-fsyntax-only", "-xc", "-std=gnu11", f"-I{tmp_path}"]
    for name, options in (
        ("operations", []),
        ("engine", ["-DLANES=32"]),
        ("engine", ["-DLANES=64"]),
    ):
        # For any processor, too.
        for level in ([], [f"-march={native.levels()[0]}"]):
            source = str(native.SOURCES / f"{name}.c")
            subprocess.run([*command, *level, *options, source], check=True)


def test_a_machine_without_an_engine_is_told_how_to_get_one(tmp_path: Path) -> None:
    """Prevents: a traceback, or silence, on a machine without a C compiler or with an old one."""
    if any(native.SOURCES.glob("engine_*.so")):
        pytest.skip("Bazel has built the engine")
    environ = {"PATH": str(tmp_path), "QOLA_CACHE_HOME": str(tmp_path / "cache")}
    with pytest.raises(EngineError, match=r"no C compiler in PATH(?s:.)*apt install gcc"):
        native.find_library(environ)
    broken = tmp_path / "gcc"
    broken.write_text("#!/bin/sh\necho unknown type _Float16 >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(EngineError, match=r"unknown type _Float16(?s:.)*gcc 12"):
        native.find_library(environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"})


def test_levels_of_processors(tmp_path: Path) -> None:
    """Prevents: an engine with instructions that the processor lacks."""
    if not native.levels():
        pytest.skip("another architecture")
    found = {}
    for level in native.LEVELS:
        flags = [flag for name, words in native.LEVELS.items() if name <= level for flag in words]
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags\t: sse2 {' '.join(flags)}\n")
        found[level] = native.levels(tmp_path / "cpuinfo")
    assert found["x86-64"] == native.levels(tmp_path / "none") == ["x86-64"]
    assert found["x86-64-v3"] == ["x86-64-v3", "x86-64"]
    assert found["x86-64-v4"] == [*native.LEVELS]


def test_a_launch_without_memory_is_an_error() -> None:
    """Prevents: a crash, or success without running a wave, when memory is exhausted."""
    launch = native._Launch(count=1 << 44, groups=1, insn_count=1)
    native.engine()(ctypes.byref(launch))
    unfinished = NativeRun.__new__(NativeRun)
    unfinished._program, unfinished._machine = make_program([], "gfx950"), waves().machine
    with pytest.raises(MemoryError, match="the waves of a launch of test"):
        unfinished._raise(launch)


def test_all_operations_are_functions() -> None:
    """Prevents: an operation of the table that no instruction can run."""
    # These are no operation, and two moves.
    assert {*VECTOR, *PACKED} - {*VECTOR_NAMES} == {"V_NOP", "V_PK_MOV_B32"}
    assert all(one.expression for one in SCALAR.values())


# ---------------------------------------------------------------------------------------------
# Operands and modifiers


@ARCHS
@pytest.mark.parametrize("kind", ["F16", "F32", "F64"])
@pytest.mark.parametrize("changes", [
    {}, {"neg": 1}, {"neg": 2}, {"abs": 3, "neg": 2}, {"omod": 1}, {"omod": 2}, {"omod": 3},
    {"clmp": 1}, {"neg": 3, "abs": 1, "omod": 3, "clmp": 1},
])  # fmt: skip
def test_modifiers_of_floats(changes: Mapping[str, int], kind: str, arch: str) -> None:
    """Prevents: signs, factors or clamps that are ignored, or applied in another order."""
    isa = ISAS[arch]
    numpy_type: Any = {"F16": np.float16, "F32": np.float32, "F64": np.float64}[kind]
    a, b = (random_floats((isa.lanes,), numpy_type, seed) for seed in (1, 2))
    registers = np.zeros((8, 1, isa.lanes), U32)
    put(registers, 0, a)
    put(registers, 2, b)
    fields = {"src0": 256, "src1": 258, "vdst": 260, **changes}
    w = run(instruction(f"V_ADD_{kind}", "VOP3", fields, isa=isa), registers=registers)
    found = take(w.v, 4, numpy_type)[0]
    sources = []
    for place, values in enumerate((a, b)):
        size = np.abs(values) if changes.get("abs", 0) >> place & 1 else values
        sources.append(-size if changes.get("neg", 0) >> place & 1 else size)
    with np.errstate(all="ignore"):
        wanted = sources[0] + sources[1]
        wanted = wanted * numpy_type({1: 2, 2: 4, 3: 0.5}.get(changes.get("omod", 0), 1))
        if changes.get("clmp"):
            # A NaN is 0, as DX10_CLAMP has it.
            wanted = np.fmin(np.fmax(wanted, numpy_type(0)), numpy_type(1))
    np.testing.assert_array_equal(found, wanted)


@ARCHS
@pytest.mark.parametrize(
    ("number", "bits"),
    [(5, 0xC0200000), (193, 0xFFFFFFFF), (208, 0xFFFFFFF0), (192, 64), (242, 0x3F800000),
     (248, 0x3E22F983), (255, 0x12345678), (253, 1), (251, 1), (252, 0)],
)  # fmt: skip
def test_source_operands(number: int, bits: int, arch: str) -> None:
    """Prevents: a scalar register, constant, literal or flag read as another value."""
    scalars = np.zeros(128, U32)
    scalars[5] = 0xC0200000
    fields = {"src0": number, "vsrc1": 256, "vdst": 257}
    insn = instruction("V_OR_B32", "VOP2", fields, literal=0x12345678, isa=ISAS[arch])
    w = run(insn, scalars=scalars, scc=True)
    # VCC is 0, EXEC is not.
    assert (w.v[1] == bits).all()


def test_constants_of_16_and_64_bits() -> None:
    """Prevents: 1.0 of f32 in an operand of another size."""
    wide = run(instruction("V_MOV_B64", "VOP1", {"src0": 242, "vdst": 258})).v[2:4, 0, 0]
    # Floats in an operand of integers have the bits of an f32.
    assert wide.tolist() == [0x3F800000, 0]
    fields = {"src0": 242, "src1": 256, "vdst": 258}
    assert run(instruction("V_ADD_F64", "VOP3", fields)).v[2:4, 0, 0].tolist() == [0, 0x3FF00000]
    assert run(instruction("V_ADD_F16", "VOP3", fields)).v[2, 0, 0] == 0x3C00


@ARCHS
@pytest.mark.parametrize("opsel", range(16))
def test_halves_of_registers(opsel: int, arch: str) -> None:
    """Prevents: op_sel that reads or writes another half of a register."""
    isa = ISAS[arch]
    registers = np.zeros((3, 1, isa.lanes), U32)
    values = {0: (3, 30), 1: (400, 4000), 2: (0x1111, 0x2222)}
    for number, (low, high) in values.items():
        registers[number] = low | high << 16
    fields = {"src0": 256, "src1": 257, "src2": 0, "vdst": 258, "opsel": opsel}
    found = int(
        run(instruction("V_ADD_U16", "VOP3", fields, isa=isa), registers=registers).v[2, 0, 0]
    )
    total = values[0][opsel & 1] + values[1][opsel >> 1 & 1]
    keeps = isa.is_rdna or opsel & 8
    low, high = values[2] if keeps else (0, 0)
    assert found == (low | total << 16 if opsel & 8 else total | high << 16)


@pytest.mark.parametrize("select", range(7))
@pytest.mark.parametrize("unused", range(3))
def test_parts_of_registers_by_sdwa(select: int, unused: int) -> None:
    """Prevents: SDWA that selects other bytes, or extends another sign."""
    rng = np.random.default_rng(select)
    registers = rng.integers(0, 2**32, (3, 1, 64), dtype=U32)

    def part(value: Array, which: int, signed: bool = False) -> Array:
        width, place = (8, which) if which < 4 else (16, which - 4) if which < 6 else (32, 0)
        found = value.astype(np.int64) >> width * place & (1 << width) - 1
        return np.where(signed & (found >> width - 1), found - (1 << width), found)

    fields = {"src0": 249, "vsrc0": 256, "vsrc1": 257, "vdst": 258, "src0_sel": select}
    fields |= {"src1_sel": 6 - select, "src0_sext": 1, "dst_sel": select, "dst_unused": unused}
    w = run(instruction("V_ADD_U32", "VOP2_SDWA", fields), registers=registers)
    a, b, old = registers[:, 0]
    total = part(a, select, True) + part(b, 6 - select) & 0xFFFFFFFF
    width, place = (8, select) if select < 4 else (16, select - 4) if select < 6 else (32, 0)
    field = total & (1 << width) - 1
    above = 0xFFFFFFFF << width * (place + 1) & 0xFFFFFFFF
    others = 0xFFFFFFFF ^ ((1 << width) - 1 << width * place)
    rest = {0: 0 * old, 1: np.where(field >> width - 1, above, 0), 2: old & U32(others)}[unused]
    assert (w.v[2, 0] == (field << width * place | rest)).all()


@pytest.mark.parametrize(
    ("control", "source", "valid"),
    [
        (0x1B, LANES ^ 3, True),  # quad_perm:[3,2,1,0]
        (0x103, LANES + 3, LANES % 16 < 13),  # row_shl:3
        (0x112, LANES - 2, LANES % 16 >= 2),  # row_shr:2
        (0x125, LANES // 16 * 16 + (LANES - 5) % 16, True),  # row_ror:5
        (0x130, LANES + 1, LANES < 63),  # wave_shl
        (0x134, (LANES + 1) % 64, True),  # wave_rol
        (0x138, LANES - 1, LANES > 0),  # wave_shr
        (0x13C, (LANES - 1) % 64, True),  # wave_ror
        (0x140, LANES ^ 15, True),  # row_mirror
        (0x141, LANES ^ 7, True),  # row_half_mirror
        (0x142, LANES // 16 * 16 - 1, LANES > 15),  # row_bcast:15
        (0x143, LANES * 0 + 31, LANES > 31),  # row_bcast:31
    ],
)
@pytest.mark.parametrize("zeros", [0, 1])
@pytest.mark.parametrize("double", [False, True])
def test_dpp_controls(control: int, source: Array, valid: Any, zeros: int, double: bool) -> None:
    """Prevents: DPP that reads another lane, or writes lanes that a mask or the source excludes."""
    registers = np.zeros((4, 1, 64), U32)
    registers[0], registers[1], registers[2:] = LANES + 100, LANES + 200, 7
    fields = {"src0": 250, "vsrc0": 256, "vdst": 258, "dpp": control, "bc": zeros}
    fields |= {"row_mask": 0xB, "bank_mask": 0xD}
    name = f"V_MOV_B{64 if double else 32}"
    w = run(instruction(name, "VOP1_DPP16", fields), registers=registers)
    valid = np.broadcast_to(valid, 64)
    enabled = (0xB >> LANES // 16 & 1) & (0xD >> LANES // 4 % 4 & 1) & (valid | zeros)
    for place in range(1 + double):
        moved = np.where(valid, source + 100 * (place + 1), 0)
        assert (w.v[2 + place, 0] == np.where(enabled, moved, 7)).all()


@pytest.mark.parametrize("opsel", range(8))
@pytest.mark.parametrize("opsel_hi", range(4))
def test_halves_of_packed_operands(opsel: int, opsel_hi: int) -> None:
    """Prevents: a packed operation that takes another value, or another sign, for a half."""
    values = random_floats((3, 2, 64), np.float16)
    registers = values.transpose(0, 2, 1).copy().view(U32).reshape(3, 1, 64)
    fields = {"src0": 256, "src1": 257, "src2": 258, "vdst": 259, "opsel": opsel}
    fields |= {"opsel_hi": opsel_hi, "opsel_hi2": 1, "neg": 1, "neg_hi": 2}
    w = run(instruction("V_PK_FMA_F16", "VOP3P", fields), registers=registers)
    found = np.ascontiguousarray(w.v[3, 0]).view(np.float16).reshape(64, 2).T
    picks = opsel, opsel_hi | 4
    for half, (pick, signs) in enumerate(zip(picks, (1, 2), strict=True)):
        a, b, c = (
            values[n, pick >> n & 1].astype(np.float64) * (-1 if signs >> n & 1 else 1)
            for n in range(3)
        )
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found[half], (a * b + c).astype(np.float16))


@pytest.mark.parametrize("opsel", range(4))
def test_packed_floats_of_registers_and_scalars(opsel: int) -> None:
    """Prevents: V_PK_MUL_F32 that takes another register, or clamps one result only."""
    registers = random_floats((4, 1, 64)).view(U32)
    scalars = np.zeros(128, U32)
    scalars[6:8] = np.array([0.5, -3.0], F32).view(U32)
    fields = {"src0": 256, "src1": 6, "vdst": 258, "opsel": opsel, "opsel_hi": 2, "clmp": 1}
    w = run(instruction("V_PK_MUL_F32", "VOP3P", fields), registers=registers, scalars=scalars)
    for half, (first, second) in enumerate(((opsel & 1, opsel >> 1), (0, 1))):
        with np.errstate(all="ignore"):
            wanted = registers[first, 0].view(F32) * scalars[6 + second].view(F32)
        np.testing.assert_array_equal(w.v[2 + half, 0].view(F32), np.fmin(np.fmax(wanted, 0), 1))


@pytest.mark.parametrize(
    ("name", "operands", "wanted"),
    [
        ("V_ADD_U16", (65535, 2), 65535),
        ("V_SUB_U16", (2, 3), 0),
        ("V_ADD_I16", (0x7FFF, 1), 0x7FFF),
        ("V_SUB_I16", (0x8000, 1), 0x8000),
        ("V_ADD_U32", (5, 5), 10),
        ("V_ADD_U32", (2**31, 2**31), 0xFFFFFFFF),
        ("V_ADD_I32", (0x7FFFFFFF, 0x7FFFFFFF), 0x7FFFFFFF),
        ("V_ADD_I32", (0x80000000, 0x80000000), 0x80000000),
        ("V_SUBREV_U32", (3, 2), 0),
        ("V_SUB_I32", (0x80000000, 1), 0x80000000),
        ("V_MAD_U16", (256, 256, 1), 65535),
        ("V_MAD_I16", (0xFF00, 256, 0), 0x8000),
        ("V_MAD_U32_U24", (0xFFFFFF, 0xFFFFFF, 0), 0xFFFFFFFF),
        ("V_MAD_I32_I24", (0x800000, 0x7FFFFF, 0), 0x80000000),
        ("V_MAD_U32_U16", (65535, 65535, 0x20000), 0xFFFFFFFF),
        ("V_MAD_I32_I16", (0x8000, 0x8000, 0x7FFFFFFF), 0x7FFFFFFF),
        ("V_SAD_U32", (0, 0xFFFFFFFF, 5), 0xFFFFFFFF),
        ("V_SAD_U16", (0xFFFF, 0, 0xFFFFFFFE), 0xFFFFFFFF),
    ],
)
def test_clamped_integers(name: str, operands: tuple[int, ...], wanted: int) -> None:
    """Prevents: a clamp of integers that is refused, or a result that wraps around first."""
    registers = np.zeros((4, 1, 64), U32)
    for number, value in enumerate(operands):
        registers[number] = value
    fields = {"src0": 256, "src1": 257, "src2": 258, "vdst": 259, "clmp": 1}
    assert (run(instruction(name, "VOP3", fields), registers=registers).v[3] == wanted).all()
    if name.startswith(("V_ADD_", "V_SUB_", "V_MAD_")) and name.endswith("16") and len(name) < 10:
        # Both halves.
        name = name.replace("V_", "V_PK_")
        for number, value in enumerate(operands):
            registers[number] = value | value << 16
        fields |= {"opsel": 0, "opsel_hi": 3, "opsel_hi2": 1}
        found = run(instruction(name, "VOP3P", fields), registers=registers).v[3]
        assert (found == (wanted | wanted << 16)).all()


# ---------------------------------------------------------------------------------------------
# Memory and control flow


def beyond(insn: Instruction, w: Waves) -> list[tuple[str, int]]:
    """Run an access; return kind and lane of its faults."""
    run(insn, w)
    return [(fault.kind, fault.lane) for fault in w.machine.faults.all]


@ARCHS
@pytest.mark.parametrize("space", ["GLOBAL", "FLAT", "BUFFER"])
def test_lanes_beyond_an_allocation(space: str, arch: str) -> None:
    """Prevents: one bad lane that drops those of others, or a fault for a lane that is off."""
    lanes = ISAS[arch].lanes
    map_ = AddressMap()
    content = np.arange(lanes * 4, dtype=U32)
    base = map_.own(content[:-8])
    w = waves(map_=map_, lanes=lanes, active=2**lanes - 1 & ~(1 << lanes - 1))
    places = np.arange(lanes, dtype=U64) * U64(16) + U64(0 if space == "BUFFER" else base)
    put(w.v, 0, places)
    w.v[4:8] = 7
    w.s[0, 8:12] = base & 0xFFFFFFFF, base >> 32, 1 << 20, 0
    fields = {"addr": 256, "vdst": 260, "saddr": OFF, "vdata": 260, "vaddr": 256}
    fields |= {"srsrc": 8, "soffset": 128, "offen": 1}
    form = {"BUFFER": "MUBUF"}.get(space, space)
    insn = instruction(f"{space}_LOAD_DWORDX4", form, fields, isa=ISAS[arch])
    # The last lane, which is off, is beyond the allocation, and so is the one before it.
    assert beyond(insn, w) == [("unmapped", lanes - 2)]
    wanted = content.reshape(lanes, 4).copy()
    wanted[lanes - 2], wanted[lanes - 1] = 0, 7
    assert (w.v[4:8, 0] == wanted.T).all()


@ARCHS
def test_negative_offsets(arch: str) -> None:
    """Prevents: an offset decoded with 13 bits when the instruction set has 24."""
    isa = ISAS[arch]
    map_ = AddressMap()
    content = np.arange(256, dtype=U32)
    places = U64(map_.own(content) + 64) + np.arange(isa.lanes, dtype=U64) * U64(4)
    registers = np.zeros((2, 1, isa.lanes), U32)
    put(registers, 0, places)
    field = -8 & (1 << isa.offset_bits) - 1
    fields = {"addr": 256, "vdst": 258, "saddr": OFF, "offset": field}
    insn = instruction("GLOBAL_LOAD_DWORD", "GLOBAL", fields, isa=isa)
    assert (run(insn, registers=registers, map_=map_).v[2, 0] == 14 + np.arange(isa.lanes)).all()


@pytest.mark.parametrize("name", ["DS_READ_B32", "DS_READ2_B32", "DS_WRITE_B16"])
def test_an_offset_from_a_negative_place_in_the_lds(name: str) -> None:
    """Prevents: faults when a compiler adds an LDS offset to a negative base address."""
    two = "READ2" in name
    w = waves(registers=((LANES.astype(U32) - U32(16)) * U32(4))[None, None])
    w.machine.lds.view(U32)[:] = np.arange(256)
    fields = {"addr": 256, "data0": 257, "vdst": 258, "offset0": 16 if two else 64}
    assert beyond(instruction(name, "DS", fields | {"offset1": 17 if two else 0}), w) == []
    if "READ" in name:
        assert (w.v[2, 0] == LANES).all()


@pytest.mark.parametrize("bad", [False, True])
def test_loads_to_the_lds_end_at_its_end(bad: bool) -> None:
    """Prevents: a load to the LDS beyond its end that is not a fault."""
    map_ = AddressMap()
    content = np.arange(64, dtype=U32)
    base = map_.own(content)
    scalars = np.zeros(128, U32)
    scalars[40:44] = base & 0xFFFFFFFF, base >> 32, 256, 0
    scalars[M0] = 1024 - (100 if bad else 256)
    fields = {"vaddr": 256, "offen": 1, "vdata": 260, "srsrc": 40, "soffset": 128, "lds": 1}
    w = waves((LANES * 4).astype(U32)[None, None], scalars, map_=map_)
    found = beyond(instruction("BUFFER_LOAD_DWORD", "MUBUF", fields), w)
    assert found == ([("out of range", 25)] if bad else [])
    loaded = w.machine.lds.view(U32)[-25 if bad else -64 :]
    assert (loaded == content[: len(loaded)]).all()


@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("name", ["BUFFER_LOAD_DWORDX2", "BUFFER_STORE_DWORD"])
def test_scratch_memory_of_gfx90a(name: str, bad: bool) -> None:
    """Prevents: another address of gfx90a's scratch memory, a swizzled buffer."""
    w = waves()
    start = w.machine.scratch_start
    w.machine.map.add(start, len(w.machine.scratch))
    scratch = w.machine.scratch.view(U32).reshape(64, -1)
    scratch[:] = np.arange(scratch.size).reshape(scratch.shape)
    w.s[0, 40:44] = start & 0xFFFFFFFF, start >> 32 | 1 << 31, 4096, 0
    w.v[0], w.v[4] = LANES % 8 * 4 + (240 if bad else 0), 5
    fields = {"vaddr": 256, "offen": 1, "vdata": 260, "srsrc": 40, "soffset": 128, "offset": 4}
    found = beyond(instruction(name, "MUBUF", fields), w)
    # A lane has 256 bytes.
    first = {"BUFFER_LOAD_DWORDX2": 2, "BUFFER_STORE_DWORD": 3}[name]
    assert found == ([("out of range", first)] if bad else [])
    if not bad and "LOAD" in name:
        assert (w.v[4, 0] == LANES * 64 + LANES % 8 + 1).all()
        assert (w.v[5, 0] == LANES * 64 + LANES % 8 + 2).all()
    elif not bad:
        assert (scratch[LANES, LANES % 8 + 1] == 5).all()


@ARCHS
def test_branches_of_waves(arch: str) -> None:
    """Prevents: a branch on the upper half of a mask that waves of 32 lanes do not have."""
    isa = ISAS[arch]
    add = instruction("S_ADD_U32", "SOP2", {"ssrc0": 6, "ssrc1": 129, "sdst": 6})
    barrier = instruction("S_BARRIER", "SOPP", {})
    for name in ("VCCZ", "VCCNZ", "EXECZ", "EXECNZ"):
        skip = instruction(f"S_CBRANCH_{name}", "SOPP", {"simm16": 3})
        register = VCC if "VCC" in name else EXEC
        for halves in (0, 1 << 32, 1):
            w = waves(count=3, lanes=isa.lanes)
            w.s[:, register], w.s[:, register + 1] = halves & 1, halves >> 32
            run_program(make_program([skip, add, barrier, add], arch), w)
            empty = not halves or (halves > 1 and isa.lanes == 32)
            # Each wave skips the first addition, or none does.
            skips = empty != name.endswith("NZ")
            assert (w.s[:, 6] == 2 - skips).all(), (name, halves)
