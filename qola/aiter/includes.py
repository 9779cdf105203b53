"""Finds the headers a source includes, so that a target depends on those and no others.

Conservative: every ``#include`` line counts, whatever ``#if`` it stands under, so that one
closure serves host and device passes and every macro setting.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from qola.aiter.tree import AiterTree, ModuleConfig
from qola.files import lossy_text

# Begins with a character that is rare, not with the line's: generated sources have 90 MB.
_INCLUDE = re.compile(r"""#[ \t]*(?:include|include_next|import)[ \t]*(["<])([^">\n]+)[">]""")


def includes(text: str) -> list[tuple[str, bool]]:
    """Return the (name, is it quoted) of each include in C++ source text, in order."""
    # A line may be continued; comments before the `#` are not looked at, as nobody writes them.
    joined = text.replace("\\\r\n", "").replace("\\\n", "")
    return [
        (match.group(2).strip(), match.group(1) == '"')
        for match in _INCLUDE.finditer(joined)
        if not joined[joined.rfind("\n", 0, match.start()) + 1 : match.start()].strip(" \t")
    ]


def closure(tree_root: Path, include_dirs: Sequence[str], roots: Iterable[str]) -> tuple[str, ...]:
    """Return the files of the tree that an include of each of `roots` leads to.

    Args:
        include_dirs: tree-relative directories in the compiler's order.
        roots: what sources include, as they write it: ``fmha_fwd.hpp``; see `includes`.

    Returns:
        Tree-relative paths, sorted. What is found in none of the directories is the system's or
        ROCm's and is left out.
    """
    dirs = [posixpath.normpath(d) for d in include_dirs]
    found: set[str] = set()
    pending = [(name, "") for name in roots]
    asked: set[tuple[str, str]] = set()
    while pending:
        name, own_dir = pending.pop()
        if (name, own_dir) in asked:
            continue
        asked.add((name, own_dir))
        path = find(tree_root, name, [own_dir, *dirs] if own_dir else dirs)
        if path is None or path in found:
            continue
        found.add(path)
        text = lossy_text(tree_root / path)
        folder = posixpath.dirname(path) or "."
        pending += [(name, folder if quoted else "") for name, quoted in includes(text)]
    return tuple(sorted(found))


def find(tree_root: Path, name: str, dirs: Iterable[str]) -> str | None:
    """Return the first file called `name` below `dirs`, if it is within the tree."""
    for folder in dirs:
        path = posixpath.normpath(posixpath.join(folder, name))
        # os.path, not pathlib: a name that is too long does not exist, instead of raising.
        if not path.startswith(("../", "/")) and os.path.isfile(os.path.join(tree_root, path)):
            return path
    return None


def include_dirs(tree: AiterTree, config: ModuleConfig) -> tuple[str, ...]:
    """Include directories of a module in AITER's order.

    Source: build_module in aiter/jit/core.py; its folder of generated files is left out, because
    no generated source includes another.
    """
    ck_helper = tree.ck_dir.rsplit("/", 1)[0] + "/ck_helper"
    dirs = [ck_helper, f"{tree.ck_dir}/include", f"{tree.ck_dir}/library/include"]
    dirs += [f"{tree.csrc_dir}/include", *config.include_dirs]
    return tuple(dict.fromkeys(dirs))
