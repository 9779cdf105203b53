"""Makes dataclasses of JSON's values by their type hints, and refuses what is of another type."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from qola_base.errors import unseen

Reader = Callable[[Any], Any]

Scalar = str | int | float | bool | None

JsonValue: TypeAlias = "Scalar | Sequence[JsonValue] | Mapping[str, JsonValue]"
"""A value that json.dumps writes."""

JsonObject = dict[str, JsonValue]


_MAX_DEPTH = 32
_MAX_DIGITS = 20


class WrongValueError(ValueError):
    """A value of the wrong type. The message starts with its path: ``.kernels.name``."""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text that somebody else may have written.

    Raises:
        WrongValueError: it is not JSON, has an integer of more than 20 digits, or is nested so
            deeply that Python's recursion would end with a traceback, here or later.
    """
    try:
        value = json.loads(text, parse_int=_integer)
    except RecursionError:
        raise WrongValueError(_DEEP) from None
    except ValueError as error:
        raise WrongValueError(str(error)) from None
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            part
            for parent in level
            if isinstance(parent, (dict, list))
            for part in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return value
    raise WrongValueError(_DEEP)


def _integer(digits: str) -> int:
    # As many as 2**64 has; an array or a float can overflow with more.
    if len(digits) > _MAX_DIGITS:
        raise WrongValueError(f"a number of {len(digits)} digits")
    return int(digits)


_DEEP = f"values nested more than {_MAX_DEPTH} deep"


def json_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name; `reader` reads the JSON of ``default=json_fields``.

    Raises:
        TypeError: the value is not a dataclass.
    """
    return {name: getattr(value, name) for name in _field_names(type(value))}  # type: ignore[arg-type]


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def reader(hint: Any) -> Reader:
    """Return the function that makes of JSON's values those of a type; it raises WrongValueError.

    Made once for each type: a plan has 20,000 kernel instances.

    Args:
        hint: a dataclass, ``tuple[X, ...]``, ``tuple[X, Y]``, ``Mapping[str, X]``, a ``Literal``,
            a dataclass, tuple or mapping or None, a plain type of JSON or a union of such; ``Any``
            takes all.
    """
    parts, origin = get_args(hint), get_origin(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _object(hint, {k: reader(part) for k, part in get_type_hints(hint).items()})
    if origin is tuple and parts[-1] is Ellipsis:
        return _list(reader(parts[0]))
    if origin is tuple:
        return _fixed_tuple([reader(part) for part in parts])
    if origin is Mapping:
        return _table(reader(parts[1]))
    if hint is Any:
        return lambda value: value
    if origin is Literal:
        return _one_of(lambda value: value in parts, " or ".join(map(repr, parts)))
    if origin in (Union, types.UnionType):
        known = [part for part in parts if part is not NoneType]
        if len(known) == 1 and (get_origin(known[0]) or is_dataclass(known[0])):
            some = reader(known[0])
            return lambda value: None if value is None else some(value)
    plain = frozenset(parts if origin in (Union, types.UnionType) else (hint,))
    names = " or ".join(sorted(kind.__name__ for kind in plain))
    # Not isinstance: a boolean is an int. A lone surrogate has no UTF-8, and messages have lines.
    return _one_of(
        lambda value: type(value) in plain and not (type(value) is str and _is_odd(value)), names
    )


def _is_odd(text: str) -> bool:
    # isprintable() is quick, and true for nearly all texts.
    return not text.isprintable() and bool(unseen(text.replace("\n", "").replace("\t", "")))


def _one_of(holds: Callable[[Any], bool], expected: str) -> Reader:
    def read(value: Any) -> Any:
        if not holds(value):
            raise WrongValueError(f": {repr(value)[:80]}, expected {expected}")
        return value

    return read


def _object(hint: Callable[..., Any], readers: Mapping[str, Reader]) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise WrongValueError(f": {repr(data)[:80]}, expected an object")
        values = {}
        for name, part in readers.items():
            if name not in data:
                raise WrongValueError(f": no {name}")
            try:
                values[name] = part(data[name])
            except WrongValueError as error:
                raise WrongValueError(f".{name}{error}") from None
        return hint(**values)

    return read


def _list(item: Reader) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not list:
            raise WrongValueError(f": {repr(data)[:80]}, expected a list")
        return tuple(map(item, data))

    return read


def _fixed_tuple(items: Sequence[Reader]) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not list or len(data) != len(items):
            raise WrongValueError(f": {repr(data)[:80]}, expected a list of {len(items)}")
        return tuple(item(value) for item, value in zip(items, data, strict=True))

    return read


def _table(item: Reader) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not dict or any(map(_is_odd, data)):
            raise WrongValueError(f": {repr(data)[:80]}, expected an object")
        return {key: item(value) for key, value in data.items()}

    return read
