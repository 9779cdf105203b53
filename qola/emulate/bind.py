"""Turns an instruction whose operation is in the table into a function of waves.

The fields of an instruction are decoded once; the function only reads, computes and writes.
"""

from __future__ import annotations

from qola.emulate import compare, convert, float8, packed, scalar, vector
from qola.emulate.bind_packed import bind_packed
from qola.emulate.bind_scalar import bind_scalar
from qola.emulate.bind_vector import bind_vector
from qola.emulate.decode import Instruction, family
from qola.emulate.operands import Literals
from qola.emulate.table import PACKED, SCALAR, VECTOR
from qola.emulate.waves import Step

# Importing them fills the table.
_MODULES = (compare, convert, float8, packed, scalar, vector)


def bind_table(one: Instruction, literals: Literals) -> Step | None:
    """The function of an instruction whose operation is in the table, None for others."""
    form = family(one)
    if form.startswith("SOP"):
        return bind_scalar(one, SCALAR[one.name], literals) if one.name in SCALAR else None
    if form == "VOP3P":
        return bind_packed(one, PACKED[one.name], literals) if one.name in PACKED else None
    if form.startswith("VOP") and one.name in VECTOR:
        return bind_vector(one, VECTOR[one.name], literals)
    return None
