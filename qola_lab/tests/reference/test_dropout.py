"""Dropout: random numbers, and the elements that they apply to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qola_lab.reference.dropout import Dropout, philox4x32

PI = ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], (0xA4093822, 0x299F31D0))
ONES = ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF))
ZEROS = ([0] * 4, (0, 0))


@pytest.mark.parametrize(
    ("rounds", "inputs", "expected"),
    [
        (7, ZEROS, "5f6fb709 0d893f64 4f121f81 4f730a48"),
        (7, ONES, "5207ddc2 45165e59 4d8ee751 8c52f662"),
        (7, PI, "4dfccaba 190a87f0 c47362ba b6b5242a"),
        (10, ZEROS, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (10, ONES, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (10, PI, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_published_numbers(
    rounds: int, inputs: tuple[list[int], tuple[int, int]], expected: str
) -> None:
    """Prevents: random numbers that differ from Random123's known answers."""
    counter, key = inputs
    words = philox4x32(np.array(counter, np.uint32), key, rounds)
    assert " ".join(f"{word:08x}" for word in words.tolist()) == expected


def byte_in_a_16x16_layout(dropout: Dropout, head: int, row: int, column: int) -> int:
    """Return the byte that a lane of CK's 16x16 instructions draws (BlockDropout, wave 64).

    The position in the 16x16 tile selects lane and register; the position of that tile in its
    32x32 tile selects the word.
    """
    in_row, in_column = row % 16, column % 16
    lane, register = 16 * (in_row // 4) + in_column, in_row % 4
    word = 2 * (row // 16 % 2) + (lane >> 4 & 1)
    counter = dropout.offset + 64 * head + (lane & 47) + (column // 16 % 2 << 4)
    full_counter = [counter & 0xFFFFFFFF, counter >> 32, row // 32, column // 32]
    key = (dropout.seed & 0xFFFFFFFF, dropout.seed >> 32)
    words = philox4x32(np.array(full_counter, np.uint32), key, 7)
    return int(words[word]) >> 8 * register & 0xFF


def test_both_layouts_draw_the_same_bytes() -> None:
    """Prevents: a dropout mask that only kernels with 32x32 matrix instructions have."""
    dropout = Dropout(0.5, seed=0x1234567890ABCDEF, offset=(1 << 32) - 70)
    batch, heads, rows, columns = 3, 2, 45, 70
    random_bytes = dropout.bytes(batch, heads, rows, columns)
    generator = np.random.default_rng(1)
    for _ in range(400):
        head, row, column = (int(generator.integers(n)) for n in (heads, rows, columns))
        expected = byte_in_a_16x16_layout(dropout, batch * heads + head, row, column)
        assert random_bytes[head, row, column] == expected, (head, row, column)


def test_a_byte_depends_only_on_its_position() -> None:
    """Prevents: another mask for equal tensors in a longer batch or sequence."""
    dropout = Dropout(0.5, 7, 11)
    small, large = dropout.bytes(1, 3, 33, 40), dropout.bytes(1, 3, 200, 129)
    assert np.array_equal(small, large[:, :33, :40])
    assert not np.array_equal(small, dropout.bytes(0, 3, 33, 40))
    # Heads are numbered through all sequences.
    assert np.array_equal(dropout.bytes(0, 6, 33, 40)[3:], small)


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.25, 0.5, 0.9])
def test_rates(probability: float) -> None:
    """Prevents: a threshold that is off by one, which a single problem would not show."""
    dropout = Dropout(probability, seed=3)
    count = 4 * 256 * 256
    rate = float((dropout.factors(0, 4, 256, 256) > 0).mean())
    expected = (dropout.threshold + 1) / 256
    assert abs(rate - expected) <= 6 * math.sqrt(expected * (1 - expected) / count)
    # CK rounds the requested probability to a multiple of 1/256.
    assert abs(expected - (1 - probability)) <= 1 / 256 + 1e-6
    assert dropout.scale == pytest.approx(1 / (1 - probability), rel=1e-6)


def test_thresholds() -> None:
    """Prevents: a threshold that is rounded differently than CK's: to float32, then down."""
    assert [Dropout(p).threshold for p in (0.0, 0.1, 0.2, 0.25, 0.5, 0.75)] == [
        255,
        229,
        204,
        191,
        127,
        63,
    ]
