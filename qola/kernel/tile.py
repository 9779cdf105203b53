"""The tile of a kernel, and its division among waves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

Triple = tuple[int, int, int]

# Python refuses to make an integer of thousands of digits.
_PART = re.compile(r"(b|r|w|o|maxq)(-?[0-9]{1,9}(?:x[0-9]{1,9})*)")


@dataclass(frozen=True)
class Tile:
    """A tile of CK's generators.

    Attributes:
        block: sizes of a block. Forward: bm0, bn0, bk0, bn1, bk1, bk0max (rows of Q, rows of K, a
            step of hdim_q; hdim_v, a step of the rows of K; hdim_q). The backward has three more
            steps; kernels without matrix instructions have rows only.
        waves: waves along m, n and k, for each matrix product.
        warps: m, n and k of the matrix instructions.
        per_cu: intended blocks per compute unit, None if the compiler decides.
        max_rows: largest seqlen_q, 0 for any; None if the notation lacks it.
    """

    block: tuple[int, ...]
    waves: tuple[Triple, ...] = ()
    warps: tuple[Triple, ...] = ()
    per_cu: int | None = None
    max_rows: int | None = None

    def __str__(self) -> str:
        """Return CK's notation: b128x64x32x64x32x64_r4x1x1_r4x1x1_w32x32x16_w32x32x16."""
        parts = ["b" + _joined(self.block)]
        parts += ["r" + _joined(one) for one in self.waves]
        parts += ["w" + _joined(one) for one in self.warps]
        parts += [] if self.per_cu is None else [f"o{self.per_cu}"]
        parts += [] if self.max_rows is None else [f"maxq{self.max_rows}"]
        return "_".join(parts)

    @staticmethod
    @cache
    def parse(text: str) -> Tile | None:
        """Parse a notation; None if it is invalid."""
        found: dict[str, list[tuple[int, ...]]] = {}
        for part in text.split("_"):
            match = _PART.fullmatch(part)
            if match is None:
                return None
            found.setdefault(match[1], []).append(tuple(map(int, match[2].split("x"))))
        waves, warps = (
            [(one[0], one[1], one[2]) for one in found.get(letter, ()) if len(one) == 3]
            for letter in "rw"
        )
        (block, *_), (per_cu, *_), (most, *_) = (found.get(of, [()]) for of in ("b", "o", "maxq"))
        last = (one[0] if one else None for one in (per_cu, most))
        tile = Tile(block, tuple(waves), tuple(warps), *last)
        # Parts in another order, or unknown ones, are invalid.
        return tile if block and str(tile) == text else None


def _joined(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
