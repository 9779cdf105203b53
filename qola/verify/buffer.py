"""A tensor in memory: its contents before a kernel runs, and the values that were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qola.reference.formats import F64, Format, decoded, encoded

FILLER = 208.0
"""Value between the rows of an input, and in rows of pages that belong to no sequence. Not NaN:
asynchronous kernels of CK load K beyond a padded head dimension and multiply it by zeros of Q."""


Filled = Literal["values", "updated", "zero", "nan"]


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory.

    Attributes:
        shape: as `Tensors` and `expected` have it.
        strides: elements from one to the next along each dimension.
        filled: contents before the kernel runs: values, which it may update or not, zeros or NaN.
            Between rows there is NaN, and FILLER between rows of values, so that a kernel that
            reads them gives a wrong result.
    """

    name: str
    format: Format
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    filled: Filled = "values"

    @property
    def elements(self) -> int:
        """Number of elements from the first to the last."""
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.strides, strict=True)
        return 1 + sum((count - 1) * stride for count, stride in steps)

    @property
    def _padding(self) -> int:
        return int(encoded(FILLER if self._has_values else np.nan, self.format))

    @property
    def _has_values(self) -> bool:
        return self.filled in ("values", "updated")

    def _view(self, raw: NDArray[Any]) -> NDArray[Any]:
        steps = [stride * raw.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(raw, self.shape, steps)

    def written(self, values: F64 | None = None) -> NDArray[Any]:
        """Return the contents of memory before a kernel runs, as unsigned integers.

        Args:
            values: of a buffer that is filled with them.
        """
        raw = np.full(self.elements, self._padding, np.dtype(f"uint{self.format.bits}"))
        if self.elements and self.filled == "zero":
            self._view(raw)[...] = 0
        elif self.elements and self._has_values:
            assert values is not None
            assert values.shape == self.shape
            self._view(raw)[...] = encoded(values, self.format)
        return raw

    def read(self, raw: NDArray[Any]) -> F64:
        """Return the values that memory holds."""
        if not self.elements:
            return np.zeros(self.shape)
        return decoded(self._view(raw), self.format)

    def is_clean(self, raw: NDArray[Any]) -> bool:
        """Whether the elements between the rows are unchanged."""
        padding = np.ones(self.elements, np.bool_)
        if self.elements:
            self._view(padding)[...] = False
        return bool(np.all(raw[padding] == self._padding))
