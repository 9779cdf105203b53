"""LDS races: accesses of two waves without a barrier, or before a load is complete."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gfxemu.faults import Fault
from gfxemu.launch import Options
from gfxemu.tests.programs import END, launch, sopp, wait

#: v1 = v0 * 4 % 256, equal in both waves; v2 = v0 * 4; v4 = v2 ^ 256, v2 of the other wave;
#: v3 = 7; M0 = 0.
SETUP = [0x24020082, 0x260202FF, 0xFC, 0x24040082, 0x2A0804FF, 0x100, 0x7E060287, 0xBEFC0080]
#: Registers with the LDS address that an access uses: equal in both waves, own, the other wave's.
BOTH, OWN, OTHER = 1, 2, 4
LOAD = [0xDCA88000, 0]
BARRIER = sopp("S_BARRIER")
#: Skips a number of words in the second wave: 64 > v0.
FIRST_ONLY = [0x7D9800C0]


def write(place: int, value: int = 0) -> list[int]:
    return [0xD81A0000, value << 8 | place]


def half(place: int, high: int) -> list[int]:
    """Write 16 bits, to the upper half of a word if high."""
    return [0xD83E0000 | 2 * high, place]


def read(place: int) -> list[int]:
    return [0xD86C0000, 5 << 24 | place]


def add(place: int) -> list[int]:
    return [0xD8000000, place]


def first_only(words: Sequence[int]) -> list[int]:
    return [*FIRST_ONLY, sopp("S_CBRANCH_VCCZ", len(words)), *words]


def faults(words: Sequence[int], waves: int = 2, checked: bool = False) -> tuple[Fault, ...]:
    program, block = [*SETUP, *words, END], (64 * waves, 1, 1)
    options = Options(checked=checked)
    result = launch(program, arguments=bytes(512), options=options, block=block, lds=512)
    return tuple(fault for fault in result.faults if "uninitialised" not in fault.kind)


WAITED = [wait(lgkm=0), BARRIER]
ORDERED: dict[str, list[int]] = {
    "a barrier": [*write(OWN), *WAITED, *read(OTHER)],
    "own bytes": [*write(OWN), *read(OWN), *write(OWN, 3), *read(OWN)],
    "equal values": [*write(BOTH, 3), *WAITED, *read(BOTH)],
    "one wave writes": [*first_only(write(BOTH)), *WAITED, *read(BOTH)],
    "halves of words": [*first_only(half(BOTH, 0)), *WAITED, *half(OWN, 1)],
    "read before the barrier": [*write(OWN), *WAITED, *read(OTHER), BARRIER, *write(OWN, 3)],
    "atomics": [*add(BOTH), *add(BOTH)],
    "a load is waited for": [*first_only([*LOAD, wait(vm=0)]), BARRIER, *read(BOTH)],
    "a load by each wave": [*first_only([*LOAD, wait(vm=0), *read(BOTH)])],
    "all but the last load": first_only([*LOAD, 0xDC508000, 6 << 24, wait(vm=1), *read(BOTH)]),
    "the next load": [*first_only([*LOAD, *LOAD, wait(vm=0), *read(BOTH)])],
}
WRITTEN = "0x100 of the LDS, written by wave 1 at +0x20 ds_write_b32"
LOADED = "0x0 of the LDS, written by wave 0 at +0x28 global_load_lds_dword"
#: A load by the first wave; a read by the second one.
FIRST_LOADS, SECOND_READS = first_only(LOAD), [*first_only([sopp("S_BRANCH", 2)]), *read(BOTH)]
#: Instructions, the offset and the wave of the access that races, and the other access.
RACES: dict[str, tuple[list[int], int, int, str]] = {
    "no barrier": ([*write(OWN), wait(lgkm=0), *read(OTHER)], 0x2C, 0, WRITTEN),
    "no wait": ([*write(OWN), BARRIER, *read(OTHER)], 0x2C, 0, WRITTEN),
    "a wait too late": ([*write(OWN), BARRIER, wait(lgkm=0), *read(OTHER)], 0x30, 0, WRITTEN),
    "two values": (write(BOTH), 0x20, 1, "0x0 of the LDS, written by wave 0 at +0x20 ds"),
    "an atomic": ([*write(OWN), *add(OTHER)], 0x28, 0, WRITTEN),
    "another write": ([*write(OWN), *write(OTHER)], 0x28, 0, WRITTEN),
    "a load of another wave": ([*FIRST_LOADS, BARRIER, *SECOND_READS], 0x40, 1, LOADED),
    "its wait too late": ([*FIRST_LOADS, BARRIER, wait(vm=0), *SECOND_READS], 0x44, 1, LOADED),
}
#: Instructions of the first wave behind its load, and the offset of the access without a wait.
MISSING_WAITS = {
    "a read": (read(BOTH), 0x30),
    "a write": (write(BOTH), 0x30),
    "one load too few": ([wait(vm=1), *read(BOTH)], 0x34),
}


@pytest.mark.parametrize("name", ORDERED)
def test_ordered_accesses_are_not_faults(name: str) -> None:
    """Prevents: a race reported for accesses that a barrier, a wait or equal values make safe."""
    assert faults(ORDERED[name]) == ()


@pytest.mark.parametrize("name", RACES)
def test_accesses_without_an_order_are_faults(name: str) -> None:
    """Prevents: an LDS race that is not reported, or at the wrong instruction."""
    words, pc, wave, detail = RACES[name]
    (fault,) = faults(words)
    assert (fault.kind, fault.pc, fault.wave) == ("race", pc, wave)
    assert fault.detail.startswith(detail), fault.detail


@pytest.mark.parametrize("name", MISSING_WAITS)
def test_accesses_before_a_load_is_complete_are_faults(name: str) -> None:
    """Prevents: a missing wait that is not reported, or at the wrong instruction."""
    words, pc = MISSING_WAITS[name]
    (fault,) = faults(first_only([*LOAD, *words]))
    assert (fault.kind, fault.pc, fault.wave) == ("missing wait", pc, 0)
    assert " of the LDS, loaded by +0x28 global_load_lds_dword(" in fault.detail


def test_overwritten_bytes_are_reported_if_checked() -> None:
    """Prevents: an unnoticed missing barrier after LDS reads, which only fails on a slow wave."""
    words = [*write(OWN), *WAITED, *read(OTHER), *write(OWN, 3)]
    assert faults(words) == ()
    (fault,) = faults(words, checked=True)
    assert (fault.kind, fault.pc, fault.wave) == ("race", 0x38, 0)
    assert fault.detail.startswith("0x0 of the LDS, read by wave 1 at +0x30 ds_read_b32")
    assert faults(ORDERED["read before the barrier"], checked=True) == ()
