"""Finds accesses of the LDS that nothing orders.

- A wave reads bytes, or writes others to them, that another wave of the workgroup wrote, without a
  barrier in between: a race. A write is before a barrier if its wave waited for it there: the LDS
  may execute operations of two waves in any order (memory model of gfx942 in LLVM's AMDGPUUsage).
- A wave reads or writes bytes before a wait covers its own load from memory to them: a missing
  wait. Its other operations of the LDS are in order.
- If accesses are checked: a wave writes bytes that another wave read since the last barrier.

A write that changes no byte is no access: waves may write, or load, the same values in any order.
An atomic operation counts as a read, because two of them have an order.

Each granule of the LDS has the mark of its last write. engine.c has the same marks and counts, in
the same arrays, so that instructions in NumPy can run between those in C.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gfxemu.arrays import I64, U64, Array, first_of
from gfxemu.decode import Instruction
from gfxemu.memory import read_small, read_words
from gfxemu.waits import MOST_LGKM, MOST_VM, find_queue, loads_to_lds, parse_wait
from gfxemu.waves import Step, Waves

#: Queues, in which accesses complete in order.
QUEUES = {"vm": 0, "lds": 1}
_VM, _LDS = QUEUES.values()
_MOST = np.array([MOST_VM, MOST_LGKM], I64)
#: A mark has the count of the access, the number of the instruction, and twice the number of the
#: wave plus the queue.
NUMBER, WAVE = 32, 48
_COUNT, _MOST_NUMBERS = (1 << NUMBER) - 1, (1 << WAVE - NUMBER) - 1
#: Waves of a workgroup, as in engine.c: those of 1024 work-items.
_MOST_WAVES = 16
#: A granule has at most 8 bytes: larger accesses may begin at any multiple of 8.
_LARGEST = 3
#: The size of an access: bits of the LDS, or words of memory.
_SIZE = re.compile(r"DS_.*?_[BUIF](\d+)|.*_DWORD(?:X(\d))?$")
#: Operations of the LDS that do not access it.
_ELSEWHERE = ("DS_BPERMUTE", "DS_PERMUTE", "DS_SWIZZLE", "DS_NOP")


def size_of(one: Instruction) -> int:
    """Return the bytes that a lane reads or writes at each address; 0 if it is not in the LDS."""
    found = _SIZE.match(one.name)
    if not found or one.name.startswith(_ELSEWHERE):
        return 0
    if one.form == "DS":
        return int(found[1]) // 8
    return 4 * int(found[2] or 1) if loads_to_lds(one) else 0


def _turns(w: Waves) -> Array:
    """Return for each wave how many of its workgroup come before it."""
    same = w.groups[:, None] == w.groups
    turns: Array = np.tril(same, -1).sum(axis=1)
    return turns


def counting(one: Instruction, step: Step | None) -> Step | None:
    """Return an instruction that also counts its access, or those that it waits for."""
    if counts := parse_wait(one):
        vm, lds, _ = counts
        return lambda w: w.machine.races.wait(w, vm, lds)
    queue = QUEUES.get(find_queue(one))
    if queue is None:
        return step

    def run(w: Waves) -> None:
        if step is not None:
            step(w)
        w.machine.races.issue(w, queue)

    return run


@dataclass(frozen=True)
class Disorder:
    """An access that nothing orders behind another one of the same bytes.

    Attributes:
        kind: of the fault.
        row, lane: of the waves that run.
    """

    kind: str
    detail: str
    row: int
    lane: int

    def lanes(self, waves: Waves) -> Array:
        """Return the lane among those of some waves."""
        found = np.zeros(waves.exec.shape, bool)
        found[self.row, self.lane] = True
        return found


class Races:
    """Accesses of the LDS by the waves that run.

    Attributes:
        numbers: of the instructions that access the LDS, by their offset; from 1 on.
        shift: log2 of the bytes of a granule: the smallest access of the kernel.
        granules: of a workgroup; 0 if the kernel has no such instructions.
        owners: marks of the last writes; (workgroups, granules).
        spans: of a workgroup, first granule and end of marks that some wave may not pass. The
            engine has its own.
        orders: by wave: issued, done, done at the last barrier; count, first granule and end of the
            last marks (for the engine). Each has a number for each queue.
    """

    def __init__(
        self,
        accesses: Sequence[Instruction],
        groups: int,
        group_waves: int,
        lds_bytes: int,
        checked: bool,
    ) -> None:
        """Make marks for the instructions of a kernel for which `size_of` is not 0."""
        fits = len(accesses) <= _MOST_NUMBERS and group_waves <= _MOST_WAVES
        some = accesses if fits else ()
        self._accesses, self._group_waves = tuple(some), group_waves
        self.numbers = {one.pc: n for n, one in enumerate(some, 1)}
        powers = [(size & -size).bit_length() - 1 for size in map(size_of, some)]
        self.shift = min([_LARGEST, *powers])
        self.granules = -(-lds_bytes >> self.shift) if some else 0
        self.owners = np.zeros((groups, self.granules), U64)
        waves = groups * group_waves
        self.orders = np.zeros((waves, 6, 2), I64)
        self._issued, self._done, self._synced = (self.orders[:, n] for n in range(3))
        self._reads = np.zeros((waves, self.granules), U64) if checked else None
        self._met = np.zeros(waves, I64)
        self.spans = np.zeros((groups, 2), I64)
        self.begin()

    def begin(self) -> None:
        """Start other workgroups."""
        self.owners[:], self.orders[:], self._met[:] = 0, 0, 0
        self.spans[:] = self.granules, 0
        if self._reads is not None:
            self._reads[:] = 0

    def _is_near(self, w: Waves, addresses: Array, size: int) -> bool:
        """Whether an access must be looked at: most of them are elsewhere than loose marks."""
        if self._reads is not None:
            return True
        places = (addresses - w.lds_rows).view(I64)
        spans = self.spans[w.groups] << self.shift
        after = places.max(axis=1) + size > spans[:, 0]
        return bool((after & (places.min(axis=1) < spans[:, 1])).any())

    def _rows(self, w: Waves) -> Array:
        return w.groups * self._group_waves + w.numbers

    def issue(self, w: Waves, queue: int) -> None:
        """Count an access of waves."""
        rows = self._rows(w)
        self._issued[rows, queue] += 1
        self._done[rows] = np.maximum(self._done[rows], self._issued[rows] - _MOST)

    def wait(self, w: Waves, vm: int, lgkm: int) -> None:
        """Count accesses that a wait covers."""
        rows = self._rows(w)
        self._done[rows] = np.maximum(self._done[rows], self._issued[rows] - np.array([vm, lgkm]))

    def end(self, w: Waves) -> None:
        """Complete the accesses of waves that end."""
        rows = self._rows(w)
        self._done[rows] = self._issued[rows]

    def meet(self, group: int) -> None:
        """Let the waves of a workgroup pass a barrier."""
        some = slice(group * self._group_waves, (group + 1) * self._group_waves)
        self._synced[some] = self._done[some]
        self._met[some] = self._issued[some, _LDS]
        marks = self.owners[group].astype(I64)
        synced = self._synced[some].reshape(-1)[marks >> WAVE]
        loose = np.flatnonzero((marks & _COUNT) > synced)
        self.spans[group] = (loose[0], loose[-1] + 1) if len(loose) else (self.granules, 0)

    def read(
        self, w: Waves, one: Instruction, addresses: Array, size: int, lanes: Array | None
    ) -> Iterator[Disorder]:
        """Yield the first disorder of each kind of a read."""
        if one.pc not in self.numbers or not self._is_near(w, addresses, size):
            return
        row, lane, cells = self._cells(w, addresses, size, lanes)
        yield from self._disorders(w, row, lane, cells, False)
        if self._reads is not None:
            rows = self._rows(w)[row]
            marks = self._marks(one, rows, w.numbers[row], _LDS)
            self._reads[rows[:, None], cells] = marks[:, None]

    def write(
        self,
        w: Waves,
        one: Instruction,
        addresses: Array,
        values: Array,
        lanes: Array | None,
        size: int = 0,
    ) -> Iterator[tuple[Array, list[Disorder]]]:
        """Yield lanes that write, one wave of a workgroup after the other, and disorders.

        Args:
            values: of words, (words, waves, lanes), or of `size` bytes, (waves, lanes).
        """
        active = np.ones(addresses.shape, bool) if lanes is None else lanes
        if one.pc not in self.numbers:
            yield active, []
            return
        turns = _turns(w)
        for turn in range(int(turns.max()) + 1):
            some = active & (turns == turn)[:, None]
            if not some.any():
                continue
            places = np.where(some, addresses, addresses[first_of(some)])
            if size:
                changes = read_small(places, size) != values
            else:
                changes = (read_words(places, len(values)) != values).any(axis=0)
            width = size or 4 * len(values)
            loads = one.form != "DS"
            changed = self._cells(w, addresses, width, some & changes)
            found = list(self._disorders(w, *changed, loads))
            if self._reads is not None:
                found += self._overwritten(w, *changed)
            yield some, found
            # A load is outstanding even if it changes nothing.
            marked = self._cells(w, addresses, width, some) if loads else changed
            self._mark(w, one, marked[0], marked[2], _VM if loads else _LDS)

    def _mark(self, w: Waves, one: Instruction, row: Array, cells: Array, queue: int) -> None:
        rows = self._rows(w)[row]
        marks = self._marks(one, rows, w.numbers[row], queue)
        groups = w.groups[row]
        self.owners[groups[:, None], cells] = marks[:, None]
        if len(groups):
            np.minimum.at(self.spans[:, 0], groups, cells[:, 0])
            np.maximum.at(self.spans[:, 1], groups, cells[:, -1] + 1)
        # The engine looks at marks in a span of granules only.
        self.orders[rows, 3, queue] = self._issued[rows, queue] + 1
        self.orders[rows, 4, queue], self.orders[rows, 5, queue] = 0, self.granules

    def _cells(
        self, w: Waves, addresses: Array, size: int, lanes: Array | None
    ) -> tuple[Array, Array, Array]:
        """Return row and lane of each aligned access, and its granules, (accesses, granules)."""
        places = (addresses - w.lds_rows).view(I64)
        used = places & ((1 << self.shift) - 1) == 0
        if lanes is not None:
            used &= lanes
        row, lane = np.nonzero(used)
        return row, lane, (places[used] >> self.shift)[:, None] + np.arange(size >> self.shift)

    def _marks(self, one: Instruction, rows: Array, numbers: Array, queue: int) -> Array:
        counts = self._issued[rows, queue] + 1 & _COUNT
        marks: Array = 2 * numbers + queue << WAVE | self.numbers[one.pc] << NUMBER | counts
        return marks.astype(U64)

    def _disorders(
        self, w: Waves, row: Array, lane: Array, cells: Array, loads: bool
    ) -> Iterator[Disorder]:
        """Yield the first access of bytes whose last write is not before it, of each kind."""
        marks = self.owners[w.groups[row][:, None], cells].astype(I64)
        waves = np.arange(self._group_waves)
        limits = self._synced[(w.groups[:, None] * self._group_waves + waves)]
        every = np.arange(w.count)
        limits[every, w.numbers, _LDS] = _COUNT
        limits[every, w.numbers, _VM] = _COUNT if loads else self._done[self._rows(w), _VM]
        who = marks >> WAVE
        late = (marks & _COUNT) > limits.reshape(w.count, -1)[row[:, None], who]
        if not late.any():
            return
        mine = who >> 1 == w.numbers[row][:, None]
        for kind, some in (("missing wait", late & mine), ("race", late & ~mine)):
            if some.any():
                yield self._first(kind, some, marks, (row, lane, cells))

    def _overwritten(self, w: Waves, row: Array, lane: Array, cells: Array) -> Iterator[Disorder]:
        """Yield the first write of bytes that another wave read since the last barrier."""
        assert self._reads is not None
        for other in range(self._group_waves):
            rows = w.groups[row] * self._group_waves + other
            marks = self._reads[rows[:, None], cells].astype(I64)
            late = (marks & _COUNT) > self._met[rows][:, None]
            late &= (w.numbers[row] != other)[:, None]
            if late.any():
                yield self._first("race", late, marks, (row, lane, cells))

    def _first(
        self, kind: str, late: Array, marks: Array, accesses: tuple[Array, Array, Array]
    ) -> Disorder:
        """Return the first late access of granules with marks; `accesses` are those of `_cells`."""
        row, lane, cells = accesses
        where, cell = divmod(int(np.argmax(late)), late.shape[1])
        address = int(cells[where, cell]) << self.shift
        detail = self.describe(address, int(marks[where, cell]) >> NUMBER, kind == "race")
        return Disorder(kind, detail, int(row[where]), int(lane[where]))

    def describe(self, address: int, source: int, race: bool) -> str:
        """Describe the earlier access of some bytes, by the upper half of its mark."""
        one = self._accesses[(source & _MOST_NUMBERS) - 1]
        if not race:
            return f"{address:#x} of the LDS, loaded by +{one.pc:#x} {one}"
        verb = "read" if "WRITE" not in one.name and one.form == "DS" else "written"
        wave = source >> (WAVE - NUMBER) >> 1
        return f"{address:#x} of the LDS, {verb} by wave {wave} at +{one.pc:#x} {one}"
