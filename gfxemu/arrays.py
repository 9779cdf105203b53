"""Names of array types: NumPy's own do not say more, as shapes and types are found when run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: A function of arrays, one value a lane.
ArrayFunction = Callable[..., Any]

U8 = np.uint8
U16 = np.uint16
U32 = np.uint32
U64 = np.uint64
I16 = np.int16
I32 = np.int32
I64 = np.int64
F16 = np.float16
F32 = np.float32
F64 = np.float64


def first_of(lanes: Array) -> tuple[int, int]:
    """Row and column of the first lane of (waves, lanes) that is set."""
    row, lane = divmod(int(np.argmax(lanes)), lanes.shape[1])
    return row, lane


def first_of_any(lanes: Array) -> tuple[int, int] | None:
    """Row and column of the first lane that is set, None if none is."""
    return first_of(lanes) if lanes.any() else None
