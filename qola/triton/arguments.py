"""Arguments of a launch as they lie in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from qola.triton.kernel import Argument

_FORMS = {"fp32": "f", "fp64": "d", "i1": "?"} | {
    f"{sign}{bits}": letter if sign == "i" else letter.upper()
    for sign in "iu"
    for bits, letter in ((8, "b"), (16, "h"), (32, "i"), (64, "q"))
}


def form_of(argument: Argument) -> str:
    """Return the letter that `struct` has for an argument.

    Raises:
        KeyError: its type is handed over in no known way.
    """
    return "Q" if argument.type.startswith("*") else _FORMS[argument.type]


def packed(arguments: Iterable[Argument], values: Mapping[str, int | float]) -> bytes:
    """Return the kernel's arguments: each at a multiple of its size, then two scratch pointers.

    Args:
        values: by name; addresses for pointers.

    Raises:
        KeyError: a value is missing, or a type is handed over in no known way.
        struct.error: a value is outside of its type.
    """
    result = b""
    given = [(form_of(one), values[one.name]) for one in arguments]
    for form, value in [*given, ("Q", 0), ("Q", 0)]:
        result += bytes(-len(result) % struct.calcsize(form))
        result += struct.pack(f"<{form}", value)
    return result
