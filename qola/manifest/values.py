"""One value of a manifest against its field: what it is made of, or what is wrong with it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from qola.errors import unseen, visible
from qola.manifest.field_types import Field, Kind
from qola.manifest.words import MAX_HDIM, MAX_ITEMS, MAX_TEXT


@dataclass(frozen=True)
class Problem:
    """A fault of a value; the caller knows where it stands, and the field what is expected."""

    found: str
    fix: str = ""


def shown(value: object, limit: int = 72) -> str:
    """Return a value as TOML writes it, cut to `limit` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # dates and times
        text = str(value)
    text = visible(text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def nearest(word: str, choices: Iterable[str], aliases: Iterable[tuple[str, str]] = ()) -> str:
    """Return the choice a misspelt or colloquial word most likely means, or ""."""
    known = list(choices)
    lower = {choice.lower(): choice for choice in known}
    lower.update((alias, meant) for alias, meant in aliases if meant in known)
    close = difflib.get_close_matches(word.strip().lower(), lower, n=1, cutoff=0.6)
    return lower[close[0]] if close else ""


def either(choices: Iterable[object]) -> str:
    """Return ``a, b or c``."""
    words = [str(choice) for choice in choices]
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def expectation(field: Field, *, short: bool = False) -> str:
    """Return in words what a field may hold, as messages and documentation say it.

    Args:
        short: without names of integers, which a page lists by themselves.
    """
    text = field.kind.value
    if field.allowed:
        return f"{text}: {either(field.allowed)}"
    if field.pattern_doc:
        return f"{text}: {field.pattern_doc}"
    if field.kind is Kind.HDIM_SET:
        return f"{text}, each from {field.minimum} to {MAX_HDIM}"
    if field.kind in (Kind.INTEGER, Kind.INTEGER_SET):
        text = f"{text} from {field.minimum} to {field.maximum}"
        named = ["the name of one"] if short else [name for name, _ in field.names]
        return f"{text}, or {either(named)}" if field.names else text
    return text


def check(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    """Return a value in canonical form, meaningful only without problems, and the problems."""
    return _CHECKS[field.kind](field, raw)


def _check_text(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    if not isinstance(raw, str):
        fix = ""
        if isinstance(raw, list) and len(raw) == 1 and isinstance(raw[0], str):
            fix = f"{field.key} = {shown(raw[0])}"
        return None, [_wrong_type(raw, fix)]
    return raw, list(_text_problems(field, raw))


def _check_integer(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    if isinstance(raw, str) and field.names and not raw.strip().isdigit():
        names = dict(field.names)
        if raw in names:
            return names[raw], []
        meant = nearest(raw[:MAX_TEXT], names)
        return None, [Problem(shown(raw), meant and f"did you mean {shown(meant)}?")]
    if isinstance(raw, bool) or not isinstance(raw, int):
        digits = isinstance(raw, str) and re.fullmatch(r"0*([0-9]{1,9})", raw.strip())
        return None, [_wrong_type(raw, f"{field.key} = {digits[1]}" if digits else "")]
    if not (field.minimum or 0) <= raw <= field.maximum:
        return None, [Problem(shown(raw))]
    return raw, []


def _check_text_list(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    if not isinstance(raw, list):
        fix = f"{field.key} = [{shown(raw)}]" if isinstance(raw, str) else ""
        return None, [_wrong_type(raw, fix)]
    if problem := _count_problem(field, raw):
        return None, [problem]
    problems: list[Problem] = []
    for item in raw:
        if isinstance(item, str):
            problems += _text_problems(field, item)
        else:
            problems.append(_wrong_type(item, "", "in the list: "))
    return (None if problems else tuple(raw)), problems


def _check_text_set(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    value, problems = _check_text_list(field, [raw] if isinstance(raw, str) else raw)
    return (None if problems else tuple(v for v in field.allowed if v in value)), problems


def _check_bool(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    if isinstance(raw, bool):
        return raw, []
    return None, [_wrong_type(raw, _meant_bool(field, raw))]


def _check_bool_set(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    items = raw if isinstance(raw, list) else [raw]
    if problem := _count_problem(field, items):
        return None, [problem]
    problems = [
        _wrong_type(item, _meant_bool(field, item)) for item in items if not isinstance(item, bool)
    ]
    return (None if problems else tuple(v for v in (False, True) if v in items)), problems


def _meant_bool(field: Field, item: object) -> str:
    """Return the line that was meant, empty where none is near."""
    word = {"true": "true", "false": "false", "1": "true", "0": "false"}
    meant = word.get(str(item).strip().lower(), "")
    return meant and f"{field.key} = {meant}"


def _check_hdim_set(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    items = raw if isinstance(raw, list) else [raw]
    if problem := _count_problem(field, items):
        return None, [problem]
    pairs: set[tuple[int, int]] = set()
    problems = []
    for item in items:
        pair = item if isinstance(item, list) else [item, item]
        numbers = [n for n in pair if type(n) is int]  # not isinstance: True is an int
        if len(pair) != 2 or len(numbers) != 2:
            problems.append(_wrong_type(item, "", "" if item is raw else "in the list: "))
        elif not all((field.minimum or 0) <= n <= MAX_HDIM for n in numbers):
            problems.append(Problem(shown(item)))
        else:
            pairs.add((numbers[0], numbers[1]))
    return tuple(sorted(pairs)), problems


def _check_integer_set(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    items = raw if isinstance(raw, list) else [raw]
    if problem := _count_problem(field, items):
        return None, [problem]
    problems = [problem for item in items for problem in _check_integer(field, item)[1]]
    return (None if problems else tuple(sorted(set(items)))), problems


def _check_choices(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    if not isinstance(raw, dict):
        return None, [_wrong_type(raw, "")]
    if problem := _count_problem(field, raw):
        return None, [problem]
    problems: list[Problem] = []
    found = []
    for key, item in raw.items():
        values = item if isinstance(item, list) else [item]
        if problem := _count_problem(field, values):
            problems.append(problem)
        problems += [
            _wrong_type(value, "", f"under {shown(key)}: ")
            for value in values
            if not isinstance(value, (str, int))
        ]
        problems += [
            p for text in values if isinstance(text, str) for p in _text_problems(field, text)
        ]
        found.append((key, tuple(map(str, values))))
    return (None if problems else tuple(sorted(found))), problems


def _check_texts(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    if not isinstance(raw, dict):
        return None, [_wrong_type(raw, "")]
    if problem := _count_problem(field, raw):
        return None, [problem]
    problems: list[Problem] = []
    for key, text in raw.items():
        if isinstance(text, str):
            problems += _text_problems(field, text)
        else:
            problems.append(_wrong_type(text, "", f"under {shown(key)}: "))
    return (None if problems else tuple(sorted(raw.items()))), problems


def _check_expr(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    return _check_text(field, raw) if isinstance(raw, str) else (None, [_wrong_type(raw, "")])


def _check_expr_bool(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    return (raw, []) if isinstance(raw, bool) else _check_expr(field, raw)


def _check_expr_or_list(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    return _check_text(field, raw) if isinstance(raw, str) else _check_text_list(field, raw)


def _check_expr_lists(field: Field, raw: object) -> tuple[Any, list[Problem]]:
    if not isinstance(raw, dict):
        return None, [_wrong_type(raw, "")]
    if problem := _count_problem(field, raw):
        return None, [problem]
    problems: list[Problem] = []
    for key, item in raw.items():
        problems += _text_problems(field, key)
        if isinstance(item, list) and all(isinstance(text, str) for text in item):
            problems += _check_text_list(field, item)[1]
        else:
            problems.append(_wrong_type(item, "", f"under {shown(key)}: "))
    if problems:
        return None, problems
    return tuple(sorted((key, tuple(item)) for key, item in raw.items())), problems


_CHECKS: dict[Kind, Callable[[Field, object], tuple[Any, list[Problem]]]] = {
    Kind.TEXT: _check_text,
    Kind.INTEGER: _check_integer,
    Kind.TEXT_LIST: _check_text_list,
    Kind.TEXT_SET: _check_text_set,
    Kind.BOOL: _check_bool,
    Kind.BOOL_SET: _check_bool_set,
    Kind.HDIM_SET: _check_hdim_set,
    Kind.INTEGER_SET: _check_integer_set,
    Kind.CHOICES: _check_choices,
    Kind.TEXTS: _check_texts,
    Kind.EXPR: _check_expr,
    Kind.EXPR_BOOL: _check_expr_bool,
    Kind.EXPR_LIST: _check_text_list,
    Kind.EXPR_OR_LIST: _check_expr_or_list,
    Kind.EXPR_LISTS: _check_expr_lists,
}


def _text_problems(field: Field, text: str) -> Iterator[Problem]:
    """Yield what is wrong with one string of a field: at most one problem."""
    if not text:
        if not field.may_be_empty:
            yield Problem("an empty string", fix="" if field.required else "leave the key out")
    elif len(text) > MAX_TEXT:
        yield Problem(f"{shown(text)} of {len(text)} characters", fix=f"{MAX_TEXT} at most")
    elif field.allowed:
        if text not in field.allowed:
            meant = nearest(text, field.allowed, field.aliases)
            yield Problem(shown(text), fix=meant and f"did you mean {shown(meant)}?")
    elif field.pattern and not re.fullmatch(field.pattern, text):
        mended = re.sub(*field.repair, text).strip("_") if field.repair[0] else ""
        works = re.fullmatch(field.pattern, mended)
        yield Problem(shown(text), fix=f"for example {shown(mended)}" if works else "")
    elif character := unseen(text):
        yield Problem(shown(text), fix=f"a value without the character U+{ord(character):04X}")


def _count_problem(field: Field, items: Collection[object]) -> Problem | None:
    """Say what is wrong with the number of a list's items."""
    if len(items) > MAX_ITEMS:
        return Problem(f"{len(items)} items", fix=f"{MAX_ITEMS} at most")
    if items or field.may_be_empty:
        return None
    return Problem("an empty list", fix=f"leave {field.key} out ({field.omitted})")


def _wrong_type(raw: object, fix: str, where: str = "") -> Problem:
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string"}
    names.update({list: "a list", dict: "a table"})
    return Problem(f"{where}{shown(raw)}, {names.get(type(raw), 'a date or time')}", fix)


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

# Inside qola::<one of these> the headers' own mentions of the name would find the wrong one.
_SHADOWED = frozenset({"aiter", "ck", "ck_tile", "qola", "std"})

# Macros that GCC and Clang define unless a strict -std is given.
_MACROS = frozenset({"i386", "linux", "unix"})


def namespace_problem(name: str) -> str:
    """Say why `name`, an identifier by its letters, can still not be the namespace; or ""."""
    if name in _KEYWORDS:
        return f"{name} is a C++ keyword"
    if name in _SHADOWED:
        return f"qola::{name} would hide {name}:: from the headers"
    if name in _MACROS:
        return f"{name} is a macro of the compiler"
    if "__" in name or re.match(r"_[A-Z]", name):
        return f"C++ reserves {name} (double underscore, or underscore and capital)"
    return ""
