"""Translates a kernel into blocks of Python functions, one for each instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gfxemu.arrays import U64, Array
from gfxemu.bind import bind_table
from gfxemu.buffers import BUFFERS, SCALAR_MEMORY
from gfxemu.check import checking
from gfxemu.decode import Instruction, sweep
from gfxemu.faults import EmulationError, Fault
from gfxemu.isa import ISAS
from gfxemu.lanes import LANES, Binder
from gfxemu.lds import LDS
from gfxemu.matrix import MIXED, bind_matrix
from gfxemu.operands import Literals, UnsupportedError, listed, wide, write_scalar
from gfxemu.printf import HOSTCALL
from gfxemu.races import counting, size_of
from gfxemu.waits import Waits
from gfxemu.waves import EXEC, VCC, Layout, Step, Waves
from qola_base.arch_facts import ARCHS
from qola_base.code_object.reader import CodeObject, Kernel

#: Waits, which `waits` checks, and hints: accesses are complete at once, and time is not emulated.
NOTHING = (
    *("S_NOP", "S_WAITCNT", "S_SETPRIO", "S_SLEEP", "S_ICACHE_INV", "S_DCACHE_INV", "S_DCACHE_WB"),
    *("BUFFER_WBL2", "BUFFER_INV"),
    *("S_CLAUSE", "S_DELAY_ALU", "S_DENORM_MODE", "S_WAIT_ALU", "S_WAIT_IDLE", "S_WAIT_EXPCNT"),
    *("S_WAIT_LOADCNT", "S_WAIT_STORECNT", "S_WAIT_DSCNT", "S_WAIT_KMCNT"),
    *("S_WAIT_SAMPLECNT", "S_WAIT_BVHCNT"),
    *("S_WAIT_LOADCNT_DSCNT", "S_WAIT_STORECNT_DSCNT", "S_SET_INST_PREFETCH_DISTANCE"),
    *("S_WAITCNT_DEPCTR", "S_WAITCNT_VMCNT", "S_WAITCNT_VSCNT", "S_WAITCNT_LGKMCNT"),
    "S_WAITCNT_EXPCNT",
)

#: By branch: which waves take it, a boolean each.
BRANCHES: dict[str, Callable[[Waves], Array]] = {
    "S_CBRANCH_SCC0": lambda w: ~w.scc[:, 0],
    "S_CBRANCH_SCC1": lambda w: w.scc[:, 0],
    "S_CBRANCH_VCCZ": lambda w: w.mask(VCC)[:, 0] == 0,
    "S_CBRANCH_VCCNZ": lambda w: w.mask(VCC)[:, 0] != 0,
    "S_CBRANCH_EXECZ": lambda w: w.mask(EXEC)[:, 0] == 0,
    "S_CBRANCH_EXECNZ": lambda w: w.mask(EXEC)[:, 0] != 0,
}

#: Instructions that end a block, in addition to branches.
ENDS = frozenset({"S_BRANCH", "S_BARRIER", "S_ENDPGM", "S_SETPC_B64", "S_SWAPPC_B64", "S_CALL_B64"})

#: The barrier of the workgroup: the constant -1.
_WORKGROUP = 193
_DEALLOC_VGPRS = 3
_MODE = 1
#: Bits of the mode that change nothing here: denormals, DX10_CLAMP and IEEE.
_IGNORED = 0x3F0
_TRAP = 2


def _getpc(one: Instruction, literals: Literals) -> Step:
    write = write_scalar(one["sdst"], "u64")
    after = one.pc + one.size

    def run(w: Waves) -> None:
        write(w, np.full((w.count, 1), w.machine.entry + after, U64))

    return run


def _setreg(one: Instruction, literals: Literals) -> Step:
    """Of the hardware's registers only the mode is written: how denormals and rounding are done.

    Denormals are always kept and clamp always makes 0 of a NaN, so their bits change nothing;
    another way to round, traps and FP16_OVFL are not emulated.
    """
    where = one["simm16"]
    register, offset, width = where & 63, where >> 6 & 31, (where >> 11) + 1
    if register != _MODE:
        raise UnsupportedError(f"a write of hardware register {register}")
    if one.literal is None:
        raise UnsupportedError("a write of the mode from a register")
    value = (one.literal & (1 << width) - 1) << offset
    # Bits 0 to 3 are the rounding of f32, f16 and f64: to nearest is 0.
    if value & 0xF:
        raise UnsupportedError("rounding that is not to nearest")
    if value & ~_IGNORED:
        raise UnsupportedError(f"bits {value & ~_IGNORED:#x} of the mode")
    return lambda w: None


def _round_mode(one: Instruction, literals: Literals) -> Step:
    if one["simm16"] & 0xF:
        raise UnsupportedError("rounding that is not to nearest")
    return lambda w: None


def _signal(one: Instruction, literals: Literals) -> Step:
    """A wave reaches the barrier: here it does so only when it begins to wait."""
    if one["ssrc0"] != _WORKGROUP:
        raise UnsupportedError("a barrier other than the workgroup's")
    return lambda w: None


def _send_message(one: Instruction, literals: Literals) -> Step:
    """A wave tells the hardware that it needs no vector registers any more."""
    if one["simm16"] != _DEALLOC_VGPRS:
        raise UnsupportedError(f"message {one['simm16']}")
    return lambda w: None


def _bind_dual(one: Instruction, literals: Literals) -> Step:
    """Two operations at once: neither reads the result of the other."""
    first, second = (bind(part, literals) for part in one.parts)
    assert first
    assert second
    target = listed(one.parts[0]["vdst"], "u32")

    def run(w: Waves) -> None:
        before = target(w).copy()
        first(w)
        result = target(w).copy()
        target(w)[...] = before
        second(w)
        target(w)[...] = result

    return run


def _trap(one: Instruction, literals: Literals) -> Step:
    """End the launch: trap 2 is that of assert, abort() and __builtin_trap()."""
    if one["simm16"] != _TRAP:
        raise UnsupportedError(f"trap {one['simm16']}")

    def run(w: Waves) -> None:
        text = w.machine.hostcalls.error if w.machine.hostcalls else b""
        detail = text.decode("utf-8", "replace").strip() or "the kernel ended itself"
        raise EmulationError(w.machine.fault(w, one, "trap", detail, w.exec))

    return run


def _serve(w: Waves) -> None:
    """Answer calls of the host: waves sleep until they have an answer."""
    if w.machine.hostcalls:
        w.machine.hostcalls.serve()


def jump_target(one: Instruction) -> Callable[[Waves], Array]:
    """Return a function for a jump's targets: offsets from the kernel's first instruction."""
    read = wide(one, "ssrc0", "u64")
    return lambda w: (read(w)[:, 0] - U64(w.machine.entry)).astype(np.int64)


CONTROL: dict[str, Binder] = {
    "S_GETPC_B64": _getpc,
    "S_SETREG_IMM32_B32": _setreg,
    "S_ROUND_MODE": _round_mode,
    "S_BARRIER_SIGNAL": _signal,
    "S_SENDMSG": _send_message,
    "S_TRAP": _trap,
}


#: Operations with a binder of their own.
BINDERS: dict[str, Binder] = {**LANES, **LDS, **BUFFERS, **SCALAR_MEMORY, **CONTROL, **MIXED}


def bind(one: Instruction, literals: Literals) -> Step | None:
    """The function of an instruction; None where it changes nothing.

    Raises:
        UnsupportedError: it is not emulated.
    """
    if one.name in NOTHING:
        return None
    binder = BINDERS.get(one.name)
    if binder is not None:
        return binder(one, literals)
    if one.parts:
        return _bind_dual(one, literals)
    if one.form == "VOP3P_MFMA" or one.name.startswith("V_WMMA_"):
        return bind_matrix(one, literals)
    step = bind_table(one, literals)
    if step is None:
        raise UnsupportedError("the operation is not emulated")
    return step


@dataclass
class Block:
    """Instructions that follow each other.

    Attributes:
        steps: their functions.
        places: the instruction of each.
        instructions: how many there are, those that change nothing included.
        end: the instruction that ends it, None where the next block begins.
        after: offset of the next instruction.
    """

    start: int
    steps: list[Step]
    places: list[Instruction]
    instructions: int
    end: Instruction | None
    after: int


class Program:
    """A kernel; its functions and blocks are made when they are needed.

    Attributes:
        arch: that of its code object.
        isa: the arch's instruction set.
        fnuz: whether the arch's floats of 8 bits have the FNUZ formats.
        code: the instruction at each offset, or the reason why it cannot be decoded.
        starts: offsets at which blocks begin.
        literals: constants that the ISA lacks, complete before the first wave starts.
        waits: outstanding loads of waves.
        lds_accesses: instructions that access the LDS.
        checked: whether reads of uninitialised registers are reported.
    """

    def __init__(
        self,
        code_object: CodeObject,
        kernel: Kernel,
        checked: bool = False,
        code: Mapping[int, Instruction | str] | None = None,
    ) -> None:
        """Take the instructions of a kernel, decoded from its code object unless given."""
        self.arch = code_object.arch
        self.isa = ISAS[self.arch]
        self.fnuz = ARCHS[self.arch].fp8 == "fnuz"
        self.kernel = kernel
        self.checked = checked
        if code is None:
            code = read_code(code_object, kernel)
        self.code = code
        self.literals = Literals()
        self._bound: dict[int, Step | str | None] = {}
        self._blocks: dict[int, Block] = {}
        decoded = [one for one in code.values() if isinstance(one, Instruction)]
        self.lds_accesses = [one for one in decoded if size_of(one)]
        self.starts = set(_targets(self.code.values()))
        first_agpr = kernel.descriptor.first_agpr
        self.waits = Waits(self.code, frozenset(BRANCHES) | ENDS, self.starts, first_agpr)

    def bind_all(self) -> None:
        """Bind all instructions, before waves exist that NumPy executes.

        Literals are registers, of which waves have a view each: they must not come later.
        """
        for pc in self.code:
            self.bound(pc)

    @property
    def layout(self) -> Layout:
        """Registers that waves have."""
        descriptor, isa = self.kernel.descriptor, self.isa
        first_agpr = descriptor.vgprs if isa.is_rdna else descriptor.first_agpr
        registers = max(descriptor.vgprs, first_agpr)
        return Layout(registers, first_agpr, tuple(self.literals.bits), isa.lanes)

    def bound(self, pc: int) -> Step | str | None:
        """Return the function at an offset, None for no effect, or why it is not emulated."""
        if pc not in self._bound:
            one = self.code[pc]
            self._bound[pc] = one if isinstance(one, str) else self._bind(one)
        return self._bound[pc]

    def _bind(self, one: Instruction) -> Step | str | None:
        if one.name in BRANCHES or one.name in ENDS:
            return None
        if one.name == "S_SLEEP" and any(a.kind == HOSTCALL for a in self.kernel.arguments):
            return _serve
        try:
            step = bind(one, self.literals)
        except UnsupportedError as error:
            return str(error)
        if self.checked and step is not None:
            step = checking(one, step)
        return counting(one, step) if self.lds_accesses else step

    def error(self, kind: str, pc: int, why: str) -> EmulationError:
        """Return the error of an instruction that a wave reached."""
        one = self.code.get(pc)
        text = one.text if isinstance(one, Instruction) else "no instruction"
        return EmulationError(Fault(kind, self.kernel.symbol, pc, text, why))

    def block(self, start: int) -> Block:
        """Return the block that begins at an offset."""
        if start not in self._blocks:
            self._blocks[start] = self._read_block(start)
        return self._blocks[start]

    def _read_block(self, start: int) -> Block:
        steps: list[Step] = []
        places: list[Instruction] = []
        pc, count = start, 0
        while pc == start or pc not in self.starts:
            one = self.code.get(pc)
            if one is None or isinstance(one, str):
                raise self.error("unsupported", pc, one or "outside of the kernel's code")
            count += 1
            if one.name in BRANCHES or one.name in ENDS:
                return Block(start, steps, places, count, one, pc + one.size)
            step = self.bound(pc)
            if isinstance(step, str):
                # It may never be reached: the error comes when it is.
                step = self._refusal(pc, step)
            if step is not None:
                steps.append(step)
                places.append(one)
            pc += one.size
        return Block(start, steps, places, count, None, pc)

    def _refusal(self, pc: int, why: str) -> Step:
        def refuse(w: Waves) -> None:
            raise self.error("unsupported", pc, why)

        return refuse


def read_code(code_object: CodeObject, kernel: Kernel) -> dict[int, Instruction | str]:
    """Decode a kernel, and if it calls functions, all code that is not of another kernel.

    Returns:
        By the offset from the kernel, which is negative in front of it, the instruction, or the
        reason why there is none.
    """
    image, arch = code_object.image, code_object.arch
    code = sweep(image[kernel.entry : kernel.entry + kernel.size], arch)
    if not any(
        isinstance(one, Instruction) and one.name == "S_SWAPPC_B64" for one in code.values()
    ):
        return code
    place, end = code_object.text
    kernels = sorted((k.entry, k.size) for k in code_object.kernels.values())
    for entry, size in [*kernels, (end, 0)]:
        code |= sweep(image[place:entry], arch, place - kernel.entry)
        place = max(place, entry + size)
    return code


def _targets(code: Iterable[Instruction | str]) -> set[int]:
    """Return the targets of branches, and the offsets after them."""
    found: set[int] = set()
    for one in code:
        if isinstance(one, str):
            continue
        if one.name in BRANCHES or one.name in ENDS:
            found.add(one.pc + one.size)
        if one.name in BRANCHES or one.name in ("S_BRANCH", "S_CALL_B64"):
            found.add(one.target)
    return found
