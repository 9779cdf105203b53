"""The expected contents of a tensor that a kernel writes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qola.reference.formats import F64


@dataclass(frozen=True)
class Result:
    """A tensor that a kernel writes.

    Attributes:
        exact: the reference.
        likely, worst: how far a kernel may be from it, see qola.reference.limits.
        compared: elements that a kernel must write. It leaves out sequences that are skipped,
            and gradients of sequences that have no Q or no K.
    """

    exact: F64
    likely: F64
    worst: F64
    compared: NDArray[np.bool_]
