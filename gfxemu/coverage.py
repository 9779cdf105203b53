"""The blocks of a kernel that waves have run, out of those that they could reach.

A block is a run of instructions that a branch ends, or before which a branch goes; a wave that
begins one runs it to its end. `Waits` knows them.
"""

from __future__ import annotations

from dataclasses import dataclass

from gfxemu.decode import Instruction
from gfxemu.program import BRANCHES, Program

#: Jumps to an address in a register.
_ANYWHERE = frozenset({"S_SETPC_B64", "S_SWAPPC_B64"})


@dataclass(frozen=True)
class BlockSize:
    """A block of a kernel.

    Attributes:
        start, end: offsets from the kernel's first instruction, in bytes.
        instructions, barriers, waits: how many there are; waits and barriers are instructions, too.
    """

    start: int
    end: int
    instructions: int
    barriers: int
    waits: int


def reachable_blocks(program: Program) -> dict[int, BlockSize]:
    """Return the blocks that waves may reach from the first one, by their start.

    With a jump to an address in a register, these are all blocks.
    """
    found: dict[int, BlockSize] = {}
    todo = [0]
    while todo:
        start = todo.pop()
        block = [] if start in found else list(program.waits.block(start))
        if not block:
            continue
        end = block[-1].pc + block[-1].size
        found[start] = BlockSize(
            start,
            end,
            len(block),
            sum(one.name == "S_BARRIER" for one in block),
            sum(one.name.startswith("S_WAIT") for one in block),
        )
        todo += _successors(block[-1], end)
        if block[-1].name in _ANYWHERE:
            todo += program.starts
    return dict(sorted(found.items()))


def _successors(last: Instruction, after: int) -> list[int]:
    """Return where waves go after a block, apart from addresses in registers."""
    if last.name in BRANCHES:
        return [last.target, after]
    if last.name == "S_BRANCH":
        return [last.target]
    if last.name in ("S_ENDPGM", "S_SETPC_B64"):
        return []
    return [last.target, after] if last.name == "S_CALL_B64" else [after]
