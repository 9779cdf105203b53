"""Runs a target on many inputs made from seeds, and says of a failure how to see it again."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from qola.errors import QolaError, unseen

CASES = "QOLA_FUZZ_CASES"
"""Variable: how many inputs a target gets."""

SEED = "QOLA_FUZZ_SEED"
"""Variable: seed of the first; each further one has the next number."""

SECONDS = 10.0
"""The most that a case may take: a second on a machine of its own."""

Input = TypeVar("Input")


def fuzz(
    make: Callable[[random.Random], Input],
    target: Callable[[Input], object],
    refusals: tuple[type[Exception], ...] = (QolaError,),
) -> None:
    """Give a target its inputs; fail with seed and input where it does not take or refuse one.

    Args:
        make: makes an input, the same for the same state of its generator.
        target: fails by any exception but those of `refusals`.
    """
    first, cases = int(os.environ.get(SEED, "1")), int(os.environ.get(CASES, "1000"))
    for seed in range(first, first + cases):
        data = make(random.Random(seed))
        start = time.monotonic()
        try:
            target(data)
        except refusals as refusal:
            problem = printable(str(refusal))
        except BaseException as error:
            problem = f"{type(error).__name__}: {error!s:.500}"
        else:
            problem = ""
        if time.monotonic() - start > SECONDS:
            problem = problem or f"more than {SECONDS} seconds"
        if problem:
            pytest.fail(
                f"{problem}\nagain with {SEED}={seed} {CASES}=1; the input is\n{data!r:.20000}"
            )


def printable(message: str) -> str:
    """Say what keeps an error's text from being shown as it is, "" for nothing."""
    plain = message.replace("\n", "").replace("\t", "")
    if character := unseen(plain):
        return f"the message has the character U+{ord(character):04X}"
    return "the message is longer than a screen can hold" if len(message) > 500_000 else ""


HOSTILE = (
    *("\0", "\x1b[31m", "\r", "\n", "\t", "\x7f", "\x85", "\u2028", "\u202e", "\ud800", "\udcff"),
    *("'", '"', '"""', "'''", "\\", "#", "{", "}", "[", "]", "(", ")", ",", "=", ".", ":", "$"),
    *("../", "/", "/dev/zero", "..", "//", "@", "%s", "{}", "-", "+", "~", "*", "\\u0000"),
    *("0", "-1", "9" * 30, "9" * 5000, "0x" + "f" * 5000, "1e999", "nan", "true", "None", "٣", "²"),
    *("a." * 20, "[" * 50, "{a=" * 50, "(" * 300, "x" * 300, "x" * 5000, "é", "\U0001f600"),
)
"""What parsers, terminals, shells and file systems take for something else than text."""


def mutate(rng: random.Random, text: str, words: tuple[str, ...] = HOSTILE) -> str:
    """Return a text changed in one to eight places: cut, doubled, moved, or with other words."""
    for _ in range(rng.randint(1, 8)):
        begin = rng.randint(0, len(text))
        end = min(len(text), begin + rng.choice((0, 1, 1, 3, 10, 100)))
        part = text[begin:end]
        match rng.randint(0, 5):
            case 0:
                part = ""
            case 1:
                part *= rng.choice((2, 3, 50))
            case 2:
                part = rng.choice(words) * rng.choice((1, 1, 1, 2, 20))
            case 3:
                part += rng.choice(words)
            case 4:
                part = part[::-1]
            case 5:
                other = rng.randint(0, len(text))
                part = text[other : other + rng.choice((5, 50, 500))]
        text = text[:begin] + part + text[end:]
    return text


def mutate_json(rng: random.Random, text: str, values: tuple[Any, ...]) -> str:
    """Return a JSON text with values of other kinds, keys gone or lists long, or a changed text.

    Args:
        values: what may take a value's place, beside texts of `HOSTILE`.
    """
    if rng.random() < 0.2:
        return mutate(rng, text)
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 5))):
        known = _places(data)
        if rng.random() < 0.6:
            known = [(holder, key) for holder, key in known if isinstance(holder[key], str)]
        if not known:
            continue
        holder, key = rng.choice(known)
        match rng.randint(0, 4):
            case 0:
                del holder[key]
            case 1 if isinstance(holder[key], list):
                holder[key] *= rng.choice((0, 2, 40))
            case 2 if isinstance(holder, dict):
                holder[rng.choice(HOSTILE)] = holder.pop(key)
            case 3 | 4 if isinstance(holder[key], str):
                holder[key] = rng.choice((mutate(rng, holder[key]), rng.choice(HOSTILE), "gfx942"))
            case _:
                holder[key] = rng.choice((*values, *HOSTILE))
    return json.dumps(data)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return all (object or list, key or index) in a value of JSON."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    found: list[tuple[Any, Any]] = []
    for key in keys:
        found += [(value, key), *_places(value[key])]
    return found
