"""Where a tree has its Composable Kernel, as AITER's own core.py says."""

from __future__ import annotations

import ast
import posixpath
import shlex
from collections.abc import Iterator
from pathlib import Path

from qola.aiter.expressions import parse
from qola.errors import Finding, unseen

DEFAULT = "3rdparty/composable_kernel"
_MAX_PATH = 200
"""The most characters of it; AITER's has 26."""
_NAMES = ("CK_DIR", "CK_3RDPARTY_DIR")


def ck_directory(core: str) -> str:
    """Return the directory, relative to AITER's meta directory.

    It is the default of the variable CK_DIR: an f-string that begins with the meta directory.

    Args:
        core: text of core.py, "" where there is none.
    """
    try:
        module = parse(core)
    except (SyntaxError, ValueError):
        return DEFAULT
    found = [path for node in module.body for path in _paths(node) if _is_inside(path)]
    return found[0] if found else DEFAULT


def missing_ck(root: Path, directory: str, user: str) -> Finding:
    """Return the finding about a tree without Composable Kernel: the same wherever it shows.

    Args:
        directory: where the tree has it, relative to `root`.
        user: what needs it, for the message.
    """
    git = (root / ".git").exists()
    return Finding(
        f"{root}/{directory}",
        f"no Composable Kernel, which {user} needs",
        "an AITER checkout with its submodules, or a wheel unpacked as a whole",
        f"git -C {shlex.quote(str(root))} submodule update --init --recursive"
        if git
        else "git clone --recurse-submodules https://github.com/ROCm/aiter.git",
    )


def _paths(node: ast.stmt) -> Iterator[str]:
    if not isinstance(node, ast.Assign):
        return
    if not any(isinstance(target, ast.Name) and target.id in _NAMES for target in node.targets):
        return
    for part in ast.walk(node.value):
        if isinstance(part, ast.JoinedStr) and len(part.values) == 2:
            first, rest = part.values
            if isinstance(first, ast.FormattedValue) and isinstance(rest, ast.Constant):
                yield str(rest.value).strip("/")


def _is_inside(path: str) -> bool:
    if len(path) > _MAX_PATH or unseen(path):
        return False
    return posixpath.normpath(path) == path and not path.startswith(("..", "/"))
