"""Builds waves with random registers, and runs single instructions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from gfxemu import native
from gfxemu.arrays import U8, U32, U64, Array
from gfxemu.decode import Instruction
from gfxemu.encode import encode_instruction
from gfxemu.faults import Faults
from gfxemu.isa import CDNA, ISAS, Isa
from gfxemu.machine import Machine
from gfxemu.memory import AddressMap
from gfxemu.native import NativeProgram, NativeRun
from gfxemu.program import Program
from gfxemu.records import Context, Record
from gfxemu.registers import EXEC, LANES, SGPRS, Layout
from qola_base.code_object.reader import CodeObject, Descriptor, Kernel

#: Floats that operations treat specially, as f32.
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 65504.0, 1e-3, 3.5, 2.5, -2.5, 1e30]
#: Signalling NaNs of both signs, as bits: infinities but for the lowest bit.
SIGNALLING = {
    "f16": np.array([0x7C01, 0xFC01], U64),
    "f32": np.array([0x7F800001, 0xFF800001], U64),
    "f64": np.array([0x7FF0000000000001, 0xFFF0000000000001], U64),
}
VGPR_COUNT, FIRST_AGPR = 64, 32
#: Bytes of an instruction that a test makes.
SIZE = 8


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


def make_program(
    instructions: Sequence[Instruction], arch: str = "gfx950", checked: bool = False
) -> Program:
    """Make a program of instructions of 8 bytes, and end the kernel."""
    end, isa = instruction("S_ENDPGM", "SOPP", {}), ISAS[arch]
    code: dict[int, Instruction | str] = {}
    for place, insn in enumerate([*instructions, end]):
        parts = tuple(replace(part, isa=isa) for part in insn.parts)
        code[SIZE * place] = replace(insn, pc=SIZE * place, size=SIZE, isa=isa, parts=parts)
    descriptor = Descriptor(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    kernel = Kernel("test", 0, SIZE * len(code), descriptor, (), 1024)
    program = Program(CodeObject(arch, b"", {"test": kernel}), kernel, checked, code)
    # Set accumulation registers here instead of encoding them in the descriptor.
    return with_registers(program, FIRST_AGPR, VGPR_COUNT)


class Waves:
    """Waves of a workgroup, between instructions.

    Attributes:
        v: vector registers; (registers, waves, lanes).
        s: scalar registers; (waves, 128).
        scc: condition codes; (waves, 1).
        known_v, known_s: which of these were written, if accesses are checked.
        fnuz: whether floats of 8 bits have the formats of gfx942.
    """

    def __init__(
        self, v: Array, s: Array, scc: Array | bool, machine: Machine, fnuz: bool = False
    ) -> None:
        self.registers = native.Waves.begin(np.ascontiguousarray(v.transpose(1, 0, 2)), s, 1)
        self.registers.scc[:] = np.broadcast_to(scc, (len(s), 1))[:, 0]
        self.machine, self.fnuz = machine, fnuz
        self.v = self.registers.v.transpose(1, 0, 2)
        self.s, self.scc = s, self.registers.scc[:, None]
        self.known_v, self.known_s = np.ones(v.shape, bool), np.ones(s.shape, bool)

    def lanes(self, number: int) -> Array:
        """Return a mask in scalar registers, two for 64 lanes, as booleans; (waves, lanes)."""
        bits = np.ascontiguousarray(self.s[:, number : number + self.machine.lanes // 32])
        return np.unpackbits(bits.view(U8), axis=1, bitorder="little").view(bool)

    @property
    def exec(self) -> Array:
        """The lanes that are active; (waves, lanes)."""
        return self.lanes(EXEC)

    def pair(self, number: int) -> int:
        """Return two scalar registers of the first wave as a number."""
        return int(self.s[0, number]) | int(self.s[0, number + 1]) << 32


def waves(
    registers: Array | None = None,
    scalars: Array | None = None,
    active: int = 2**64 - 1,
    lds_bytes: int = 1024,
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
        checked=checked,
        lanes=lanes,
    )
    return Waves(v, s, scc, machine, fnuz)


def put(registers: Array, number: int, values: Array) -> None:
    """Write numbers of any type, of up to 64 bits, to the first lanes of two registers."""
    bits = values.view(f"u{values.itemsize}").astype(U64)
    lanes = slice(bits.shape[-1])
    registers[number, ..., lanes], registers[number + 1, ..., lanes] = bits, bits >> U64(32)


def take(registers: Array, number: int, kind: Any) -> Array:
    """Return the numbers of a type that two registers hold."""
    bits = registers[number].astype(U64) | registers[number + 1].astype(U64) << U64(32)
    return bits.astype(f"u{np.dtype(kind).itemsize}").view(kind)


def encode(insn: Instruction) -> Record:
    """Return the record of an instruction.

    Raises:
        UnsupportedError: it is not emulated.
    """
    layout = Layout(VGPR_COUNT, FIRST_AGPR, insn.isa.lanes)
    return encode_instruction(Context(layout, False, False), insn)


def run(insn: Instruction, w: Waves | None = None, **state: object) -> Waves:
    """Run an instruction on waves; without waves, build them from `state`.

    Raises:
        UnsupportedError: it is not emulated.
    """
    encode(insn)
    w = w or waves(lanes=insn.isa.lanes, **state)  # type: ignore[arg-type]
    archs = [arch for arch, isa in ISAS.items() if isa is insn.isa]
    arch = "gfx942" if w.fnuz else archs[-1]
    run_program(make_program([insn], arch, w.machine.checked), w)
    return w


def run_program(program: Program, w: Waves, limit: int = 1_000_000) -> None:
    """Run a program on waves.

    Raises:
        EmulationError: as `NativeRun.run`.
    """
    found = w.registers
    if w.machine.checked:
        octets = np.zeros((*found.v.shape[:2], 8), U8)
        known = np.packbits(w.known_v.transpose(1, 0, 2), axis=2, bitorder="little")
        octets[:, :, : known.shape[2]] = known
        found.known_v, found.known_s = octets.view(U64)[:, :, 0].copy(), w.known_s.astype(U8)
    try:
        NativeRun(NativeProgram.make(program), found, w.machine, limit, 0).run()
    finally:
        if found.known_v is not None and found.known_s is not None:
            octets = found.known_v.view(U8).reshape(*found.v.shape[:2], 8)
            bits = np.unpackbits(octets, axis=2, bitorder="little")[:, :, : w.machine.lanes]
            w.known_v, w.known_s = bits.view(bool).transpose(1, 0, 2), found.known_s.view(bool)


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
    bits = values.view(unsigned).astype(np.uint64)
    return np.where(rng.random(shape) < 0.06, rng.choice(SIGNALLING[kind], shape), bits)
