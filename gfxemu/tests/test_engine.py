"""The C engine compared with the NumPy engine: results of each operation, and faults."""

from __future__ import annotations

import ctypes
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gfxemu import native
from gfxemu.arrays import F32, U8, U32, U64, Array
from gfxemu.decode import Instruction
from gfxemu.expressions import EXPRESSIONS, operations_header
from gfxemu.faults import EmulationError, Fault, Faults
from gfxemu.isa import ISAS
from gfxemu.machine import Machine
from gfxemu.matrix import NAME, supported
from gfxemu.memory import AddressMap
from gfxemu.native import NativeProgram, NativeRun
from gfxemu.operands import DPP8, DPP8_FI
from gfxemu.program import Program
from gfxemu.schedule import Schedule
from gfxemu.table import PACKED, SCALAR, TYPES, VECTOR
from gfxemu.tests.machines import SPECIAL, VGPR_COUNT, instruction, make_program
from gfxemu.waves import EXEC, M0, NULL, SGPRS, VCC, Waves, joined

pytestmark = pytest.mark.skipif(native.engine() is None, reason="no engine for this machine")

#: An arch with waves of 64 lanes, and one with waves of 32.
ARCHS = pytest.mark.parametrize("arch", ["gfx950", "gfx1201"])
#: Archs with waves of 32 lanes.
RDNA = pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
WAVES = 3
LDS_BYTES = 4096
#: Registers of the sources and of the result, which do not overlap.
_SOURCES, _RESULT = (2, 4, 6), 10
Found = tuple[dict[str, Array], list[Fault], str]


def test_the_engine_compiles(tmp_path: Path) -> None:
    """Prevents: an engine that only Bazel can compile, so that pip users get the slow one."""
    program = native.compiler({"PATH": "/usr/bin:/bin", "QOLA_CACHE_HOME": str(tmp_path)})
    (tmp_path / "probe.c").write_text("#include <immintrin.h>\n#include <stdlib.h>\n")
    probe = [program, "-fsyntax-only", str(tmp_path / "probe.c")]
    if not program or subprocess.run(probe, check=False).returncode:
        pytest.skip("no C compiler with its headers")
    (tmp_path / "operations.h").write_text(operations_header())
    command = [program, "-fsyntax-only", "-xc", f"-march={native.level()}", f"-I{tmp_path}"]
    for lanes in (32, 64):
        subprocess.run([*command, f"-DLANES={lanes}", str(native.ENGINE)], check=True)


def test_operations_without_c_code() -> None:
    """Prevents: an operation that silently runs twenty times slower in NumPy."""
    # These are no operation, and two moves.
    assert {*VECTOR, *SCALAR, *PACKED} - set(EXPRESSIONS) == {"V_NOP", "V_PK_MOV_B32"}


def state(seed: str, program: Program, map_: AddressMap) -> Waves:
    """Return waves with random registers, some special floats, and inactive lanes."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    shape = VGPR_COUNT, WAVES, program.isa.lanes
    v = rng.integers(0, 2**32, shape, dtype=U32)
    with np.errstate(all="ignore"):
        floats = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(F32)
        special = np.array(SPECIAL).astype(F32)[rng.integers(0, len(SPECIAL), shape)]
    pick = rng.random(shape)
    v = np.where(pick < 0.5, floats.view(U32), v)
    v = np.where(pick < 0.15, special.view(U32), v)
    v = np.where(pick > 0.9, v % U32(70), v)
    s = rng.integers(0, 2**32, (WAVES, SGPRS), dtype=U32)
    s[:, 6:10] = np.where(rng.random((WAVES, 4)) < 0.5, v[0, :, :4], s[:, 6:10])
    if program.isa.is_rdna:
        s[:, NULL] = 0
    s[0, EXEC : EXEC + 2] = 0xFFFFFFFF
    s[:, M0] = 0
    fnuz = program.arch == "gfx942"
    accesses = program.lds_accesses
    sizes = LDS_BYTES, 256, 1, WAVES
    lanes = program.isa.lanes
    machine = Machine(
        *("test", map_, Faults(), *sizes), fnuz=fnuz, lanes=lanes, lds_accesses=accesses
    )
    machine.lds[:] = rng.integers(0, 256, len(machine.lds), dtype=U8)
    scc = rng.integers(0, 2, (WAVES, 1)).astype(bool)
    zeros = np.zeros(WAVES, np.int64)
    return Waves(program.layout, v, s, scc, zeros, np.arange(WAVES), 0, machine)


class _Collecting(Schedule):
    """A schedule that collects the waves that end."""

    ended: list[Waves]

    def _end(self, w: Waves, one: Instruction) -> None:
        if one.name == "S_ENDPGM":
            self.ended.append(w)
        super()._end(w, one)


def run_in_numpy(program: Program, w: Waves, limit: int) -> dict[str, Array]:
    schedule = _Collecting(program, np.full(1, WAVES), limit)
    schedule.ended = []
    schedule.run(w)
    end = joined(schedule.ended)
    end = end.take(np.argsort(end.numbers))
    return {"v": end.v, "s": end.s, "scc": end.scc[:, 0].astype(U8)}


def run_in_engine(program: Program, w: Waves, limit: int) -> dict[str, Array]:
    run = NativeRun(NativeProgram.make(program), w, np.full(1, WAVES), limit, 0)
    run.run()
    return {"v": run.v.transpose(1, 0, 2), "s": run.s, "scc": run.scc}


def results(
    instructions: Sequence[Instruction],
    seed: str,
    registers: Mapping[int, Array] | None = None,
    scalars: Mapping[int, int] | None = None,
    memory: Array | None = None,
    limit: int = 1000,
    arch: str = "gfx950",
) -> tuple[Found, Found]:
    """Run a program in both engines; return registers, LDS and memory, faults and the error."""
    found: list[Found] = []
    for run_program in (run_in_numpy, run_in_engine):
        program = make_program(instructions, arch)
        map_ = AddressMap()
        # Both engines use one buffer, so that faults have equal addresses.
        buffer = np.zeros(0, U8) if memory is None else memory
        before = buffer.copy()
        if memory is not None:
            map_.add(int(buffer.ctypes.data), buffer.nbytes)
        w = state(seed, program, map_)
        for number, values in (registers or {}).items():
            w.v[number] = values
        for number, value in (scalars or {}).items():
            w.s[:, number] = value & 0xFFFFFFFF
        if (scalars or {}).get(40) == -1:
            start = w.machine.scratch_start
            map_.add(start, len(w.machine.scratch))
            w.s[:, 40], w.s[:, 41] = start & 0xFFFFFFFF, start >> 32 | 1 << 31
        w.update_exec()
        error, final = "", {}
        try:
            final = run_program(program, w, limit)
        except EmulationError as emulation_error:
            error = str(emulation_error.fault)
        machine = w.machine
        if "s" in final and (scalars or {}).get(40) == -1:
            final["s"][:, 40:42] = 0
        final |= {"lds": machine.lds.copy(), "scratch": machine.scratch.copy()}
        final["memory"] = buffer.copy()
        buffer[...] = before
        found.append((final, list(machine.faults.all), error))
    return found[0], found[1]


def compare(insn: Instruction, found: tuple[Found, Found], floats: str = "") -> None:
    """Compare bit for bit, but any NaN equals any NaN: x86 keeps either operand's bits."""
    (expected, faults, error), (got, other_faults, other_error) = found
    assert (other_faults, other_error) == (faults, error), insn
    for name, values in expected.items():
        differ = values != got[name]
        if name == "v" and floats:
            differ &= ~are_both_nan(values, got[name], floats)
        places = np.argwhere(differ)[:3]
        shown = [
            (tuple(p), hex(int(values[tuple(p)])), hex(int(got[name][tuple(p)]))) for p in places
        ]
        assert not len(places), f"{insn.name} {insn.form} {dict(insn.fields)}: {name} {shown}"


def are_both_nan(a: Array, b: Array, floats: str) -> Array:
    if floats == "f64":
        pairs = [np.zeros(x.shape, bool) for x in (a, b)]
        for x, found in zip((a, b), pairs, strict=True):
            wide = (x[:-1].astype(U64) | x[1:].astype(U64) << U64(32)).view(np.float64)
            found[:-1] |= np.isnan(wide)
            found[1:] |= np.isnan(wide)
        return pairs[0] & pairs[1]
    if floats == "f16":
        a, b = (np.ascontiguousarray(x).view(np.float16) for x in (a, b))
        same = (a.view(np.uint16) == b.view(np.uint16)) | np.isnan(a) & np.isnan(b)
        return np.asarray(same.reshape(*same.shape[:-1], -1, 2).all(-1))
    return np.asarray(np.isnan(a.view(F32)) & np.isnan(b.view(F32)))


def float_kind(kinds: Sequence[str]) -> str:
    return next((kind for kind in kinds if kind in ("f16", "f32", "f64")), "")


def lane_numbers(arch: str) -> Array:
    """Return consecutive numbers for all lanes of all waves."""
    lanes = ISAS[arch].lanes
    return np.arange(WAVES * lanes, dtype=U32).reshape(WAVES, lanes)


def vector_forms(name: str, arch: str) -> list[Instruction]:
    """Return an operation with registers, constants, scalars, modifiers, and parts of registers."""
    operation = VECTOR[name]
    kinds = [kind for kind in operation.inputs if kind in TYPES]
    mask_only = operation.outputs[0] == "mask"
    fields = {f"src{n}": 256 + _SOURCES[n] for n in range(3)} | {"vdst": 256 + _RESULT, "sdst": 20}
    form = "VOP3SD" if len(operation.outputs) > 1 and not mask_only else "VOP3"
    if "lit" in operation.inputs:
        fields = {"src0": 258, "vsrc1": 260, "vdst": 256 + _RESULT}
        return [instruction(name, "VOP2", fields, literal=0x40490FDB)]
    if "mask" in operation.inputs:
        fields["src2"] = 24
    if mask_only:
        form, fields["vdst"] = "VOP3_SDST", 20
        if name.startswith("V_CMPX") and ISAS[arch].is_rdna:
            fields["vdst"] = EXEC
    if name.startswith("V_S_"):
        fields |= {"src0": 7, "vdst": 20}
    forms = [fields]
    if kinds:
        forms += [
            fields | {"src0": number} for number in (5 if kinds[0][1:] != "64" else 6, 193, 242)
        ]
    if len(kinds) > 1 and kinds[1][1:] != "64":
        forms.append(fields | {"src1": 7})
    if all(kind[0] == "f" for kind in (*kinds, *operation.outputs)) and kinds:
        forms += [fields | {"neg": 5}, fields | {"abs": 3, "neg": 1}]
        forms += [fields | {"clmp": 1}, fields | {"omod": 1}, fields | {"omod": 3, "clmp": 1}]
    elif mask_only and kinds and kinds[0][0] == "f" and "CLASS" not in name:
        forms += [fields | {"neg": 3}, fields | {"abs": 1}]
    if "table" in operation.inputs:
        forms += [
            fields | {"omod": n >> 6, "abs": n >> 3 & 7, "neg": n & 7} for n in (0xE8, 0x6C, 1)
        ]
    if any(kind[1:] == "16" for kind in kinds):
        forms += [fields | {"opsel": 3}, fields | {"opsel": 8}]
    if form == "VOP3SD":
        forms.append(fields | {"sdst": NULL})
    return [instruction(name, form, form_fields) for form_fields in forms]


#: Where a program keeps EXEC, and where it copies SCC and EXEC after each of its instructions.
_KEPT, _FIRST_EXEC, _FIRST_SCC, _MOST_FORMS = 60, 64, 92, 14


def in_one_program(forms: Sequence[Instruction]) -> list[Instruction]:
    """Return a program that runs forms of an operation on the same operands.

    Each has a result of its own, and a copy of SCC and EXEC after it; EXEC is what it was before.
    """
    keep = instruction("S_MOV_B64", "SOP1", {"ssrc0": EXEC, "sdst": _KEPT})
    found = [keep]
    assert len(forms) <= _MOST_FORMS
    for place, insn in enumerate(forms):
        moved = {
            name: insn.fields[name] + 2 * place
            for name, first in (("vdst", 256 + _RESULT), ("vdst", 20), ("sdst", 10), ("sdst", 20))
            if insn.fields.get(name) == first
        }
        flag = {"ssrc0": 129, "ssrc1": 128, "sdst": _FIRST_SCC + place}
        found += [
            replace(insn, fields={**insn.fields, **moved}),
            instruction("S_CSELECT_B32", "SOP2", flag),
            instruction("S_MOV_B64", "SOP1", {"ssrc0": EXEC, "sdst": _FIRST_EXEC + 2 * place}),
            instruction("S_MOV_B64", "SOP1", {"ssrc0": _KEPT, "sdst": EXEC}),
        ]
    return found


#: Operands of an operation's forms: one set, and many.
SEEDS = pytest.mark.parametrize(
    "seeds", [range(1), pytest.param(range(1, 6), marks=pytest.mark.thorough)], ids=["", "more"]
)


@ARCHS
@SEEDS
@pytest.mark.parametrize("name", sorted(set(EXPRESSIONS) & set(VECTOR)))
def test_vector_operation(name: str, arch: str, seeds: range) -> None:
    """Prevents: a vector operation whose C code and NumPy code compute different bits."""
    floats = float_kind(VECTOR[name].outputs)
    forms = vector_forms(name, arch)
    for seed in seeds:
        compare(forms[0], results(in_one_program(forms), f"{name}{seed}", arch=arch), floats)


def test_sdwa_and_dpp() -> None:
    """Prevents: SDWA and DPP that select other bytes or lanes in C."""
    fields = {"src0": 249, "vsrc0": 258, "vsrc1": 260, "vdst": 266}
    for select in range(7):
        parts = {"src0_sel": select, "src1_sel": 6 - select, "src0_sext": select % 2}
        for unused in range(3):
            more = parts | {"dst_sel": select, "dst_unused": unused}
            insn = instruction("V_ADD_U32", "VOP2_SDWA", fields | more)
            compare(insn, results([insn], f"sdwa {select} {unused}"))
    controls = (0x1B, 0x101, 0x10F, 0x111, 0x121, 0x130, 0x138, 0x140, 0x141, 0x142, 0x143)
    for control in controls:
        for zeros in (0, 1):
            more = {"src0": 250, "dpp": control, "row_mask": 0xB, "bank_mask": 0xD, "bc": zeros}
            for name in ("V_ADD_F32", "V_MOV_B32"):
                form = "VOP1_DPP16" if "MOV" in name else "VOP2_DPP16"
                insn = instruction(name, form, fields | more)
                compare(insn, results([insn], f"dpp {control}"), "f32" if "F32" in name else "")


@RDNA
def test_dpp_of_32_lanes(arch: str) -> None:
    """Prevents: DPP in waves of 32 lanes, or of inactive lanes, that differs in C."""
    fields = {"src0": 250, "vsrc0": 258, "vsrc1": 260, "vdst": 266}
    for control in (0x1B, 0x101, 0x111, 0x121, 0x140, 0x141, 0x153, 0x165):
        for bits in range(4):
            more = {"dpp": control, "row_mask": 0xF, "bank_mask": 0xD, "bc": bits & 1}
            for name in ("V_ADD_F32", "V_MOV_B32"):
                form = "VOP1_DPP16" if "MOV" in name else "VOP2_DPP16"
                insn = instruction(name, form, fields | more | {"fi": bits >> 1})
                found = results([insn], f"dpp {control}", arch=arch)
                compare(insn, found, "f32" if "F32" in name else "")


#: Operations that a dual instruction can combine.
DUAL = (
    *("FMAC_F32", "FMAAK_F32", "FMAMK_F32", "MUL_F32", "ADD_F32", "SUB_F32", "SUBREV_F32"),
    *("MUL_DX9_ZERO_F32", "MOV_B32", "CNDMASK_B32", "MAX_F32", "MIN_F32", "ADD_U32"),
    *("LSHLREV_B32", "AND_B32"),
)


@RDNA
def test_dual_instructions(arch: str) -> None:
    """Prevents: a dual instruction in C whose second operation reads the first one's result."""
    operands = ((258, 260, 265), (265, 261, 266), (5, 266, 265), (242, 266, 260))
    for number, first in enumerate(DUAL):
        # Each operation reads the register that the other one writes.
        for place, (a, b, d) in enumerate(operands):
            second = DUAL[(number + 3 * place + 1) % len(DUAL)]
            parts = [
                instruction(f"V_{name}", "VOP2", part_fields, literal=0x40490FDB)
                for name, part_fields in (
                    (first, {"src0": a, "vsrc1": b, "vdst": d}),
                    (second, {"src0": d, "vsrc1": 257, "vdst": 266 if d != 266 else 267}),
                )
            ]
            insn = replace(instruction("V_DUAL", "VOPD", {}), parts=tuple(parts))
            add = instruction("V_ADD_U32", "VOP2", {"src0": 265, "vsrc1": 266, "vdst": 268})
            compare(insn, results([insn, add, insn], first, arch=arch), "f32")


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("select", range(4))
def test_sdwa_of_operations_without_c_code(select: int, arch: str) -> None:
    """Prevents: an SDWA source read as 0, since the instruction's second word names it."""
    fields = {"src0": 249, "vsrc0": 258, "vdst": 266, "src0_sel": select, "dst_sel": 6}
    insn = instruction("V_CVT_F32_FP8", "VOP1_SDWA", fields, {"src0": 1, "vdst": 1})
    found = results([insn], f"fp8 {select}", arch=arch)
    compare(insn, found, "f32")
    assert len(np.unique(found[1][0]["v"][10])) > 2


@ARCHS
@SEEDS
@pytest.mark.parametrize("name", sorted(set(EXPRESSIONS) & set(SCALAR)))
def test_scalar_operation(name: str, arch: str, seeds: range) -> None:
    """Prevents: a scalar operation whose C code and NumPy code compute different bits or SCC."""
    fields = {"ssrc0": 6, "ssrc1": 8, "sdst": 10, "simm16": 0x8003}
    form = "SOPK" if any(kind in ("k", "ku") for kind in SCALAR[name].inputs) else "SOP2"
    form = "SOP1" if len(SCALAR[name].inputs) == 1 and form == "SOP2" else form
    null = [{"ssrc0": NULL}, {"sdst": NULL}] if ISAS[arch].is_rdna else []
    forms = [
        instruction(name, form, fields | changes, literal=0x40490FDB)
        for changes in ({}, {"ssrc0": 193}, {"ssrc0": 253}, {"ssrc1": 135}, {"sdst": EXEC}, *null)
        if changes.get("ssrc0") != 253 or SCALAR[name].inputs[0] in ("u32", "i32")
    ]
    for seed in seeds:
        found = results(in_one_program(forms), f"{name}{seed}", arch=arch)
        compare(forms[0], found, "f32")


@ARCHS
@SEEDS
@pytest.mark.parametrize("name", sorted(set(EXPRESSIONS) & set(PACKED)))
def test_packed_operation(name: str, arch: str, seeds: range) -> None:
    """Prevents: a packed operation that selects other halves in C than in NumPy."""
    kind = PACKED[name].outputs[0]
    fields = {"src0": 258, "src1": 260, "src2": 262, "vdst": 266, "opsel_hi": 3, "opsel_hi2": 1}
    signs = ({"neg": 1, "neg_hi": 2},) if kind[0] == "f" else ()
    forms = [
        instruction(name, "VOP3P", fields | changes)
        for changes in ({}, {"opsel": 5}, {"opsel_hi": 1, "opsel_hi2": 0}, {"src1": 242}, *signs)
    ]
    for seed in seeds:
        found = results(in_one_program(forms), f"{name}{seed}", arch=arch)
        compare(forms[0], found, kind if kind[0] == "f" else "")


def matrix_names() -> list[str]:
    kinds = ("F16", "BF16", "FP8_FP8", "FP8_BF8", "BF8_FP8", "BF8_BF8", "F32")
    names = [
        f"V_MFMA_F32_{rows}X{rows}X{depth}_{kind}"
        for rows in (16, 32)
        for depth in (2, 4, 8, 16, 32)
        for kind in kinds
    ]
    return [name for name in names if supported(name) and _holds_whole_registers(name)]


def _holds_whole_registers(name: str) -> bool:
    found = NAME.match(name)
    assert found
    per_register = {"F32": 1, "F16": 2, "BF16": 2}.get(found[6], 4)
    return int(found[4]) // (64 // int(found[2])) >= per_register


@pytest.mark.parametrize("name", matrix_names())
def test_matrix_operation(name: str) -> None:
    """Prevents: a matrix multiplication that adds and rounds in another order in C."""
    for arch in ("gfx942", "gfx950"):
        for changes in ({}, {"src2": 242}, {"acc": 3, "acc_cd": 1}, {"src2": 272}, {"vdst": 258}):
            fields = {"src0": 256, "src1": 264, "src2": 270, "vdst": 270} | changes
            insn = instruction(name, "VOP3P_MFMA", fields)
            compare(insn, results([insn], name + arch, arch=arch), "f32")


@RDNA
@pytest.mark.parametrize("kind", ["F16", "BF16", "FP8_FP8", "FP8_BF8", "BF8_FP8", "BF8_BF8"])
def test_matrix_operation_of_32_lanes(kind: str, arch: str) -> None:
    """Prevents: WMMA in C with matrix rows or K values in other registers or lanes."""
    if kind not in ("F16", "BF16") and arch == "gfx1100":
        pytest.skip("RDNA3 has no floats of 8 bits")
    for changes in ({}, {"src2": 242}, {"src2": 281}, {"vdst": 258}):
        fields = {"src0": 256, "src1": 264, "src2": 272, "vdst": 272} | changes
        insn = instruction(f"V_WMMA_F32_16X16X16_{kind}", "VOP3P", fields)
        compare(insn, results([insn], kind, arch=arch), "f32")


@RDNA
@pytest.mark.parametrize("form", ["16_IU8", "16_IU4", "32_IU4"])
def test_matrix_operation_of_integers(form: str, arch: str) -> None:
    """Prevents: integer WMMA in C with other signs or sums."""
    if form == "32_IU4" and arch == "gfx1100":
        pytest.skip("RDNA3 does not have it")
    for neg in range(4):
        for changes in ({}, {"src2": 130}, {"src2": 281}, {"vdst": 258}, {"clmp": 1}):
            fields = {"src0": 256, "src1": 264, "src2": 272, "vdst": 272, "neg": neg} | changes
            insn = instruction(f"V_WMMA_I32_16X16X{form}", "VOP3P", fields)
            compare(insn, results([insn], form, arch=arch))


@RDNA
def test_dpp8(arch: str) -> None:
    """Prevents: DPP8 that reads other lanes in C."""
    selects = {f"lane_sel_{place}": (5 * place + 3) % 8 for place in range(8)}
    for mark in (DPP8, DPP8_FI):
        fields = {"src0": mark, "vsrc0": 258, "vsrc1": 260, "vdst": 266} | selects
        for name, form in (("V_MOV_B32", "VOP1_DPP8"), ("V_ADD_F32", "VOP2_DPP8")):
            insn = instruction(name, form, fields)
            compare(insn, results([insn], name, arch=arch), "f32" if "F32" in name else "")


LANE_OPERATIONS = [
    ("V_READFIRSTLANE_B32", "VOP1", {"src0": 258, "vdst": 256 + 30}),
    ("V_READLANE_B32", "VOP3", {"src0": 258, "src1": 5, "vdst": 30}),
    ("V_WRITELANE_B32", "VOP3", {"src0": 6, "src1": 5, "vdst": 266}),
    ("V_PERMLANE16_SWAP_B32", "VOP1", {"src0": 258, "vdst": 266}),
    ("V_PERMLANE32_SWAP_B32", "VOP1", {"src0": 258, "vdst": 266}),
    ("V_ACCVGPR_READ", "VOP3P", {"src0": 258, "vdst": 266}),
    ("V_ACCVGPR_WRITE", "VOP3P", {"src0": 258, "vdst": 266}),
    ("DS_BPERMUTE_B32", "DS", {"addr": 258, "data0": 260, "vdst": 266, "offset0": 8}),
    ("DS_PERMUTE_B32", "DS", {"addr": 258, "data0": 260, "vdst": 266}),
    ("DS_SWIZZLE_B32", "DS", {"addr": 258, "vdst": 266, "offset0": 0x1F, "offset1": 0x04}),
    ("DS_SWIZZLE_B32", "DS", {"addr": 258, "vdst": 266, "offset0": 0x1B, "offset1": 0x80}),
    ("V_MAD_MIX_F32", "VOP3P", {"src0": 258, "src1": 260, "src2": 262, "vdst": 266, "opsel_hi": 1}),
    ("V_MAD_MIXLO_F16", "VOP3P", {"src0": 258, "src1": 260, "src2": 262, "vdst": 266, "neg": 1}),
    ("V_MAD_MIXHI_F16", "VOP3P", {"src0": 258, "src1": 260, "src2": 262, "vdst": 266, "clmp": 1}),
    (
        "V_DOT2_F32_BF16",
        "VOP3P",
        {"src0": 258, "src1": 260, "src2": 262, "vdst": 266, "opsel_hi": 3},
    ),
    (
        "V_DOT2_F32_F16",
        "VOP3P",
        {"src0": 258, "src1": 260, "src2": 262, "vdst": 266, "opsel_hi": 3},
    ),
    ("V_SWAP_B32", "VOP1", {"src0": 258, "vdst": 266}),
    *(
        (name, "VOP3", {"src0": 258, "src1": 6, "src2": 7, "vdst": 266, "opsel": bits})
        for name in ("V_PERMLANE16_B32", "V_PERMLANEX16_B32")
        for bits in range(4)
    ),
    # Without C code: these run in NumPy, between instructions in C.
    ("V_SIN_F32", "VOP3", {"src0": 258, "vdst": 266}),
    ("V_CVT_PK_FP8_F32", "VOP3", {"src0": 258, "src1": 260, "vdst": 266}),
]


@ARCHS
@pytest.mark.parametrize(("name", "form", "fields"), LANE_OPERATIONS)
def test_other_operation(name: str, form: str, fields: Mapping[str, int], arch: str) -> None:
    """Prevents: operations across lanes, or on register halves, that differ in C."""
    if ISAS[arch].is_rdna and ("ACCVGPR" in name or (name.endswith("SWAP_B32") and "PERM" in name)):
        pytest.skip("RDNA does not have it")
    words = {field: 1 for field in ("src0", "src1", "vdst") if field in fields}
    insn = instruction(name, form, fields, words)
    add = instruction("V_ADD_U32", "VOP2", {"src0": 266, "vsrc1": 266, "vdst": 268})
    kind = "f32" if "F32" in name and "FP8" not in name else "f16" if "F16" in name else ""
    compare(insn, results([insn, add], name, arch=arch), kind)


def addresses(memory: Array, arch: str, spread: int = 16) -> tuple[Array, Array]:
    """Return lower and upper halves of an address in memory for each lane."""
    places = U64(memory.ctypes.data) + lane_numbers(arch).astype(U64) * U64(spread)
    return places.astype(U32), (places >> U64(32)).astype(U32)


ACCESSES = [
    *(
        (f"{space}_{kind}", space)
        for space in ("GLOBAL", "FLAT", "BUFFER", "SCRATCH", "DS")
        for kind in (
            ("READ_B32", "READ_B64", "READ_B96", "READ_B128", "READ_U8", "READ_I8", "READ_U16",
             "READ_U16_D16", "READ_U16_D16_HI", "WRITE_B8", "WRITE_B16_D16_HI", "WRITE_B32",
             "WRITE_B64", "WRITE_B128", "READ2_B32", "READ2ST64_B64", "WRITE2_B64",
             "WRITE2ST64_B32", "READ_B64_TR_B16", "ADD_F32", "ADD_RTN_U32", "MAX_RTN_I32",
             "ADD_U64", "INC_RTN_U32", "DEC_U32", "WRXCHG_RTN_B64", "CMPST_RTN_B32", "CMPST_B64",
             "CMPSTORE_RTN_B32", "MIN_RTN_I64", "MAX_U64", "XOR_RTN_B64")
            if space == "DS"
            else
            ("LOAD_UBYTE", "LOAD_SBYTE", "LOAD_USHORT", "LOAD_SHORT_D16", "LOAD_SHORT_D16_HI",
             "LOAD_DWORD", "LOAD_DWORDX2", "LOAD_DWORDX3", "LOAD_DWORDX4", "STORE_BYTE",
             "STORE_SHORT", "STORE_SHORT_D16_HI", "STORE_DWORD", "STORE_DWORDX2",
             "STORE_DWORDX4", *(() if space == "SCRATCH" else (
             "ATOMIC_ADD_F32", "ATOMIC_ADD", "ATOMIC_PK_ADD_F16", "ATOMIC_PK_ADD_BF16",
             "ATOMIC_ADD_F64", "ATOMIC_UMAX", "ATOMIC_SMIN", "ATOMIC_ADD_X2", "ATOMIC_SWAP",
             "ATOMIC_CMPSWAP", "ATOMIC_CMPSWAP_X2", "ATOMIC_INC", "ATOMIC_DEC_X2", "ATOMIC_UMIN_X2",
             "ATOMIC_SMAX_X2")))
        )
    ),
]  # fmt: skip


@ARCHS
@pytest.mark.parametrize(("name", "space"), ACCESSES)
@pytest.mark.parametrize("bad", [False, True])
def test_access(name: str, space: str, bad: bool, arch: str) -> None:
    """Prevents: an access in C with another address, mask, range check or fault."""
    lanes = ISAS[arch].lanes
    if "TR_B16" in name and lanes == 32:
        pytest.skip("RDNA does not have it")
    # Without NaNs: the sum of two NaNs may be either of them.
    memory = np.random.default_rng(1).integers(0, 256, WAVES * lanes * 16 + 64, dtype=U8) & U8(0xBF)
    memory = memory[:-800] if bad else memory
    low, high = addresses(memory, arch, 12 if "ATOMIC" in name and bad else 16)
    fields = {"addr": 258, "data": 260, "data0": 260, "data1": 262, "vdst": 266, "saddr": 0x7F}
    fields |= {"offset": 0, "offset0": 0, "offset1": 1, "sve": 1, "sc0": int("ATOMIC" in name)}
    registers: dict[int, Array] = {2: low, 3: high}
    scalars: dict[int, int] = {}
    lane = lane_numbers(arch)
    if space == "BUFFER":
        fields |= {"vaddr": 258, "offen": 1, "vdata": 260, "srsrc": 40, "soffset": 128}
        registers = {2: lane * U32(16)}
        address = int(memory.ctypes.data)
        scalars = {40: address & 0xFFFFFFFF, 41: address >> 32, 43: 0}
        # Out of the buffer's range is not a fault, unless the range exceeds the allocation.
        scalars[42] = memory.nbytes + (4096 if bad else -100)
    if space == "SCRATCH":
        registers = {2: lane % U32(60 if bad else 56) * U32(4)}
    if space == "DS":
        # Lanes of a wave access the same bytes; different waves do not.
        wave = np.arange(WAVES, dtype=U32)[:, None]
        beyond = 1352 if lanes == 64 else 1936
        registers = {2: lane % U32(lanes) * U32(8) + wave * U32(beyond if bad else 1200)}
        fields |= {"offset1": 1 if "2" in name[:10] else 0}
    form = {"BUFFER": "MUBUF", "SCRATCH": "SCRATCH"}.get(space, space)
    insn = instruction(name, form, fields)
    found = results([insn], name, registers, scalars, memory, arch=arch)
    compare(insn, found, "f32" if "F32" in name else "f64" if "F64" in name else "")
    if bad and space in ("GLOBAL", "FLAT", "BUFFER") and "X4" in name:
        assert found[0][1], "no fault is compared"


@ARCHS
@pytest.mark.parametrize("space", ["GLOBAL", "SCRATCH"])
def test_negative_offsets(space: str, arch: str) -> None:
    """Prevents: an offset decoded with 13 bits when the instruction set has 24."""
    memory = np.random.default_rng(1).integers(0, 256, 4096, dtype=U8)
    low, high = addresses(memory, arch, 4)
    registers = {2: low, 3: high}
    if space == "SCRATCH":
        registers = {2: lane_numbers(arch) % U32(32) * U32(4) + U32(64)}
    for offset in (-8, 40):
        field = offset & ((1 << ISAS[arch].offset_bits) - 1)
        fields = {"addr": 258, "vdst": 266, "saddr": 0x7F, "sve": 1, "offset": field}
        insn = instruction(f"{space}_LOAD_DWORD", space, fields)
        found = results([insn], space, registers, memory=memory, arch=arch)
        compare(insn, found)
        assert bool(found[0][1]) == (offset < 0 and space == "GLOBAL")


@pytest.mark.parametrize("name", ["DS_READ_B32", "DS_READ2_B32", "DS_WRITE_B16"])
def test_an_offset_from_a_negative_place_in_the_lds(name: str) -> None:
    """Prevents: faults when a compiler adds an LDS offset to a negative base address."""
    registers = {2: (lane_numbers("gfx950") - U32(16)) * U32(4)}
    two = "READ2" in name
    fields = {"addr": 258, "data0": 260, "vdst": 266, "offset0": 16 if two else 64, "offset1": 0}
    found = results(
        [instruction(name, "DS", fields | ({"offset1": 17} if two else {}))], name, registers
    )
    compare(instruction(name, "DS", fields), found)
    (final, faults, error), _ = found
    assert not faults
    assert not error
    if "READ" in name:
        # All lanes of the first wave are active.
        assert (final["v"][10][0] == final["lds"].reshape(-1).view(U32)[:64]).all()


@ARCHS
@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("name", ["S_LOAD_DWORDX4", "S_BUFFER_LOAD_DWORDX8", "BUFFER_LOAD_DWORD"])
def test_scalar_access_and_loads_to_the_lds(name: str, bad: bool, arch: str) -> None:
    """Prevents: scalar loads, or loads to the LDS, with other addresses or faults in C."""
    if name.startswith("BUFFER") and ISAS[arch].is_rdna:
        pytest.skip("RDNA does not have it")
    memory = np.random.default_rng(2).integers(0, 256, 4096, dtype=U8)
    address = int(memory.ctypes.data) + (4090 if bad else 64)
    scalars = {40: address & 0xFFFFFFFF, 41: address >> 32, 42: 5000 if bad else 40, 43: 0}
    fields = {"sbase": 40, "sdata": 60, "imm": 1, "offset": 8}
    form = "SMEM"
    if name.startswith("BUFFER"):
        fields = {"vaddr": 258, "offen": 1, "vdata": 260, "srsrc": 40, "soffset": 128, "lds": 1}
        scalars[M0] = LDS_BYTES - 100 if bad else 512
        form = "MUBUF"
    insn = instruction(name, form, fields)
    registers = {2: lane_numbers(arch) * U32(4)}
    compare(insn, results([insn], name, registers, scalars, memory, arch=arch))


@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("name", ["BUFFER_LOAD_DWORDX2", "BUFFER_STORE_DWORD"])
def test_scratch_memory_of_gfx90a(name: str, bad: bool) -> None:
    """Prevents: another address in C for gfx90a's scratch memory, a swizzled buffer."""
    fields = {"vaddr": 258, "offen": 1, "vdata": 260, "srsrc": 40, "soffset": 128, "offset": 4}
    registers = {2: lane_numbers("gfx90a") % U32(70 if bad else 60) * U32(4)}
    swizzled = {40: -1, 41: 1 << 31, 42: 4096, 43: 0}
    insn = instruction(name, "MUBUF", fields)
    compare(insn, results([insn], name, registers, swizzled, arch="gfx90a"))


@ARCHS
def test_control_flow(arch: str) -> None:
    """Prevents: waves that diverge, wait, or never end differently in C."""
    compare_scc = instruction("S_CMP_LT_U32", "SOPC", {"ssrc0": 6, "ssrc1": 7})
    skip = instruction("S_CBRANCH_SCC1", "SOPP", {"simm16": 3})
    add = instruction("S_ADD_U32", "SOP2", {"ssrc0": 6, "ssrc1": 129, "sdst": 6})
    barrier = instruction("S_BARRIER", "SOPP", {})
    compare(skip, results([compare_scc, skip, add, barrier, add], "branch", arch=arch))
    for name in ("VCCZ", "VCCNZ", "EXECZ", "EXECNZ"):
        skip = instruction(f"S_CBRANCH_{name}", "SOPP", {"simm16": 1})
        # With 32 lanes, the upper halves of VCC and EXEC are not part of the mask.
        for halves in (0, 1 << 32, 1):
            scalars = {VCC: halves, VCC + 1: halves >> 32, EXEC: halves, EXEC + 1: halves >> 32}
            compare(skip, results([skip, add, barrier], name, scalars=scalars, arch=arch))
    back = instruction("S_BRANCH", "SOPP", {"simm16": 0x10000 - 3})
    compare(back, results([add, back], "endless", limit=50, arch=arch))
    unknown = instruction("V_NO_SUCH_OPERATION", "VOP3", {"vdst": 256})
    compare(unknown, results([add, unknown], "unsupported", arch=arch))
    outside = instruction("S_BRANCH", "SOPP", {"simm16": 100})
    compare(outside, results([outside], "outside", arch=arch))


def test_a_launch_without_memory_is_an_error() -> None:
    """Prevents: a crash, or success without running a wave, when memory is exhausted."""
    launch = native._Launch(count=1 << 44, groups=1, insn_count=1)
    function = native.engine()
    if function is None:
        pytest.skip("the engine cannot be compiled")
    function(ctypes.byref(launch))
    run = NativeRun.__new__(NativeRun)
    run._program = make_program([], "gfx950")
    with pytest.raises(MemoryError, match="the waves of a launch of test"):
        run._raise(launch.status, 0)
