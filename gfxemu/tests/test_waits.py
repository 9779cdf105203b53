"""Missing waits: registers used before a wait covers their load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gfxemu.faults import EmulationError, Fault
from gfxemu.launch import Options
from gfxemu.tests.programs import END, launch, sopp, wait

#: v2 = v1, v1 = v0, s5 = s4 and s4 = s0.
READ, OVERWRITE = 0x7E040301, 0x7E020300
READ_SCALAR, OVERWRITE_SCALAR = 0xBE850004, 0xBE840000
#: Loads of v1 from the address in s[0:1], and from the LDS; stores of v0.
GLOBAL, STORE = (0xDC508000, 1 << 24), (0xDC708000, 0)
LDS, LDS_WRITE = (0xD86C0000, 1 << 24), (0xD81A0000, 0)
#: A load of s4 from the address in s[0:1], and a flat load of v1 from the address in v[0:1].
SCALAR = (0xC0020100, 0)
FLAT = (0xDC500000, 1 << 24)


def load_to(register: int, load: tuple[int, int]) -> tuple[int, int]:
    """Return the load with another destination register."""
    return load[0], load[1] & 0xFFFFFF | register << 24


def faults(words: Sequence[int], strict: bool = False, waves: int = 1) -> tuple[Fault, ...]:
    # A flat load needs a full 64-bit address in v[0:1].
    set_address = [0x7E000200, 0x7E020201] if FLAT[0] in words else []
    arguments, options = bytes(4 * (64 * waves + 4)), Options(strict=strict)
    program, block = [*set_address, *words, END], (64 * waves, 1, 1)
    result = launch(program, arguments=arguments, options=options, block=block, lds=256)
    return tuple(replace(fault, pc=fault.pc - 4 * len(set_address)) for fault in result.faults)


COVERED: dict[str, list[int]] = {
    "vmcnt": [*GLOBAL, wait(vm=0), READ],
    "all but the last two": [*GLOBAL, *load_to(3, GLOBAL), *load_to(4, GLOBAL), wait(vm=2), READ],
    "a store counts, too": [*GLOBAL, *STORE, wait(vm=1), READ],
    "a store has read its data": [*STORE, 0x7E000280],
    "a load in order writes": [*GLOBAL, *GLOBAL],
    "lgkmcnt": [*LDS, wait(lgkm=0), READ],
    "of the LDS all but the last": [*LDS, *load_to(3, LDS), wait(lgkm=1), READ],
    "a write of the LDS counts": [*LDS, *LDS_WRITE, wait(lgkm=1), READ],
    "scalar": [*SCALAR, wait(lgkm=0), READ_SCALAR],
    "flat": [*FLAT, wait(0, 0), READ],
    "flat in two waits": [*FLAT, wait(vm=0), wait(lgkm=0), READ],
    "another register": [*GLOBAL, 0x7E040300],
    # A load of VCC, and V_CNDMASK_B32 with s[2:3].
    "another mask than VCC": [0xC0061A80, 0, 0xD1000000, 0x000A0501],
    "an accumulation register, moved to another": [*GLOBAL, 0x7E00A501],
    "the counter has room for 63": [*GLOBAL, *STORE * 63, READ],
}
V1, S4 = "v1, loaded by +0x0 global_load", "s4, loaded by +0x0 s_load"
MISSED: dict[str, tuple[list[int], int, str]] = {
    "no wait": ([*GLOBAL, READ], 8, V1),
    "another counter": ([*GLOBAL, wait(lgkm=0), READ], 12, V1),
    "one too few": ([*GLOBAL, *load_to(3, GLOBAL), wait(vm=2), READ], 20, V1),
    "overwritten": ([*GLOBAL, OVERWRITE], 8, V1),
    "stored": ([*GLOBAL, STORE[0], 1 << 8], 8, V1),
    "overwritten by the LDS": ([*GLOBAL, *LDS], 8, V1),
    "LDS": ([*LDS, wait(vm=0), READ], 12, "v1, loaded by +0x0 ds_read"),
    "scalar": ([*SCALAR, READ_SCALAR], 8, S4),
    "scalar, overwritten": ([*SCALAR, OVERWRITE_SCALAR], 8, S4),
    "scalar loads are not in order": ([*SCALAR, *SCALAR], 8, S4),
    "nor do they count": ([*SCALAR, *LDS_WRITE, wait(lgkm=1), READ_SCALAR], 20, S4),
    "a scalar load may come before the LDS": (
        *([*LDS, *SCALAR, wait(lgkm=1), READ], 20),
        "v1, loaded by +0x0 ds_read",
    ),
    "flat may be the LDS": ([*FLAT, wait(vm=0), READ], 12, "v1, loaded by +0x8 flat_load"),
    "flat may be memory": ([*FLAT, wait(lgkm=0), READ], 12, "v1, loaded by +0x8 flat_load"),
    "the mask that no field names": ([0xC0061A80, 0, 0x00000501], 8, "vcc, loaded by +0x0 s_load"),
    # A load of M0, and a scalar load with that as its offset.
    "an offset in M0": ([0xC0021F00, 0, 0xC0024100, 0xF8000000], 8, "m0, loaded by +0x0 s_load"),
    "the loop's second time": (
        # s4 counts from 2 down; the read is before the load.
        [0xB0040002, READ, *GLOBAL, 0xB704FFFF, 0xBF078004, sopp("S_CBRANCH_SCC1", -6)],
        *(4, "v1, loaded by +0x8 global_load"),
    ),
}


@pytest.mark.parametrize("name", COVERED)
def test_loads_covered_by_a_wait_are_not_faults(name: str) -> None:
    """Prevents: a missing wait reported for a kernel that follows the documented memory order."""
    assert faults(COVERED[name]) == ()


@pytest.mark.parametrize("name", MISSED)
def test_missing_waits_are_faults(name: str) -> None:
    """Prevents: a missing wait that is not reported, or reported at the wrong instruction."""
    words, pc, detail = MISSED[name]
    (fault,) = faults(words)
    assert (fault.kind, fault.pc, fault.workgroup, fault.wave) == ("missing wait", pc, 0, 0)
    assert fault.detail.startswith(detail), fault.detail


def test_only_waves_on_the_path_are_faulty() -> None:
    """Prevents: waves that diverge or join, and inherit the pending loads of other waves."""
    # Only the second wave, 64 > v0 false, loads v1; both read it.
    words = [0x7D9800C0, sopp("S_CBRANCH_VCCNZ", 2), *GLOBAL, READ]
    (fault,) = faults(words, waves=2)
    assert (fault.pc, fault.wave) == (16, 1)


def test_a_strict_launch_ends_at_a_missing_wait() -> None:
    """Prevents: a user's kernel test passes although a wait is missing."""
    with pytest.raises(EmulationError, match="missing wait: v1, loaded by"):
        faults([*GLOBAL, READ], strict=True)
