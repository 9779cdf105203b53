"""Builds waves with random registers, runs single instructions on them in either engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from numpy.random import Generator

from gfxemu import native
from gfxemu.arrays import U32, Array
from gfxemu.check import checking
from gfxemu.decode import Instruction
from gfxemu.faults import Faults
from gfxemu.isa import CDNA, ISAS, Isa
from gfxemu.machine import Machine
from gfxemu.memory import AddressMap
from gfxemu.native import NativeProgram, NativeRun
from gfxemu.operands import Literals
from gfxemu.program import Program, bind
from gfxemu.records import RUN_FALLBACK
from gfxemu.waves import AGPRS, EXEC, LANES, SGPRS, VGPRS, Layout, Waves
from qola_base.code_object.reader import CodeObject, Descriptor, Kernel

#: Floats that operations treat specially, as f32.
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 65504.0, 1e-3, 3.5, 2.5, -2.5, 1e30]
VGPR_COUNT, FIRST_AGPR = 64, 32
#: Bytes of an instruction that a test makes.
SIZE = 8


#: A test with the engine that users run, and with the one that runs if there is no C compiler.
ENGINES = pytest.mark.parametrize("engine", ["C", "NumPy"])


@contextmanager
def in_engine(name: str) -> Iterator[None]:
    """Let `run` use an engine of `ENGINES`; skip the test if this machine does not have it."""
    global _run  # noqa: PLW0603
    if name == "C" and native.engine() is None:
        pytest.skip("no engine for this machine")
    before, _run = _run, _run_in_c if name == "C" else _run_in_numpy
    try:
        yield
    finally:
        _run = before


def instruction(
    name: str,
    form: str,
    fields: Mapping[str, int],
    words: Mapping[str, int] | None = None,
    literal: int | None = None,
    isa: Isa = CDNA,
) -> Instruction:
    """Build an instruction directly, without assembling or decoding it."""
    operands = dict(fields), dict(words or {})
    return Instruction(0, 8, name, form, *operands, literal, name.lower(), isa)


def with_registers(program: Program, first_agpr: int, vgprs: int) -> Program:
    """Give a program's waves other register counts than its descriptor encodes."""
    layout = replace(program.layout, first_agpr=first_agpr, vgprs=vgprs)
    program.__class__ = type("_Program", (Program,), {"layout": layout})
    return program


def make_program(instructions: Sequence[Instruction], arch: str = "gfx950") -> Program:
    """Make a program of instructions of 8 bytes, and end the kernel."""
    end, isa = instruction("S_ENDPGM", "SOPP", {}), ISAS[arch]
    code: dict[int, Instruction | str] = {}
    for place, insn in enumerate([*instructions, end]):
        parts = tuple(replace(part, isa=isa) for part in insn.parts)
        code[SIZE * place] = replace(insn, pc=SIZE * place, size=SIZE, isa=isa, parts=parts)
    descriptor = Descriptor(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    kernel = Kernel("test", 0, SIZE * len(code), descriptor, (), 1024)
    program = Program(CodeObject(arch, b"", {"test": kernel}), kernel, code=code)
    program.bind_all()
    # Set accumulation registers here instead of encoding them in the descriptor.
    return with_registers(program, FIRST_AGPR, VGPR_COUNT)


def waves(
    registers: Array | None = None,
    scalars: Array | None = None,
    active: int = 2**64 - 1,
    lds_bytes: int = 1024,
    literals: Literals | None = None,
    map_: AddressMap | None = None,
    count: int = 1,
    scc: Array | bool = False,
    fnuz: bool = False,
    checked: bool = False,
    lanes: int = LANES,
) -> Waves:
    """Build a workgroup of waves; registers are (register, wave, lane), and 0 by default."""
    v = np.zeros((VGPR_COUNT, count, lanes), U32)
    if registers is not None:
        v[: len(registers)] = registers
    s = np.zeros((count, SGPRS), U32)
    if scalars is not None:
        s[:, : scalars.shape[-1]] = scalars
    s[:, EXEC], s[:, EXEC + 1] = active & 0xFFFFFFFF, active >> 32 if lanes == LANES else 0
    machine = Machine(
        *("test", map_ or AddressMap(), Faults(), lds_bytes, 256, 1, count),
        fnuz=fnuz,
        checked=checked,
        lanes=lanes,
    )
    layout = Layout(VGPR_COUNT, FIRST_AGPR, tuple(literals.bits) if literals else (), lanes)
    zeros = np.zeros(count, np.int64)
    known = (np.ones(v.shape, bool), np.ones(s.shape, bool)) if checked else ()
    return Waves(layout, v, s, np.full((count, 1), scc), zeros, np.arange(count), 0, machine, known)


def run(insn: Instruction, w: Waves | None = None, **state: object) -> Waves:
    """Run an instruction on waves; without waves, build them from `state`.

    Raises:
        UnsupportedError: it cannot be bound.
    """
    literals = Literals()
    bind(insn, literals)
    w = w or waves(literals=literals, lanes=insn.isa.lanes, **state)  # type: ignore[arg-type]
    # Only the NumPy engine records which registers were written.
    (_run_in_numpy if w.known else _run)(insn, w)
    return w


def _run_in_numpy(insn: Instruction, w: Waves) -> None:
    step = bind(insn, Literals())
    with np.errstate(all="ignore"):
        if step is not None:
            (checking(insn, step) if w.known else step)(w)


def _run_in_c(insn: Instruction, w: Waves) -> None:
    if native.engine(w.layout.lanes) is None:
        _run_in_numpy(insn, w)
        return
    archs = [arch for arch, isa in ISAS.items() if isa is insn.isa]
    arch = "gfx942" if w.machine.fnuz else archs[-1]
    encoded = NativeProgram.make(make_program([insn], arch))
    if not insn.words and encoded.encoded.words[0, 0] == RUN_FALLBACK:
        # The engine passes NumPy only the registers that the tables list.
        encoded = NativeProgram.make(make_program([_with_words(insn)], arch))
    live = np.bincount(w.groups, minlength=w.machine.groups)
    native_run = NativeRun(encoded, w, live, 1_000_000, 0)
    try:
        native_run.run()
    finally:
        w.v[...] = native_run.v.transpose(1, 0, 2)
        w.s[...], w.scc[:, 0] = native_run.s, native_run.scc
        w.update_exec()


def _with_words(insn: Instruction) -> Instruction:
    """Return an instruction with the most registers that one of its fields may name."""
    words = {
        name: min(16, FIRST_AGPR - number % FIRST_AGPR)
        for name, number in insn.fields.items()
        if VGPRS <= number < AGPRS
    }
    return replace(insn, words=words)


_run: Callable[[Instruction, Waves], None] = _run_in_c


def random_bits(rng: Generator, kind: str, shape: tuple[int, ...]) -> Array:
    """Return bits of random numbers of a type, some of them special values, as u64."""
    if kind[0] != "f":
        bits = rng.integers(0, 2**63, shape, dtype=np.uint64) * np.uint64(2)
        bits |= rng.integers(0, 2, shape, dtype=np.uint64)
        small = rng.random(shape) < 0.3
        return np.where(small, bits % np.uint64(40), bits)
    floats = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
    with np.errstate(all="ignore"):
        values = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(floats)
        special = np.array(SPECIAL).astype(floats)[rng.integers(0, len(SPECIAL), shape)]
    values = np.where(rng.random(shape) < 0.25, special, values)
    unsigned = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}[kind]
    return values.view(unsigned).astype(np.uint64)
