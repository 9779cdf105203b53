"""The blocks of a kernel that waves have run."""

from __future__ import annotations

from gfxemu.coverage import BlockSize, reachable_blocks
from gfxemu.launch import Options
from gfxemu.tests.programs import DESCRIPTOR, END, cmp_lg, load, movk, sopp, wait

#: Two blocks that a branch on s2 chooses between, and a move that no wave can reach.
WORDS = [
    *(cmp_lg(2, 0), sopp("S_CBRANCH_SCC0", 3)),
    *(movk(4, 1), wait(lgkm=0), sopp("S_BRANCH", 2)),
    *(movk(4, 2), sopp("S_BARRIER")),
    *(END, movk(4, 3), END),
]
BLOCKS = [
    BlockSize(0, 8, 2, 0, 0),
    BlockSize(8, 20, 3, 0, 1),
    BlockSize(20, 28, 2, 1, 0),
    BlockSize(28, 32, 1, 0, 0),
]


def test_blocks_that_waves_ran() -> None:
    """Prevents: code counted as executed by another launch or branch, or as reachable."""
    device, module = load(WORDS, DESCRIPTOR, options=Options(strict=True))
    program = module.program("test")
    assert list(reachable_blocks(program).values()) == BLOCKS
    for first, ran in ((1, {0, 8, 28}), (0, {0, 20, 28}), (1, {0, 8, 28})):
        module.forget_blocks()
        assert program.waits.executed() == set()
        # Twice, since the second launch knows the states of waves already.
        for _ in range(2):
            words = first.to_bytes(4, "little")
            device.launch(module, "test", (1, 1, 1), (64, 1, 1), words)
            assert program.waits.executed() == ran


def test_a_jump_to_a_register_may_go_anywhere() -> None:
    """Prevents: functions of a kernel that count as unreachable."""
    # s_setpc_b64 s[2:3], then code that only such a jump reaches
    _, module = load([0xBE801D02, movk(4, 3), END], DESCRIPTOR)
    assert list(reachable_blocks(module.program("test"))) == [0, 4]
