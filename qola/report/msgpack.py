"""Reads MessagePack, in which code objects say what their kernels take: no package of its own."""

from __future__ import annotations

import struct
from typing import Any

# By the byte that begins a value: the format of what follows.
_NUMBERS = {
    **{0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"},
    **{0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"},
}
_TEXTS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_LISTS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def unpack(data: memoryview) -> Any:
    """Return the value that begins the data; binary data and extensions are not known.

    Raises:
        ValueError: a value of a type that is not known, or a text that is not UTF-8.
        IndexError, struct.error: it ends too early.
        RecursionError: values too deep within each other.
    """
    return _value(data, 0)[0]


def _value(data: memoryview, at: int) -> tuple[Any, int]:
    first, at = data[at], at + 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 256, at
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _NUMBERS:
        return _number(data, at, _NUMBERS[first])
    if first in _TEXTS or 0xA0 <= first < 0xC0:
        size, at = _number(data, at, _TEXTS[first]) if first in _TEXTS else (first & 31, at)
        if at + size > len(data):
            raise IndexError
        return bytes(data[at : at + size]).decode("utf-8"), at + size
    if first in _LISTS or 0x90 <= first < 0xA0:
        size, at = _number(data, at, _LISTS[first]) if first in _LISTS else (first & 15, at)
        values = []
        for _ in range(size):
            value, at = _value(data, at)
            values.append(value)
        return values, at
    if first in _MAPS or first < 0x90:
        size, at = _number(data, at, _MAPS[first]) if first in _MAPS else (first & 15, at)
        found = {}
        for _ in range(size):
            key, at = _value(data, at)
            found[key], at = _value(data, at)
        return found, at
    raise ValueError(f"MessagePack's type {first:#x}")


def _number(data: memoryview, at: int, form: str) -> tuple[Any, int]:
    return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
