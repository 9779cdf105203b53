"""Scalar memory (SMEM): words at an address that is the same for a wave."""

from __future__ import annotations

import re

import numpy as np

from qola.emulate import memory
from qola.emulate.arrays import I64, U64, Array
from qola.emulate.decode import Instruction
from qola.emulate.lanes import Binder
from qola.emulate.operands import Literals
from qola.emulate.waves import EXEC, Step, Waves

_LOAD = re.compile(r"S_(BUFFER_)?LOAD_DWORD(?:X(\d+))?$")
_COUNTS = (1, 2, 4, 8, 16)


def _bind(one: Instruction, literals: Literals) -> Step:
    found = _LOAD.match(one.name)
    assert found
    words = int(found[2] or 1)
    base, target = one["sbase"], one["sdata"]
    buffer = bool(found[1])
    raw = one["offset"] if one["imm"] else 0
    # 21 bits with a sign.
    offset = raw - (1 << 21) if raw >> 20 & 1 else raw
    register = one["soffset"] if one["soffset_en"] else None
    if not one["imm"] and register is None:
        # Without both, the offset field is a register's number.
        register = one["offset"] & 0x7F
    changes_exec = target <= EXEC + 1 and target + words > EXEC

    def run(w: Waves) -> None:
        distance: Array | int = offset
        if register is not None:
            distance = w.u[register].astype(I64) + offset
        start = w.q[base]
        assert start is not None
        within: list[Array] = []
        if buffer:
            records = w.u[base + 2].astype(I64)
            within = [distance + 4 * word < records for word in range(words)]
            start = start & U64(0xFFFFFFFFFFFF)
        # The two lowest bits of an address are ignored.
        addresses = (start + np.asarray(distance, I64).view(U64)) & ~U64(3)
        # Of a buffer each word by itself: those out of its range are 0, whatever lies there.
        step = 1 if buffer else words
        parts = []
        for word in range(0, words, step):
            checked, used = w.machine.map.checked(
                addresses + U64(4 * word),
                4 * step,
                within[word] if within else None,
                w.machine.reporter(w, one),
            )
            found = memory.read_words(checked, step)
            parts.append(found if used is None else found * used)
        values = np.concatenate(parts)
        w.s[:, target : target + words] = values[:, :, 0].T
        if changes_exec:
            w.update_exec()

    return run


SCALAR_MEMORY: dict[str, Binder] = {
    f"S_{buffer}LOAD_DWORD{f'X{count}' if count > 1 else ''}": _bind
    for buffer in ("", "BUFFER_")
    for count in _COUNTS
}
