"""Number formats: rounding and encoding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qola_base.formats import (
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
def test_fp16_and_fp32_match_numpy(values: list[float]) -> None:
    """Prevents: rounding that differs from NumPy's at ties, small numbers or large numbers."""
    given_ = np.array(values)
    with np.errstate(over="ignore"):
        fp16, fp32 = given_.astype(np.float16), given_.astype(np.float32)
    assert np.array_equal(rounded(given_, FP16), fp16.astype(np.float64))
    assert np.array_equal(rounded(given_, FP32), fp32.astype(np.float64))
    assert np.array_equal(encoded(given_, FP16), fp16.view(np.uint16))
    assert np.array_equal(encoded(given_, FP32), fp32.view(np.uint32))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_bf16_is_the_upper_half_of_fp32(words: list[int]) -> None:
    """Prevents: bf16 that hardware rounds differently, to nearest even or toward zero."""
    bits = np.array(words, np.uint32)
    values = bits.view(np.float32)
    finite = np.isfinite(values)
    bits, values = bits[finite], values[finite].astype(np.float64)
    wide = bits.astype(np.uint64)
    even = (wide + 0x7FFF + ((wide >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    cut = (wide >> np.uint64(16)).astype(np.uint16)
    assert np.array_equal(encoded(values, BF16), even.astype(np.uint16))
    assert np.array_equal(encoded(rounded(values, BF16, "toward_zero"), BF16), cut)


@pytest.mark.parametrize("format_", SMALL, ids=lambda format_: format_.name)
def test_every_code_survives_decoding(format_: Format) -> None:
    """Prevents: bits in memory that stand for another number than the reference uses."""
    codes = np.arange(2**format_.bits)
    values = decoded(codes, format_)
    numbers = ~np.isnan(values)
    assert np.array_equal(encoded(values, format_)[numbers], codes[numbers])
    assert np.array_equal(rounded(values[numbers], format_), values[numbers])
    assert np.nanmax(np.where(np.isfinite(values), values, 0)) == format_.largest
    assert np.isnan(decoded(encoded(np.nan, format_), format_))


#: Codes and values of the OCP and FNUZ 8-bit formats.
@pytest.mark.parametrize(
    ("format_", "code", "value"),
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
def test_8_bit_formats(format_: Format, code: int, value: float) -> None:
    """Prevents: fp8 of gfx942 confused with fp8 of gfx950, whose exponent bias differs by 1."""
    assert decoded(code, format_) == value
    assert encoded(value, format_) == code


@pytest.mark.parametrize("rounding", ["nearest_even", "toward_zero"])
@pytest.mark.parametrize("format_", SMALL, ids=lambda format_: format_.name)
@given(st.lists(st.floats(-1e4, 1e4), min_size=1))
def test_rounding_errors_are_within_the_unit(
    format_: Format, rounding: Rounding, values: list[float]
) -> None:
    """Prevents: error limits that assume a smaller error than rounding makes."""
    given_ = np.clip(np.array(values), -format_.largest, format_.largest)
    error = np.abs(rounded(given_, format_, rounding) - given_)
    assert np.all(error <= format_.unit(rounding) * np.abs(given_) + format_.step(rounding))


def test_numbers_beyond_the_range() -> None:
    """Prevents: an infinity in a format that has none."""
    values = np.array([1e6, -1e6, np.inf, -np.inf])
    assert rounded(values, FP16).tolist() == [np.inf, -np.inf, np.inf, -np.inf]
    assert rounded(values, FP8).tolist() == [448, -448, 448, -448]
    assert rounded(1e6, FP16, "toward_zero") == 65504
