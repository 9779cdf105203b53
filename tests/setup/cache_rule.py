"""What tests of the cache directory share: the table of cache_rule.bzl, and another user."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest


def cache_rule(root: Path, passwd: Path) -> list[tuple[dict[str, str], Path]]:
    """Return environments and the cache directory of each.

    Args:
        root: what the absolute paths of the table are put below.
        passwd: what stands for the home in passwd.
    """
    text = Path(__file__).with_name("cache_rule.bzl").read_text(encoding="utf-8")
    rows: list[tuple[dict[str, str], str]] = ast.literal_eval(text.partition("CACHE_RULE = ")[2])

    def placed(path: str) -> str:
        if path.startswith("/passwd"):
            return f"{passwd}{path.removeprefix('/passwd')}"
        return f"{root}{path}" if path.startswith("/") else path

    return [
        ({name: placed(value) for name, value in environ.items()}, Path(placed(expected)))
        for environ, expected in rows
    ]


def give_away(path: Path) -> None:
    """Make a file, directory or link another user's; skip the test where this user cannot."""
    try:
        os.chown(path, 4321, -1, follow_symlinks=False)
    except OSError as error:
        pytest.skip(f"nobody else to give files to: {error}")
