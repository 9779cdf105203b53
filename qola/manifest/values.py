"""Checks a value of a manifest against its field, and describes fields and values in messages."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from qola.common.suggestions import did_you_mean
from qola.manifest.constants import NATIVE, OTHER_ARCHS, TESTED_ARCHS
from qola.manifest.fields import Field, ItemType, Kind, Shape
from qola_base.errors import unseen, visible


@dataclass(frozen=True)
class ValueFault:
    """An error in a value. The caller adds its place and the expected value."""

    found: str
    fix: str = ""


def quote(value: object, limit: int = 72) -> str:
    """Return a value as TOML writes it, cut to `limit` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # dates and times
        text = str(value)
    text = visible(text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def either(choices: Iterable[object]) -> str:
    """Return ``a, b or c``."""
    words = [str(choice) for choice in choices]
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def expectation(field: Field, *, short: bool = False) -> str:
    """Return which values a field accepts, for messages and documentation.

    Args:
        short: omit the names of integers, which the documentation lists separately.
    """
    text = field.kind.phrase
    if NATIVE in field.allowed:
        return f"{text}: {either((*TESTED_ARCHS, OTHER_ARCHS, NATIVE))}"
    if field.allowed:
        return f"{text}: {either(field.allowed)}"
    if field.pattern_doc:
        return f"{text}: {field.pattern_doc}"
    if field.kind is Kind.HDIM_SET:
        return f"{text}, each from {field.minimum} to {field.maximum}"
    if field.kind in (Kind.INTEGER, Kind.INTEGER_SET):
        text = f"{text} from {field.minimum} to {field.maximum}"
        named = ["the name of one"] if short else [name for name, _ in field.names]
        return f"{text}, or {either(named)}" if field.names else text
    return text


def check_value(field: Field, raw: object) -> tuple[Any, list[ValueFault]]:
    """Return a value in canonical form, meaningful only without faults, and its faults.

    Lists become tuples, sets are sorted, and tables become tuples of (key, value) sorted by key.
    """
    if not field.kind.is_table:
        return _check_shape(field, raw)
    if not isinstance(raw, dict):
        return None, [_wrong_type(raw)]
    if fault := _count_fault(field, raw):
        return None, [fault]
    entries: list[tuple[str, Any]] = []
    faults: list[ValueFault] = []
    for key, item in sorted(raw.items()):
        value, wrong = _check_shape(field, item, f"under {quote(key)}: ")
        if field.kind is Kind.CHOICES:
            value = tuple(map(str, value if isinstance(item, list) else (value,)))
        entries.append((key, value))
        faults += [*_character_faults(key), *wrong]
    return tuple(entries), faults


def _check_shape(field: Field, raw: object, where: str = "") -> tuple[Any, list[ValueFault]]:
    shape = field.kind.shape
    if shape is Shape.ONE or (shape is Shape.ONE_OR_LIST and not isinstance(raw, list)):
        return _check_item(field, raw, where)
    if shape is Shape.LIST and not isinstance(raw, list):
        return None, [_wrong_type(raw, where)]
    items = raw if isinstance(raw, list) else [raw]
    if fault := _count_fault(field, items):
        return (), [fault]
    if isinstance(raw, list):
        where = where or "in the list: "
    checked = [_check_item(field, item, where) for item in items]
    faults = [fault for _, found in checked for fault in found]
    values = tuple(value for value, _ in checked)
    if faults or shape is not Shape.SET:
        return values, faults
    if field.allowed:
        return tuple(value for value in field.allowed if value in values), []
    return tuple(sorted(set(values))), []


def _check_item(field: Field, raw: object, where: str) -> tuple[Any, list[ValueFault]]:
    items = field.kind.items
    if ItemType.HDIM in items:
        pair: list[Any] = raw if isinstance(raw, list) else [raw, raw]
        if len(pair) != 2 or any(type(n) is not int for n in pair):  # True is an int
            return None, [_wrong_type(raw, where)]
        inside = all(field.minimum <= n <= field.maximum for n in pair)
        return tuple(pair), [] if inside else [ValueFault(quote(raw))]
    if isinstance(raw, bool):
        if ItemType.BOOLEAN in items:
            return raw, []
    elif isinstance(raw, str) and ItemType.TEXT in items:
        return raw, list(_text_faults(field, raw))
    elif isinstance(raw, str) and field.names and not raw.strip().isdigit():
        names = dict(field.names)
        if raw in names:
            return names[raw], []
        return None, [ValueFault(quote(raw), did_you_mean(raw, names))]
    elif isinstance(raw, int) and ItemType.INTEGER in items:
        free = field.kind in (Kind.CHOICES, Kind.ARGUMENTS)
        inside = free or field.minimum <= raw <= field.maximum
        return raw, [] if inside else [ValueFault(quote(raw))]
    return None, [_wrong_type(raw, where)]


def _text_faults(field: Field, text: str) -> Iterator[ValueFault]:
    if not text:
        if not field.may_be_empty:
            yield ValueFault("an empty string", "" if field.required else "leave the key out")
    elif field.allowed:
        if text not in field.allowed:
            yield ValueFault(quote(text), did_you_mean(text, field.allowed))
    elif field.pattern and not re.fullmatch(field.pattern, text):
        yield ValueFault(quote(text))
    else:
        yield from _character_faults(text)


def _character_faults(text: str) -> Iterator[ValueFault]:
    if character := unseen(text):
        yield ValueFault(quote(text), f"a value without the character U+{ord(character):04X}")


def _count_fault(field: Field, items: Collection[object]) -> ValueFault | None:
    if items or field.may_be_empty:
        return None
    return ValueFault("an empty list", f"leave {field.key} out ({field.omitted})")


def _wrong_type(raw: object, where: str = "") -> ValueFault:
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string"}
    names.update({list: "a list", dict: "a table"})
    return ValueFault(f"{where}{quote(raw)}, {names.get(type(raw), 'a date or time')}")


# C++20 keywords and alternative tokens ([lex.key]).
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t
        char16_t char32_t class co_await co_return co_yield compl concept const const_cast
        consteval constexpr constinit continue decltype default delete do double dynamic_cast else
        enum explicit export extern false float for friend goto if inline int long mutable
        namespace new noexcept not not_eq nullptr operator or or_eq private protected public
        register reinterpret_cast requires return short signed sizeof static static_assert
        static_cast struct switch template this thread_local throw true try typedef typeid typename
        union unsigned using virtual void volatile wchar_t while xor xor_eq
        """,
    )
)

# In qola::std, the headers' own std:: would refer to the wrong namespace.
_SHADOWED = frozenset({"aiter", "ck", "ck_tile", "qola", "std"})

# Macros that GCC and Clang define unless a strict -std is given.
_MACROS = frozenset({"i386", "linux", "unix"})


def namespace_fault(name: str) -> str:
    """Return why a C++ identifier cannot be the namespace, or ""."""
    if name in _KEYWORDS:
        return f"{name} is a C++ keyword"
    if name in _SHADOWED:
        return f"qola::{name} would hide {name}:: from the headers"
    if name in _MACROS:
        return f"{name} is a macro of the compiler"
    if "__" in name or re.match(r"_[A-Z]", name):
        return f"C++ reserves {name} (double underscore, or underscore and capital)"
    return ""
