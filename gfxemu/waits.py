"""Finds registers that are used before a wait covers the load that writes them.

A load is outstanding until an S_WAITCNT proves that it is complete. The rules are those by which
LLVM inserts waits (SIInsertWaitcnts, for targets with vmcnt and lgkmcnt):

- vmcnt counts accesses of vector memory, stores included; they complete in order, so vmcnt(n)
  covers all but the last n.
- lgkmcnt counts operations of the LDS, which complete in order, and loads to scalar registers,
  which do not: only lgkmcnt(0) covers those, and lgkmcnt(n) all but the last n operations of the
  LDS.
- A generic address (FLAT) counts for both, and may be either: only vmcnt(0) and lgkmcnt(0) cover
  it. On RDNA such accesses are in order with others of both counters.
- An instruction that reads or writes the destination of an outstanding load needs a wait; a load
  that is in order with the outstanding one may write it.
- A store has read its data when it is issued: its registers may be overwritten.

RDNA counts stores by themselves. RDNA4 has a counter each for the LDS and for loads to scalar
registers, and waits for one or two counters.

Whether a wait is missing depends on the path of a wave, and not on its data. So the loads that
are outstanding after a block follow from the block and those before it. `Waits` numbers the
states of waves, and the engine asks for each pair of a block and a state once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from gfxemu.check import operands_of, writes_vectors
from gfxemu.decode import Instruction
from gfxemu.isa import RDNA3, RDNA4
from gfxemu.registers import AGPRS, M0, SGPRS, VCC, VGPRS, name_of

#: Most accesses that a counter counts: the next one is issued when the first one is complete. RDNA
#: counts more of the LDS: waits that a queue of 16 misses are not seen there.
MOST_VM, MOST_LGKM = 63, 15
#: More than any counter counts: no wait.
_ANY = 64
_VECTOR_MEMORY = ("MUBUF", "GLOBAL", "SCRATCH")
#: Reads of VCC that no field names: of all forms, and of VOP2 only.
_READS_VCC = ("S_CBRANCH_VCC", "V_DIV_FMAS")
_VOP2_READS_VCC = ("V_CNDMASK", "V_ADDC", "V_SUBB")

#: A load: offset of its instruction, and its destination as a mask of bits, see `_bits`.
_Load = tuple[int, int]


def find_queue(one: Instruction) -> str:
    """Return the field of a state that an access of memory or the LDS is added to, or empty.

    A generic access of RDNA is added to both queues, vm and lds.
    """
    if one.form in _VECTOR_MEMORY:
        if one.name == "BUFFER_INV":
            # Of these that invalidate a cache, RDNA4's alone counts.
            return "vm" if one.form == "GLOBAL" else ""
        # RDNA counts stores by themselves.
        return "" if one.isa.is_rdna and not writes_vectors(one) else "vm"
    if one.form == "FLAT" and one.isa.is_rdna:
        return "both" if writes_vectors(one) else "lds"
    return {"DS": "lds", "SMEM": "scalar", "FLAT": "flat"}.get(one.form, "")


def loads_to_lds(one: Instruction) -> bool:
    """Whether an instruction loads from memory to the LDS."""
    return one.form in _VECTOR_MEMORY and (bool(one["lds"]) or "_LDS_" in one.name)


def parse_wait(one: Instruction) -> tuple[int, int, int] | None:
    """Return the counts of the queues vm, lds and scalar that an instruction waits for, if any."""
    if not one.name.startswith("S_WAIT"):
        return None
    bits = one["simm16"]
    if one.name == "S_WAITCNT" and one.isa is not RDNA4:
        if one.isa is RDNA3:
            lgkm = bits >> 4 & 63
            return bits >> 10, lgkm, lgkm
        return bits & 15 | bits >> 14 << 4, bits >> 8 & 15, bits >> 8 & 15
    low, high = bits & 63, bits >> 8 & 63
    return {
        "S_WAITCNT_VMCNT": (low, _ANY, _ANY),
        "S_WAITCNT_LGKMCNT": (_ANY, low, low),
        "S_WAIT_LOADCNT": (low, _ANY, _ANY),
        "S_WAIT_DSCNT": (_ANY, low, _ANY),
        "S_WAIT_KMCNT": (_ANY, _ANY, low),
        "S_WAIT_LOADCNT_DSCNT": (high, low, _ANY),
        "S_WAIT_STORECNT_DSCNT": (_ANY, low, _ANY),
        "S_WAIT_IDLE": (0, 0, 0),
    }.get(one.name)


@dataclass(frozen=True)
class _State:
    """Accesses of a wave that may be outstanding, the first one first.

    Attributes:
        vm: of vector memory. Stores have a destination of 0.
        lds: operations of the LDS.
        scalar: loads to scalar registers.
        flat: generic accesses, and which counters have not been 0 since: 1 vmcnt, 2 lgkmcnt.
    """

    vm: tuple[_Load, ...] = ()
    lds: tuple[_Load, ...] = ()
    scalar: tuple[_Load, ...] = ()
    flat: tuple[tuple[int, int, int], ...] = ()

    def loads(self, before: str = "") -> Iterator[_Load]:
        """Yield loads, except those that complete before the next access of a queue."""
        if before != "vm":
            yield from self.vm
        if before != "lds":
            yield from self.lds
        yield from self.scalar
        yield from (load[:2] for load in self.flat)

    def without(self, registers: int) -> _State:
        """Return the state in which the loads to some registers are complete."""
        vm, lds, scalar = (
            tuple((pc, mask & ~registers) for pc, mask in queue)
            for queue in (self.vm, self.lds, self.scalar)
        )
        flat = tuple((pc, mask & ~registers, counters) for pc, mask, counters in self.flat)
        return _State(vm, lds, scalar, flat).trimmed()

    def after(self, one: Instruction, effect: _Effect) -> _State:
        """Return the state after an access of memory or the LDS was issued."""
        load = one.pc, effect.loads
        if effect.queue == "flat":
            return replace(self, flat=(*self.flat, (*load, 3))).trimmed()
        if effect.queue == "both":
            return replace(self, vm=(*self.vm, load), lds=(*self.lds, load)).trimmed()
        queue = (*getattr(self, effect.queue), load)
        return replace(self, **{effect.queue: queue}).trimmed()

    def trimmed(self) -> _State:
        """Drop accesses without effect: those before the first load of a queue."""
        vm, lds = _from_first_load(self.vm, MOST_VM), _from_first_load(self.lds, MOST_LGKM)
        scalar = tuple(load for load in self.scalar if load[1])
        return _State(vm, lds, scalar, tuple(load for load in self.flat if load[1]))

    def after_wait(self, vm: int, lds: int, scalar: int) -> _State:
        """Return the state after a wait for counts of each queue."""
        cleared = (vm == 0) | (lds == 0) << 1
        flat = tuple((pc, mask, counters & ~cleared) for pc, mask, counters in self.flat)
        return _State(
            self.vm[len(self.vm) - min(vm, len(self.vm)) :],
            self.lds[len(self.lds) - min(lds, len(self.lds)) :],
            self.scalar if scalar else (),
            tuple(load for load in flat if load[2]),
        ).trimmed()


def _from_first_load(queue: tuple[_Load, ...], most: int) -> tuple[_Load, ...]:
    queue = queue[-most:]
    first = next((place for place, (_, mask) in enumerate(queue) if mask), len(queue))
    return queue[first:]


@dataclass(frozen=True)
class _Effect:
    """An instruction, as far as outstanding loads are concerned.

    Attributes:
        reads: registers that it reads, or writes although it is no load.
        loads: registers that it loads.
        queue: where `_State` adds it (`find_queue`), or empty.
        waits: counts of the queues vm, lds and scalar that it waits for.
    """

    reads: int
    loads: int = 0
    queue: str = ""
    waits: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Misuse:
    """An instruction that uses a register before a wait covers its load."""

    instruction: Instruction
    detail: str


@dataclass(frozen=True)
class Passage:
    """The effect of a block on the outstanding loads of a wave that runs it.

    Attributes:
        state: number of the state after the block.
    """

    state: int
    misuses: tuple[Misuse, ...] = ()


@dataclass
class Waits:
    """Outstanding loads of the waves of a kernel.

    Attributes:
        code: the instruction at each offset; others end a block.
        ends: names of instructions that end a block.
        starts: offsets at which blocks begin.
        first_agpr: where accumulation registers begin.
    """

    code: Mapping[int, Instruction | str]
    ends: frozenset[str]
    starts: set[int]
    first_agpr: int
    _states: list[_State] = field(default_factory=lambda: [_State()])
    _numbers: dict[_State, int] = field(default_factory=lambda: {_State(): 0})
    _effects: dict[int, _Effect] = field(default_factory=dict)
    _passages: dict[tuple[int, int], Passage] = field(default_factory=dict)

    def executed(self) -> set[int]:
        """Return the offsets of the blocks that waves began since the last `forget`."""
        return {start for start, _ in self._passages}

    def forget(self) -> None:
        """Compute the effects of blocks again when waves run them."""
        self._passages.clear()

    def passage(self, start: int, state: int) -> Passage:
        """Return the effect of the block at an offset on a state; waves begin in state 0."""
        found = self._passages.get((start, state))
        if found is None:
            found = self._passages[start, state] = self._pass(start, self._states[state])
        return found

    def _pass(self, start: int, state: _State) -> Passage:
        misuses: list[Misuse] = []
        for one in self.block(start):
            effect = self._effects.get(one.pc)
            if effect is None:
                effect = self._effects[one.pc] = self._effect_of(one)
            if effect.waits:
                state = state.after_wait(*effect.waits)
                continue
            if misuse := self._find_misuse(one, effect, state):
                misuses.append(misuse)
                state = state.without(effect.reads | effect.loads)
            if effect.queue:
                state = state.after(one, effect)
        if state not in self._numbers:
            self._numbers[state] = len(self._states)
            self._states.append(state)
        return Passage(self._numbers[state], tuple(misuses))

    def block(self, start: int) -> Iterator[Instruction]:
        """Yield the instructions that waves run from an offset to the block's end."""
        pc = start
        while pc == start or pc not in self.starts:
            one = self.code.get(pc)
            if one is None or isinstance(one, str):
                return
            yield one
            if one.name in self.ends:
                return
            pc += one.size

    def _bits(self, number: int, count: int) -> int:
        """Return registers as a mask: bit n is SGPR n, bit 128 + n row n of vector registers."""
        if number < SGPRS:
            first = number
        elif number < VGPRS:
            return 0
        elif number < AGPRS:
            first = SGPRS + number - VGPRS
        else:
            first = SGPRS + number - AGPRS + self.first_agpr
        return ((1 << count) - 1) << first

    def _effect_of(self, one: Instruction) -> _Effect:
        if waits := parse_wait(one):
            return _Effect(0, waits=waits)
        reads, writes = operands_of(one)
        read, written = (
            _union(self._bits(number, count) for _, number, count in operands)
            for operands in (reads, writes)
        )
        in_vop2 = one.form.startswith("VOP2") and one.name.startswith(_VOP2_READS_VCC)
        if in_vop2 or one.name.startswith(_READS_VCC):
            read |= self._bits(VCC, one.isa.lanes // 32)
        if loads_to_lds(one):
            read |= self._bits(M0, 1)
        queue = find_queue(one)
        if not queue:
            return _Effect(read | written)
        return _Effect(read, written, queue)

    def _find_misuse(self, one: Instruction, effect: _Effect, state: _State) -> Misuse | None:
        """Return a register that an instruction uses, and its last outstanding load."""
        for registers, others in ((effect.reads, ""), (effect.loads, effect.queue)):
            if not registers:
                continue
            for pc, mask in reversed(list(state.loads(others))):
                if common := mask & registers:
                    load = self.code[pc]
                    register = self._name_of(one, common)
                    return Misuse(one, f"{register}, loaded by {pc:+#x} {load}")
        return None

    def _name_of(self, one: Instruction, registers: int) -> str:
        """Return the first register of an instruction that is in a mask."""
        for operands in operands_of(one):
            for _, number, count in operands:
                for place in range(number, number + count):
                    if self._bits(place, 1) & registers:
                        return name_of(place)
        return "vcc" if self._bits(VCC, 2) & registers else "m0"


def _union(masks: Iterator[int]) -> int:
    return reduce(or_, masks, 0)
