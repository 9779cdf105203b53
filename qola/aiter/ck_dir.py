"""Where a tree has its Composable Kernel, as AITER's own core.py says."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator

from qola.aiter.expressions import parse
from qola.errors import unseen

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
