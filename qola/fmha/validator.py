"""Whether results are right: against one tolerance for a data type, or element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola.reference.formats import F64
from qola.verify.tensors import formats

#: Relative errors of P besides its rounding, of numbers that are drawn: see `Validator.of`.
_OF_P = 2.0**-12


@dataclass(frozen=True)
class Check:
    """What came of a comparison.

    Attributes:
        worst: the largest error, as a share of what is allowed there.
        over: elements that are further off than allowed, or not a number.
        place: of the largest error.
    """

    max_abs: float
    max_rel: float
    worst: float
    over: int
    compared: int
    place: tuple[int, ...]

    @property
    def passed(self) -> bool:
        """Whether all elements are near enough."""
        return self.over == 0


@dataclass(frozen=True)
class Validator:
    """One tolerance for all elements of O: |found - reference| <= atol + rtol |reference|."""

    rtol: float
    atol: float

    @staticmethod
    def of(dtype: str, largest: float = 6.0, arch: str = "gfx950") -> Validator:
        """Return the tolerance of O for a data type.

        rtol is what writing O rounds by. atol is what the rounding of P adds up to at worst, whose
        sum is 1: P's relative error times the largest V; to which the sums of Q K^T and exp2 add
        2^-12 for numbers of a standard normal distribution, head dimensions up to 256 and a scale
        of 1 / sqrt(hdim) (docs/internals/tolerances.md). Other inputs, LSE and gradients are
        compared element by element: `Runner.verdicts`.

        Args:
            dtype: CK's word for it.
            largest: of the absolute values of V; 6 standard deviations are exceeded by one number
                in 500 million.

        Raises:
            KeyError: no such data type is known.
        """
        low, out = formats(dtype, arch)
        # Kernels may round P toward zero, which is twice as far off.
        return Validator(out.unit() + _OF_P, largest * (low.unit("toward_zero") + _OF_P))

    def check(self, found: NDArray[Any], reference: F64) -> Check:
        """Compare an array with its reference; equal infinities are equal.

        Raises:
            ValueError: the shapes differ.
        """
        if found.shape != reference.shape:
            raise ValueError(f"shape {found.shape} in place of {reference.shape}")
        values = np.asarray(found).astype(np.float64)
        same = values == reference
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.where(same, 0.0, np.abs(values - reference))
            share = error / (self.atol + self.rtol * np.abs(reference))
            relative = np.where(same, 0.0, error / np.abs(reference))
        share = np.where(same, 0.0, np.where(np.isnan(share), np.inf, share))
        if not share.size:
            return Check(0.0, 0.0, 0.0, 0, 0, ())
        place = np.unravel_index(int(np.argmax(share)), share.shape)
        return Check(
            max_abs=float(error.max()),
            max_rel=float(relative.max()),
            worst=float(share[place]),
            over=int((share > 1).sum()),
            compared=share.size,
            place=tuple(int(n) for n in place),
        )
