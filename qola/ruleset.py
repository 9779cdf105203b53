"""Finds what qola is besides Python: its Bazel rules, C++ sources and bazelw."""

from __future__ import annotations

from pathlib import Path

from qola.errors import Finding, ToolchainError

PACKAGED = "_ruleset"
"""Directory of the installed package that holds a copy of the ruleset (setup.py writes it)."""

_PACKAGE = Path(__file__).resolve().parent


def ruleset_root(package: Path = _PACKAGE) -> Path:
    """Return the directory with qola's MODULE.bazel.

    It is the checkout that this package is part of (pip install -e included), else the copy that
    an installed package carries.

    Raises:
        ToolchainError: neither is there.
    """
    for root in (package.parent, package / PACKAGED):
        if (root / "MODULE.bazel").is_file() and (root / "rules" / "extensions.bzl").is_file():
            return root
    raise ToolchainError(
        Finding(
            package.as_posix(),
            f"no MODULE.bazel beside it, and none in {PACKAGED}",
            "qola's ruleset, which a checkout and an installed package have",
            "pip install --force-reinstall <checkout of qola>",
        ),
        "this installation of qola is not complete",
    )


def cmake_dir(package: Path = _PACKAGE) -> Path:
    """Return the directory with qola.cmake."""
    return package / "cmake"
