"""Comparisons (VOPC), made from their names: a bit a lane; V_CMPX writes EXEC too."""

from __future__ import annotations

import numpy as np

from qola.emulate.arrays import U16, U32, U64, Array, ArrayFunction
from qola.emulate.table import TYPES, vector


def _unordered(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


_INTEGER: dict[str, ArrayFunction] = {
    "F": lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), bool),
    "LT": np.less,
    "EQ": np.equal,
    "LE": np.less_equal,
    "GT": np.greater,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "T": lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
}
_FLOAT: dict[str, ArrayFunction] = {
    "F": _INTEGER["F"],
    "LT": np.less,
    "EQ": np.equal,
    "LE": np.less_equal,
    "GT": np.greater,
    # Less or greater: not so for NaNs, for which "not equal" (NEQ) holds.
    "LG": lambda a, b: (a < b) | (a > b),
    "GE": np.greater_equal,
    "O": lambda a, b: ~_unordered(a, b),
    "U": _unordered,
    "NGE": lambda a, b: ~(a >= b),
    "NLG": lambda a, b: ~((a < b) | (a > b)),
    "NGT": lambda a, b: ~(a > b),
    "NLE": lambda a, b: ~(a <= b),
    "NEQ": np.not_equal,
    "NLT": lambda a, b: ~(a < b),
    "TRU": _INTEGER["T"],
}

for _type in TYPES:
    for _name, _function in (_FLOAT if _type[0] == "f" else _INTEGER).items():
        for _prefix in ("V_CMP", "V_CMPX"):
            vector(f"{_prefix}_{_name}_{_type.upper()}", f"{_type} {_type} -> mask", _function)

#: By type: bits of the mantissa, and the type of the bits.
_LAYOUT = {"f16": (10, U16), "f32": (23, U32), "f64": (52, U64)}


def _classifier(kind: str) -> ArrayFunction:
    mantissa, unsigned = _LAYOUT[kind]

    def classify(value: Array, wanted: Array) -> Array:
        bits = value.view(unsigned)
        negative = np.signbit(value)
        quiet = (bits >> unsigned(mantissa - 1) & unsigned(1)).astype(bool)
        tiny = np.finfo(value.dtype).tiny
        number = np.select(
            [
                np.isnan(value) & ~quiet,
                np.isnan(value),
                np.isinf(value),
                np.abs(value) >= tiny,
                value != 0,
            ],
            [0, 1, np.where(negative, 2, 9), np.where(negative, 3, 8), np.where(negative, 4, 7)],
            np.where(negative, 5, 6),
        )
        return (wanted >> number.astype(U32) & U32(1)).astype(bool)

    return classify


for _type in _LAYOUT:
    for _prefix in ("V_CMP", "V_CMPX"):
        vector(f"{_prefix}_CLASS_{_type.upper()}", f"{_type} u32 -> mask", _classifier(_type))
