"""Number formats: what is rounded, and the bits of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qola.reference.formats import (
    BF8,
    BF8_FNUZ,
    BF16,
    FP8,
    FP8_FNUZ,
    FP16,
    FP32,
    Format,
    Rounding,
    decoded,
    encoded,
    rounded,
)

SMALL = (FP16, BF16, FP8, BF8, FP8_FNUZ, BF8_FNUZ)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(NUMBERS, min_size=1))
def test_fp16_and_fp32_are_those_of_numpy(values: list[float]) -> None:
    """Prevents: a rounding of our own, at ties, at the smallest and at the largest numbers."""
    given_ = np.array(values)
    with np.errstate(over="ignore"):
        fp16, fp32 = given_.astype(np.float16), given_.astype(np.float32)
    assert np.array_equal(rounded(given_, FP16), fp16.astype(np.float64))
    assert np.array_equal(rounded(given_, FP32), fp32.astype(np.float64))
    assert np.array_equal(encoded(given_, FP16), fp16.view(np.uint16))
    assert np.array_equal(encoded(given_, FP32), fp32.view(np.uint32))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_bf16_is_the_upper_half_of_fp32(words: list[int]) -> None:
    """Prevents: bf16 that the hardware would round otherwise, in each of the two ways."""
    bits = np.array(words, np.uint32)
    values = bits.view(np.float32)
    finite = np.isfinite(values)
    bits, values = bits[finite], values[finite].astype(np.float64)
    wide = bits.astype(np.uint64)
    even = (wide + 0x7FFF + ((wide >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    cut = (wide >> np.uint64(16)).astype(np.uint16)
    assert np.array_equal(encoded(values, BF16), even.astype(np.uint16))
    assert np.array_equal(encoded(rounded(values, BF16, "toward_zero"), BF16), cut)


@pytest.mark.parametrize("of", SMALL, ids=lambda of: of.name)
def test_every_code_is_found_again(of: Format) -> None:
    """Prevents: bits in memory that stand for another number than the reference computes with."""
    codes = np.arange(2**of.bits)
    values = decoded(codes, of)
    numbers = ~np.isnan(values)
    assert np.array_equal(encoded(values, of)[numbers], codes[numbers])
    assert np.array_equal(rounded(values[numbers], of), values[numbers])
    assert np.nanmax(np.where(np.isfinite(values), values, 0)) == of.largest
    assert np.isnan(decoded(encoded(np.nan, of), of))


#: Of the OCP's and of the other 8-bit formats: code, value.
@pytest.mark.parametrize(
    ("of", "code", "value"),
    [
        (FP8, 0x38, 1.0),
        (FP8, 0x7E, 448.0),
        (FP8, 0x01, 2.0**-9),
        (FP8_FNUZ, 0x40, 1.0),
        (FP8_FNUZ, 0x7F, 240.0),
        (FP8_FNUZ, 0x01, 2.0**-10),
        (BF8, 0x3C, 1.0),
        (BF8, 0x7B, 57344.0),
        (BF8, 0x7C, np.inf),
        (BF8_FNUZ, 0x40, 1.0),
        (BF8_FNUZ, 0x7F, 57344.0),
    ],
)
def test_8_bit_formats(of: Format, code: int, value: float) -> None:
    """Prevents: fp8 of gfx942 taken for that of gfx950, whose exponents are one apart."""
    assert decoded(code, of) == value
    assert encoded(value, of) == code


@pytest.mark.parametrize("rounding", ["nearest_even", "toward_zero"])
@pytest.mark.parametrize("of", SMALL, ids=lambda of: of.name)
@given(st.lists(st.floats(-1e4, 1e4), min_size=1))
def test_errors_are_within_the_unit(of: Format, rounding: Rounding, values: list[float]) -> None:
    """Prevents: limits that rest on a smaller error than the rounding makes."""
    given_ = np.clip(np.array(values), -of.largest, of.largest)
    error = np.abs(rounded(given_, of, rounding) - given_)
    assert np.all(error <= of.unit(rounding) * np.abs(given_) + of.step(rounding))


def test_what_is_too_large() -> None:
    """Prevents: an infinity in a format that has none."""
    values = np.array([1e6, -1e6, np.inf, -np.inf])
    assert rounded(values, FP16).tolist() == [np.inf, -np.inf, np.inf, -np.inf]
    assert rounded(values, FP8).tolist() == [448, -448, 448, -448]
    assert rounded(1e6, FP16, "toward_zero") == 65504
