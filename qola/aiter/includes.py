"""Finds the headers that a source includes: the dependencies of its target.

Every ``#include`` line counts, under any ``#if``: one closure serves host and device passes and
all macros.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from qola.aiter.tree import AiterTree, ModuleConfig
from qola_base.files import lossy_text

# Begins with a rare character instead of ^, for speed: generated sources have 90 MB.
_INCLUDE = re.compile(r"""#[ \t]*(?:include|include_next|import)[ \t]*(["<])([^">\n]+)[">]""")


def includes(text: str) -> list[tuple[str, bool]]:
    """Return the (name, is it quoted) of each include in C++ source text, in order."""
    # A line may be continued. Comments before the `#` are not supported: no source has them.
    joined = text.replace("\\\r\n", "").replace("\\\n", "")
    return [
        (match.group(2).strip(), match.group(1) == '"')
        for match in _INCLUDE.finditer(joined)
        if not joined[joined.rfind("\n", 0, match.start()) + 1 : match.start()].strip(" \t")
    ]


def closure(tree_root: Path, include_dirs: Sequence[str], roots: Iterable[str]) -> tuple[str, ...]:
    """Return the files of the tree that includes of `roots` reach: tree-relative paths, sorted.

    Headers outside of the directories belong to the system or to ROCm and do not count.

    Args:
        roots: included names as in the source: ``fmha_fwd.hpp``; see `includes`.
    """
    dirs = [posixpath.normpath(d) for d in include_dirs]
    found: set[str] = set()
    pending = [(name, "") for name in roots]
    asked: set[tuple[str, str]] = set()
    while pending:
        asking = name, own_dir = pending.pop()
        if asking in asked:
            continue
        asked.add(asking)
        path = find(tree_root, name, [own_dir, *dirs] if own_dir else dirs)
        if path is not None and path not in found:
            found.add(path)
            folder = posixpath.dirname(path) or "."
            text = lossy_text(tree_root / path)
            pending += [(name, folder if quoted else "") for name, quoted in includes(text)]
    return tuple(sorted(found))


def reaching(
    tree_root: Path,
    include_dirs: Sequence[str],
    texts: Mapping[str, str],
    prefixes: tuple[str, ...],
) -> set[str]:
    """Return the keys of the sources that include a header with one of the prefixes.

    They include it directly or through files of the tree. Files of the tree do not count
    themselves, whatever their name.

    Args:
        texts: texts of sources by the name under which they may include each other.
        prefixes: beginnings of names, such as ``torch/``.
    """
    dirs = [posixpath.normpath(d) for d in include_dirs]
    # No path of the tree begins with a slash.
    pending = [(f"/{name}", text) for name, text in texts.items()]
    includers: dict[str, list[str]] = {name: [] for name, _ in pending}
    reached: list[str] = []
    while pending:
        includer, text = pending.pop()
        folder = posixpath.dirname(includer) or "."
        for name, quoted in includes(text):
            own = (f"/{name}", posixpath.normpath(f"{folder}/{name}"))
            path = next((n for n in own if n in includers and n[0] == "/"), None)
            path = path or find(tree_root, name, [folder, *dirs] if quoted else dirs)
            if path is None:
                reached += [includer] if name.startswith(prefixes) else []
                continue
            if path not in includers:
                includers[path] = []
                pending.append((path, lossy_text(tree_root / path)))
            includers[path].append(includer)
    found: set[str] = set()
    while reached:
        path = reached.pop()
        if path not in found:
            found.add(path)
            reached += includers[path]
    return {key for key in texts if f"/{key}" in found}


def find(tree_root: Path, name: str, dirs: Iterable[str]) -> str | None:
    """Return the first file of the tree with this name below one of `dirs`."""
    for folder in dirs:
        path = posixpath.normpath(posixpath.join(folder, name))
        # os.path returns False for an overlong name; pathlib raises.
        if not path.startswith(("../", "/")) and os.path.isfile(os.path.join(tree_root, path)):
            return path
    return None


def include_dirs(tree: AiterTree, config: ModuleConfig) -> tuple[str, ...]:
    """Return the include directories of a module in AITER's order.

    Source: build_module in aiter/jit/core.py. Its folder of generated files is left out: no
    generated source includes another.
    """
    ck_helper = tree.ck_dir.rsplit("/", 1)[0] + "/ck_helper"
    dirs = [ck_helper, f"{tree.ck_dir}/include", f"{tree.ck_dir}/library/include"]
    dirs += [f"{tree.csrc_dir}/include", *config.include_dirs]
    return tuple(dict.fromkeys(dirs))
