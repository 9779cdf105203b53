"""Evaluation of #if conditions with known and unknown macros."""

from __future__ import annotations

import pytest

from qola.aiter.preprocess import conditions, defined_by, lines, value, without_comments

KNOWN = {"ON": "1", "OFF": "0", "GONE": None, "EMPTY": "", "SAME": "ON", "LOOP": "LOOP"}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("ON", 1),
        ("!OFF", 1),
        ("GONE", 0),
        ("SAME", 1),
        ("ON && !(OFF || GONE)", 1),
        ("ON == 1 && OFF < 1 && 2 > 0x1 && 10'000ul != 3", 1),
        ("1 + 2 * 3 == 7", 1),
        ("-1 < 0", 1),
        ("defined(ON) && defined OFF && !defined(GONE)", 1),
        ("true && !false", 1),
        ("010 == 8", 1),
        # One operand determines the result.
        ("OFF && UNKNOWN", 0),
        ("ON || UNKNOWN", 1),
        ("ON && UNKNOWN", None),
        ("UNKNOWN", None),
        ("defined(UNKNOWN)", None),
        ("OFF && __has_include(<a/b.h>)", 0),
        ('ON || __has_include("b.h")', 1),
        ("defined(__has_include) && __has_include(<x>)", None),
        # The value of unsupported forms is unknown.
        ("EMPTY", None),
        ("LOOP", None),
        ("__has_include(<x>)", None),
        ("ON ? 1 : 0", None),
        ("(ON", None),
        ("ON @", None),
        ("", None),
        ("1x9", None),
    ],
)
def test_value_of_a_condition(expression: str, expected: int | None) -> None:
    """Prevents: qola evaluates an #if wrongly, or guesses its value."""
    assert value(expression, KNOWN) == expected


def test_unknown_macros_are_undefined_if_complete() -> None:
    """Prevents: qola reads a function inside an #if of an undefined macro, which compilers skip."""
    assert value("UNKNOWN || defined(UNKNOWN)", KNOWN, complete=True) == 0
    assert value("defined(__has_include)", KNOWN, complete=True) == 1


SOURCE = """\
#ifndef GUARD
#define GUARD
a
#if ON
b
#elif UNKNOWN
c
#else
d
#endif
#if UNKNOWN // a comment
e
#elif OFF
f
#else
g
#endif
#if 0
h
#if ON
i
#endif
#endif
#define NOW 0
#if NOW
j
#endif
#undef NOW
#ifdef NOW
k
#endif
/* #if 0
*/ l \\
m
#endif
"""


def active_lines(*, complete: bool) -> dict[str, bool | None]:
    found = lines(SOURCE, KNOWN, complete=complete)
    texts = {line.text.strip(): line.counts for line in found if not line.text.startswith("#")}
    return {text: counts for text, counts in texts.items() if text}


def test_active_lines() -> None:
    """Prevents: qola reports an include of an inactive branch as missing."""
    guess = active_lines(complete=False)
    assert {name for name, counts in guess.items() if counts is False} == set("cdfhijk")
    assert {name for name, counts in guess.items() if counts is None} == set("eg")
    sure = active_lines(complete=True)
    assert {name for name, counts in sure.items() if counts} == {*"abg", "l m"}
    assert None not in sure.values()


def test_line_numbers() -> None:
    """Prevents: an error names the wrong line."""
    text = "/* one\ntwo */\n#if \\\nON\nhere\n#endif"
    assert [(line.number, line.text.strip()) for line in lines(text, KNOWN)] == [
        (1, ""),
        (2, ""),
        (3, "#if ON"),
        (5, "here"),
        (6, "#endif"),
    ]


def test_comments() -> None:
    """Prevents: a comment marker in a string, or a quote in a comment, is misread."""
    text = 'a("//no", \'"\') // "b\n/* c\n */ d'
    assert without_comments(text) == 'a("//no", \'"\')  \n \n d'


def test_macros_of_flags() -> None:
    """Prevents: qola reads -DNAME as 0, or -U as a definition."""
    flags = ["-DA", "-DB=2", "-DC=", "-UD", "-O3"]
    assert defined_by(flags) == {"A": "1", "B": "2", "C": "", "D": None}


def test_macros_whose_values_conditions_use() -> None:
    """Prevents: qola misses a new switch of AITER's sources, or warns about every #ifdef."""
    text = """\
#if FAV2_ON && !defined(X) && __gfx950__ > 1
#elif \\
  FAV9_ON || has(1)
#endif
#ifdef NOT_ASKED
#define MAYBE 0
#endif
#define OWN 1
#if OWN || FAV2_ON || MAYBE
#if defined(__has_include) && __has_include(<hip/hip_runtime.h>)
"""
    found = [(c.name, c.line) for c in conditions(text)]
    assert found == [("FAV2_ON", 1), ("FAV9_ON", 2), ("MAYBE", 9)]
