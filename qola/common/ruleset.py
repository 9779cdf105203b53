"""Finds qola's Bazel rules, C++ sources and bazelw."""

from __future__ import annotations

from pathlib import Path

from qola_base.errors import Finding, ToolchainError

PACKAGED = "_ruleset"
"""Directory of the installed package with a copy of the ruleset (written by setup.py)."""

_PACKAGE = Path(__file__).resolve().parents[1]

CMAKE_DIR = _PACKAGE / "cmake"
"""Directory with qola.cmake."""


def ruleset_root() -> Path:
    """Return the directory with qola's MODULE.bazel.

    It is the checkout of this package (also after pip install -e), else the copy in the installed
    package.

    Raises:
        ToolchainError: neither exists.
    """
    for root in (_PACKAGE.parent, _PACKAGE / PACKAGED):
        if (root / "MODULE.bazel").is_file() and (root / "rules" / "extensions.bzl").is_file():
            return root
    found = f"no MODULE.bazel next to it, and none in {PACKAGED}"
    expected = "qola's ruleset, as in a checkout or an installed package"
    fix = "pip install --force-reinstall <checkout of qola>"
    finding = Finding(_PACKAGE.as_posix(), found, expected, fix)
    raise ToolchainError(finding, "this installation of qola is not complete")
