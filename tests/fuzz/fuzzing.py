"""Runs parsers of untrusted input on inputs that hypothesis generates, reproducibly."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from random import Random
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qola_base.errors import QolaError, unseen

CASES = "QOLA_FUZZ_CASES"
"""Environment variable: the number of inputs for each reader."""

Input = TypeVar("Input")


def fuzz(
    make: Callable[[Random], Input],
    read: Callable[[Input], object],
    refusals: tuple[type[Exception], ...] = (QolaError,),
) -> None:
    """Call a reader with generated inputs; hypothesis reports the smallest failing input.

    Args:
        make: returns an input from random choices, which hypothesis samples and shrinks.
        read: raises an exception of `refusals` for invalid input; other exceptions fail the test.
        refusals: exceptions that a reader may raise; messages must not contain control codes.
    """

    # A case takes milliseconds; the deadline allows for a machine under load.
    @settings(
        max_examples=int(os.environ.get(CASES, "500")),
        derandomize=True,
        database=None,
        deadline=timedelta(seconds=10),
        suppress_health_check=[*HealthCheck],
    )
    @given(st.randoms(use_true_random=False).map(make))
    def run(data: Input) -> None:
        try:
            read(data)
        except refusals as refusal:
            message = str(refusal)
            assert not unseen(message.replace("\n", "").replace("\t", "")), repr(message)
            assert len(message) <= 500_000

    run()


HOSTILE = (
    *("\0", "\x1b[31m", "\r", "\n", "\t", "\x7f", "\x85", "\u2028", "\u202e", "\ud800", "\udcff"),
    *("'", '"', '"""', "'''", "\\", "#", "{", "}", "[", "]", "(", ")", ",", "=", ".", ":", "$"),
    *("../", "/", "/dev/zero", "..", "//", "@", "%s", "{}", "-", "+", "~", "*", "\\u0000"),
    *("0", "-1", "9" * 30, "9" * 5000, "0x" + "f" * 5000, "1e999", "nan", "true", "None", "٣", "²"),
    *("a." * 20, "[" * 50, "{a=" * 50, "(" * 300, "x" * 300, "x" * 5000, "é", "\U0001f600"),
)
"""Texts that parsers, terminals, shells or file systems interpret."""


def mutate(rng: Random, text: str, insertions: tuple[str, ...] = HOSTILE) -> str:
    """Return a text with one to eight changes: cuts, repetitions, moves and insertions."""
    for _ in range(rng.randint(1, 8)):
        begin = rng.randint(0, len(text))
        end = min(len(text), begin + rng.choice((0, 1, 1, 3, 10, 100)))
        part = text[begin:end]
        other = rng.randint(0, len(text))
        part = rng.choice(
            (
                "",
                part * rng.choice((2, 3, 50)),
                rng.choice(insertions) * rng.choice((1, 1, 2, 20)),
                part + rng.choice(insertions),
                part[::-1],
                text[other : other + rng.choice((5, 50, 500))],
            )
        )
        text = text[:begin] + part + text[end:]
    return text


def mutate_json(rng: Random, text: str, values: tuple[Any, ...]) -> str:
    """Return a JSON text with other values, removed or renamed keys and long lists.

    Args:
        values: replacements for values, in addition to `HOSTILE`.
    """
    if rng.random() < 0.2:
        return mutate(rng, text)
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 5))):
        places = _places(data)
        if not places:
            break
        container, key = rng.choice(places)
        change = rng.choice(("delete", "repeat", "rename", "replace", "replace", "replace"))
        if change == "delete":
            del container[key]
        elif change == "repeat" and isinstance(container[key], list):
            container[key] *= rng.choice((0, 2, 40))
        elif change == "rename" and isinstance(container, dict):
            container[rng.choice(HOSTILE)] = container.pop(key)
        elif isinstance(container[key], str) and rng.random() < 0.5:
            container[key] = mutate(rng, container[key])
        else:
            # A copy: later changes must not reach the values of the next input.
            container[key] = deepcopy(rng.choice((*values, *HOSTILE, "gfx942")))
    return json.dumps(data)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return all (object or list, key or index) in a JSON value."""
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    return [found for key in keys for found in ((value, key), *_places(value[key]))]
