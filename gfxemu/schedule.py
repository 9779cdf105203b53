"""Runs waves to their end: those at one place go on together.

Of all places where waves stand, the lowest goes on first: waves that left a loop early wait for
the others behind it, and go on with them. A wave at a barrier waits until all of its workgroup that
have not ended are at one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gfxemu.arrays import U64, Array
from gfxemu.check import find_misfit
from gfxemu.decode import Instruction
from gfxemu.faults import EmulationError
from gfxemu.operands import UnsupportedError
from gfxemu.program import BRANCHES, Program, jump_target
from gfxemu.waves import Waves, joined


@dataclass
class Schedule:
    """Waves of a launch, as far as they have come.

    Attributes:
        live: by workgroup, how many of its waves have not ended.
        limit: instructions of waves after which a launch counts as endless.
        executed: instructions of waves that ran, those of workgroups before these included.
    """

    program: Program
    live: Array
    limit: int
    executed: int = 0
    _ready: list[Waves] = field(default_factory=list)
    _waiting: list[Waves] = field(default_factory=list)

    def run(self, waves: Waves) -> None:
        """Run waves to their end."""
        self._ready = [waves]
        with np.errstate(all="ignore"):
            while self._ready:
                self._step(self._next())
                if not self._ready:
                    self._release()
        if self._waiting:
            w = self._waiting[0]
            raise self.program.error(
                "endless", w.pc, "waves wait at a barrier that others never reach"
            )

    def _next(self) -> Waves:
        """The waves at the lowest place, taken from those that are ready."""
        if len(self._ready) == 1:
            return self._ready.pop()
        lowest = min(part.pc for part in self._ready)
        here = [part for part in self._ready if part.pc == lowest]
        self._ready = [part for part in self._ready if part.pc != lowest]
        return here[0] if len(here) == 1 else joined(here)

    def _step(self, w: Waves) -> None:
        """Run a block, and put the waves where it leaves them."""
        block = self.program.block(w.pc)
        self._follow_loads(w)
        number = -1
        try:
            for number, step in enumerate(block.steps):  # noqa: B007
                step(w)
        except UnsupportedError as error:
            raise self.program.error("unsupported", block.places[number].pc, str(error)) from error
        except EmulationError:
            raise
        except Exception as error:
            one = block.places[number]
            if misfit := find_misfit(one, w.layout):
                raise self.program.error("unsupported", one.pc, misfit) from error
            place = f"{self.program.kernel.symbol}+{one.pc:#x} {one.text}"
            raise RuntimeError(f"the emulator failed at {place}") from error
        self.executed += block.instructions * w.count
        if self.executed > self.limit:
            raise self.program.error(
                "endless", block.start, f"more than {self.limit:,} instructions"
            )
        w.pc = block.after
        if block.end is None:
            self._ready.append(w)
        else:
            self._end(w, block.end)

    def _follow_loads(self, w: Waves) -> None:
        """Report registers that a block uses before a wait covers their load."""
        before = w.loads.tolist()
        passages = {state: self.program.waits.passage(w.pc, state) for state in set(before)}
        if any(passage.misuses for passage in passages.values()):
            for row, state in enumerate(before):
                group, number = int(w.groups[row]), int(w.numbers[row])
                w.machine.report_misuses(passages[state].misuses, group, number)
        w.loads[:] = [passages[state].state for state in before]

    def _end(self, w: Waves, one: Instruction) -> None:
        if one.name in BRANCHES:
            self._branch(w, BRANCHES[one.name](w), one.target)
        elif one.name == "S_BRANCH":
            w.pc = one.target
            self._ready.append(w)
        elif one.name == "S_BARRIER":
            self._waiting.append(w)
        elif one.name == "S_ENDPGM":
            np.subtract.at(self.live, w.groups, 1)
            w.machine.races.end(w)
        else:
            self._jump(w, one)

    def _branch(self, w: Waves, taken: Array, target: int) -> None:
        if taken.all():
            w.pc = target
            self._ready.append(w)
        elif not taken.any():
            self._ready.append(w)
        else:
            away = w.take(np.flatnonzero(taken))
            away.pc = target
            self._ready += [w.take(np.flatnonzero(~taken)), away]

    def _jump(self, w: Waves, one: Instruction) -> None:
        """Jump to the address in a register, after the offset of the next instruction is saved."""
        if misfit := find_misfit(one, w.layout):
            raise self.program.error("unsupported", one.pc, misfit)
        after = np.full((w.count, 1), w.machine.entry + one.pc + one.size, U64)
        called = one.name == "S_CALL_B64"
        targets = np.full(w.count, one.target) if called else jump_target(one)(w)
        if one.name != "S_SETPC_B64":
            w.q[one["sdst"]][...] = after
            if w.known:
                w.known[1][:, one["sdst"] : one["sdst"] + 2] = True
        for target in np.unique(targets):
            part = w.take(np.flatnonzero(targets == target))
            part.pc = int(target)
            self._ready.append(part)

    def _release(self) -> None:
        """Let workgroups go on of which all waves are at a barrier."""
        here = np.zeros_like(self.live)
        for part in self._waiting:
            np.add.at(here, part.groups, 1)
        open_ = here == self.live
        for group in np.flatnonzero(open_ & (here > 0)):
            self._waiting[0].machine.races.meet(int(group))
        waiting: list[Waves] = []
        for part in self._waiting:
            free = open_[part.groups]
            if free.all():
                self._ready.append(part)
            elif free.any():
                self._ready.append(part.take(np.flatnonzero(free)))
                waiting.append(part.take(np.flatnonzero(~free)))
            else:
                waiting.append(part)
        self._waiting = waiting
