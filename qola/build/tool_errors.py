"""Picks from a tool's output the lines that say what is wrong."""

from __future__ import annotations

import re

_ERROR = re.compile(r"(\b(fatal )?error: |: undefined reference to |\bLLVM ERROR: )")
_FOLLOWS = re.compile(r"^\s*(\d+ )?\|")
_BESIDE = re.compile(r"(^failed to execute:|: note: |error generated|errors generated)")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def first_errors(output: str, count: int = 2, tail: int = 10) -> tuple[str, ...]:
    """Return a compiler's or linker's first errors, each with the source lines it points to.

    Args:
        output: what the tool wrote.
        count: how many errors.
        tail: how many last lines to return where none is marked as an error.
    """
    lines = [_ANSI.sub("", line).rstrip() for line in output.splitlines()]
    found: list[str] = []
    errors = 0
    follows = False
    for line in lines:
        if _ERROR.search(line) and not _BESIDE.search(line):
            if errors == count:
                break
            errors += 1
            follows = True
            found.append(line)
        elif follows and _FOLLOWS.match(line):
            found.append(line)
        else:
            follows = False
    # A tool that crashes or was killed says so last, and hipcc repeats its command.
    return tuple(found or [s for s in lines if s and not s.startswith("failed to execute")][-tail:])
