"""Helpers for tests of the cache directory: the table of cache_rule.bzl, and chown."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest


def cache_rule(root: Path, passwd: Path) -> list[tuple[dict[str, str], Path]]:
    """Return environments and the cache directory of each environment.

    Args:
        root: directory that replaces the root of the table's absolute paths.
        passwd: directory that replaces the home directory in passwd.
    """
    text = Path(__file__).with_name("cache_rule.bzl").read_text(encoding="utf-8")
    rows: list[tuple[dict[str, str], str]] = ast.literal_eval(text.partition("CACHE_RULE = ")[2])

    def replace_root(path: str) -> str:
        if path.startswith("/passwd"):
            return f"{passwd}{path.removeprefix('/passwd')}"
        return f"{root}{path}" if path.startswith("/") else path

    return [
        (
            {name: replace_root(value) for name, value in environ.items()},
            Path(replace_root(expected)),
        )
        for environ, expected in rows
    ]


def give_away(path: Path) -> None:
    """Change the owner of a file, directory or link; skip the test if the user may not do that."""
    try:
        os.chown(path, 4321, -1, follow_symlinks=False)
    except OSError as error:
        pytest.skip(f"nobody else to give files to: {error}")
