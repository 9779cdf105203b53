"""Control flow and the state of the wave: branches, barriers, the mode register."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qola.emulate.arrays import U64, Array
from qola.emulate.decode import Instruction
from qola.emulate.lanes import Binder
from qola.emulate.operands import Literals, UnsupportedError, wide, write_scalar
from qola.emulate.waves import EXEC, VCC, Step, Waves

#: Waits and hints: nothing is ever pending here, and time is not emulated.
NOTHING = frozenset(
    {
        "S_NOP",
        "S_WAITCNT",
        "S_SETPRIO",
        "S_SLEEP",
        "S_ICACHE_INV",
        "S_DCACHE_INV",
        "S_DCACHE_WB",
        "BUFFER_WBL2",
        "BUFFER_INV",
    }
)

#: By branch: which waves take it, a boolean each.
BRANCHES: dict[str, Callable[[Waves], Array]] = {
    "S_CBRANCH_SCC0": lambda w: ~w.scc[:, 0],
    "S_CBRANCH_SCC1": lambda w: w.scc[:, 0],
    "S_CBRANCH_VCCZ": lambda w: w.q[VCC][:, 0] == 0,
    "S_CBRANCH_VCCNZ": lambda w: w.q[VCC][:, 0] != 0,
    "S_CBRANCH_EXECZ": lambda w: w.q[EXEC][:, 0] == 0,
    "S_CBRANCH_EXECNZ": lambda w: w.q[EXEC][:, 0] != 0,
}

#: Instructions that end a block, in addition to branches.
ENDS = frozenset({"S_BRANCH", "S_BARRIER", "S_ENDPGM", "S_SETPC_B64", "S_SWAPPC_B64", "S_CALL_B64"})

_MODE = 1
#: Bits of the mode that change nothing here: denormals, DX10_CLAMP and IEEE.
_IGNORED = 0x3F0


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


def jump_target(one: Instruction) -> Callable[[Waves], Array]:
    """Where a jump through a register goes: offsets from the kernel's first instruction."""
    read = wide(one, "ssrc0", "u64")
    return lambda w: (read(w)[:, 0] - U64(w.machine.entry)).astype(np.int64)


CONTROL: dict[str, Binder] = {"S_GETPC_B64": _getpc, "S_SETREG_IMM32_B32": _setreg}
