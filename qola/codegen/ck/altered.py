"""CK's own objects with other values: what its generators would have made of other lists.

Nothing is known here of a generator's classes but what `vocabulary.fields_of` reads of their
objects: an object is copied, the values that a field was read from are replaced, and what came of
it is read again by the caller, which has to give just the fields that were asked for.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from qola.codegen.ck.link import NotUnderstoodError
from qola.codegen.ck.vocabulary import ALIASES, without_enum
from qola.codegen.types import FieldValue

#: Numbers of a tile's notation, by the letter with which they and CK's members for them begin.
_PART = re.compile(r"([brw])(\d+(?:x\d+)*)")
_PER_CU, _MOST_ROWS = re.compile(r"o(-?\d+)"), re.compile(r"maxq(\d+)")
#: Of a tile whose notation does not say how many blocks a compute unit is to hold.
_ANY_NUMBER = -1
#: Members that no value of a field is looked for in: what belongs to an arch goes with it.
_LEFT_ALONE = frozenset({"arch", "mask_impl", "constraint"})

#: What a pipeline calls a field.
_IN_PIPELINE = {"pipeline": "tag"}

Values = Mapping[str, Any]


def values_of(item: Any, fields: Mapping[str, FieldValue], masks: Mapping[str, bool]) -> Values:
    """Return values by CK's names for its members, such that an object would have these fields.

    Args:
        item: an object of CK that has all members, with other values.
        fields: only those that differ.
        masks: what each of CK's words for a mask stands for.

    Raises:
        NotUnderstoodError: a mask or a tile that there is no word or number for.
    """
    found: dict[str, Any] = {}
    names = {ours: theirs for theirs, ours in ALIASES.items()}
    for name, value in fields.items():
        for word in (name, names.get(name, name), _IN_PIPELINE.get(name, name)):
            found[word] = value
    if "mask" in fields and isinstance(fields["mask"], bool):
        words = [word for word, means in masks.items() if means == fields["mask"]]
        if not words:
            raise NotUnderstoodError(f"no word for mask {fields['mask']}")
        found["mask"] = words[0]
    if "dropout_kind" in fields:
        found["dropout"] = fields["dropout_kind"]
    if "tile" in fields:
        found.update(_tile_values(item, str(fields["tile"])))
    return found


def altered(item: Any, values: Values, *, held: str = "") -> Any:
    """Return a copy of an object, and of those it holds, with other values.

    Args:
        held: what another object calls it.
    """
    made = copy.copy(item)
    for written, given in vars(item).items():
        name = written.removeprefix("F_")
        now = without_enum(given)
        if name in _LEFT_ALONE or (name == "tag" and held != "pipeline"):
            continue
        if now is None or isinstance(now, (str, int)):
            if name in values:
                # Dataclasses of CK may be frozen.
                object.__setattr__(made, written, _as(now, values[name]))
        elif hasattr(now, "__dict__") and not isinstance(now, type):
            object.__setattr__(made, written, altered(now, values, held=name))
    return made


def _as(now: Any, value: Any) -> Any:
    """Return a value in the form that CK has there: t and f, or numbers as text."""
    if isinstance(value, bool) and not isinstance(now, bool):
        return "t" if value else "f"
    return str(value) if isinstance(now, str) and isinstance(value, int) else value


def _tile_values(item: Any, notation: str) -> dict[str, int]:
    """Return the numbers of a tile by the members of the tile that an object holds.

    Raises:
        NotUnderstoodError: it holds none, or one of more or fewer numbers.
    """
    tile = next((v for n, v in vars(item).items() if n.removeprefix("F_") == "tile"), None)
    if tile is None or not hasattr(tile, "__dict__"):
        raise NotUnderstoodError("CK's kernels of the family have no tile of their own")
    members = [name.removeprefix("F_") for name in vars(tile)]
    found: dict[str, int] = {}
    for letter in "brw":
        own = [name for name in members if name.startswith(letter)]
        parts = [match[2] for match in _PART.finditer(notation) if match[1] == letter]
        numbers = [int(number) for part in parts for number in part.split("x")]
        if len(own) != len(numbers):
            words = f"{len(numbers)} numbers after {letter}, while CK's tile has {len(own)}"
            raise NotUnderstoodError(f"the tile {notation} has {words}")
        found.update(zip(own, numbers, strict=True))
    for member, pattern, usual in (
        ("occupancy", _PER_CU, _ANY_NUMBER),
        ("max_seq_q", _MOST_ROWS, 0),
    ):
        if member in members:
            match = re.search(f"_{pattern.pattern}(?:_|$)", notation)
            found[member] = int(match[1]) if match else usual
    return found


def text_of(item: Any, known: str, like: Any) -> str:
    """Return the source of a kernel by CK's own template.

    Args:
        known: source of another kernel, which tells the property that gives it.
        like: that kernel.

    Raises:
        NotUnderstoodError: no property gives it.
    """
    for name in _properties(like):
        if _value(like, name) == known:
            return str(getattr(item, name))
    raise NotUnderstoodError(f"no property of {type(like).__name__} is a kernel's source")


def kernels_held(row: Any) -> Iterator[Any]:
    """Yield the kernels that an object of a dispatch makes of itself, such as partners."""
    for name in _properties(row):
        value = _value(row, name)
        if isinstance(getattr(type(value), "filename", None), property):
            yield value


def _properties(item: Any) -> list[str]:
    return [name for name in dir(type(item)) if isinstance(getattr(type(item), name), property)]


def _value(item: Any, name: str) -> Any:
    try:
        return getattr(item, name)
    except Exception:  # a property of CK that this object cannot have
        return None
