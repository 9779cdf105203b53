"""The table of operations: name, operands, results, and a function of arrays.

A signature such as ``f32 f32 -> f32`` has a type for each operand in the order of the instruction.
Other kinds of operands:

- ``mask``: a bit a lane, as booleans; VCC where the encoding names no register,
- ``scc``: the scalar condition code, as booleans,
- ``dst``: the value of the destination, in the type of the result,
- ``lit``: the literal behind the instruction (V_FMAMK and the like),
- ``fnuz``: whether floats of 8 bits are gfx942's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from gfxemu.arrays import ArrayFunction

#: NumPy's type of each type of values in a register or a pair of them.
TYPES: dict[str, type[np.generic]] = {
    **{"u16": np.uint16, "i16": np.int16, "f16": np.float16},
    **{"u32": np.uint32, "i32": np.int32, "f32": np.float32},
    **{"u64": np.uint64, "i64": np.int64, "f64": np.float64},
}


@dataclass(frozen=True)
class Operation:
    """An operation that is a function of its operands, lane by lane or wave by wave."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: ArrayFunction


#: Vector operations (VOP1, VOP2, VOP3, VOPC): a value a lane.
VECTOR: dict[str, Operation] = {}
#: Scalar operations (SOP1, SOP2, SOPC, SOPK): a value a wave.
SCALAR: dict[str, Operation] = {}
#: Packed operations (VOP3P): two values a lane, whose types the signature gives.
PACKED: dict[str, Operation] = {}


def _add(table: dict[str, Operation], name: str, signature: str, function: ArrayFunction) -> None:
    inputs, outputs = signature.split("->")
    if name in table:
        raise ValueError(f"{name} is in the table already")
    table[name] = Operation(name, tuple(inputs.split()), tuple(outputs.split()), function)


# Each enters an operation: name, signature, function.
vector, scalar, packed = partial(_add, VECTOR), partial(_add, SCALAR), partial(_add, PACKED)
