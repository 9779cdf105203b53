"""Names of array types: NumPy's own do not say more, as shapes and types are found when run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

U8 = np.uint8
U32 = np.uint32
U64 = np.uint64
I32 = np.int32
I64 = np.int64
F32 = np.float32
F64 = np.float64
