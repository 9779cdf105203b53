"""Which keys a query sees, and alibi's bias.

The rules are those of CK's ck_tile/ops/fmha/block/block_masking.hpp
(make_generic_attention_mask_coordinates_from_lr_window, IsOutOfBound) and
block_position_encoding.hpp (Alibi, make_alibi_from_lr_mask).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qola_base.formats import F64

MaskType = Literal["no", "top_left", "bottom_right"]

EVERY = slice(None)
"""All heads or rows."""


@dataclass(frozen=True)
class Mask:
    """A causal mask or a sliding window.

    Attributes:
        mask_type: the corner in which the diagonal begins or ends; "no" for no mask.
        window_size_left, window_size_right: keys before and after the diagonal that a query sees;
            -1 for all.
    """

    mask_type: MaskType = "no"
    window_size_left: int = -1
    window_size_right: int = -1

    @property
    def is_causal(self) -> bool:
        """Whether it is the plain causal mask: all keys before, none after."""
        return self.mask_type != "no" and self.window_size_left < 0 and self.window_size_right == 0

    def allowed(self, rows: int, columns: int, part: slice = EVERY) -> NDArray[np.bool_]:
        """Return whether each query sees each key, [rows, columns].

        Args:
            part: the rows to return; the mask is that of all rows.
        """
        row = np.arange(rows)[part, None]
        if self.mask_type == "no":
            return np.broadcast_to(np.True_, (len(row), columns))
        shift = columns - rows if self.mask_type == "bottom_right" else 0
        distance = np.arange(columns) - row - shift
        seen = np.ones((len(row), columns), np.bool_)
        if self.window_size_left >= 0:
            seen &= distance >= -self.window_size_left
        if self.window_size_right >= 0:
            seen &= distance <= self.window_size_right
        return seen


NO_MASK = Mask()
TOP_LEFT = Mask("top_left", -1, 0)
BOTTOM_RIGHT = Mask("bottom_right", -1, 0)


def alibi(slopes: F64, rows: int, columns: int, mask: Mask = NO_MASK, part: slice = EVERY) -> F64:
    """Return the bias that CK adds to the scaled scores, [heads, rows, columns].

    With a causal mask the bias is slope * column. This differs from the usual -slope * distance by
    a constant per row: O does not change, but LSE does. Otherwise the bias is -slope * distance
    from a diagonal. The diagonal starts at the top left for a top-left window, and ends at the
    bottom right for a bottom-right window and without a mask.

    Args:
        slopes: [heads].
        part: the rows to return; the diagonal is that of all rows.
    """
    column = np.arange(columns, dtype=np.float64)
    row = np.arange(rows, dtype=np.float64)[part, None]
    if mask.is_causal:
        return np.broadcast_to(slopes[:, None, None] * column, (len(slopes), len(row), columns))
    shift = 0 if mask.mask_type == "top_left" else columns - rows
    return -slopes[:, None, None] * np.abs(row + shift - column)
