"""Masks and ALiBi distances."""

from __future__ import annotations

import numpy as np
import pytest

from qola_lab.reference.masks import BOTTOM_RIGHT, NO_MASK, TOP_LEFT, Mask, alibi


def picture(mask: Mask, rows: int, columns: int) -> list[str]:
    return ["".join(".1"[int(x)] for x in row) for row in mask.allowed(rows, columns)]


@pytest.mark.parametrize(
    ("mask", "rows", "columns", "expected"),
    [
        # The figures at the top of CK's block_masking.hpp.
        (TOP_LEFT, 5, 8, "1....... 11...... 111..... 1111.... 11111..."),
        (BOTTOM_RIGHT, 5, 8, "1111.... 11111... 111111.. 1111111. 11111111"),
        (Mask("top_left", 1, 0), 5, 8, "1....... 11...... .11..... ..11.... ...11..."),
        (Mask("top_left", 1, 3), 5, 8, "1111.... 11111... .11111.. ..11111. ...11111"),
        (Mask("bottom_right", 4, 0), 5, 8, "1111.... 11111... .11111.. ..11111. ...11111"),
        (Mask("bottom_right", 4, 2), 5, 8, "111111.. 1111111. .1111111 ..111111 ...11111"),
        (TOP_LEFT, 5, 4, "1... 11.. 111. 1111 1111"),
        (BOTTOM_RIGHT, 5, 4, ".... 1... 11.. 111. 1111"),
        (Mask("bottom_right", 0, 0), 3, 3, "1.. .1. ..1"),
        (NO_MASK, 2, 3, "111 111"),
    ],
)
def test_pictures(mask: Mask, rows: int, columns: int, expected: str) -> None:
    """Prevents: a diagonal that is off by one, or that starts in the wrong corner."""
    assert picture(mask, rows, columns) == expected.split()


@pytest.mark.parametrize(
    ("mask", "rows", "columns", "expected"),
    [
        # The figures at the top of CK's block_position_encoding.hpp.
        (TOP_LEFT, 2, 4, [[0, 1, 2, 3], [0, 1, 2, 3]]),
        (BOTTOM_RIGHT, 2, 4, [[0, 1, 2, 3], [0, 1, 2, 3]]),
        (Mask("top_left", -1, 9), 3, 4, [[0, -1, -2, -3], [-1, 0, -1, -2], [-2, -1, 0, -1]]),
        (NO_MASK, 2, 4, [[-2, -1, 0, -1], [-3, -2, -1, 0]]),
        (NO_MASK, 3, 1, [[-2], [-1], [0]]),
        (Mask("bottom_right", 3, 0), 2, 4, [[-2, -1, 0, -1], [-3, -2, -1, 0]]),
    ],
)
def test_alibi(mask: Mask, rows: int, columns: int, expected: list[list[int]]) -> None:
    """Prevents: a slope of the wrong sign, or distances from another diagonal."""
    found = alibi(np.array([1.0, 0.5]), rows, columns, mask)
    assert np.array_equal(found[0], expected)
    assert np.array_equal(found[1], 0.5 * np.array(expected))
