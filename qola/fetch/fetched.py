"""Records digests of fetched trees, and caches generator answers about unchanged ones."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from qola.common.answers import DIRECTORY, AnswerCache
from qola.common.extras import EXTRAS
from qola.common.packages import ROOT
from qola.fetch.digest import tree_digest
from qola.fetch.pins import RECORD
from qola_base.cache import cache_directory
from qola_base.errors import AiterError
from qola_base.files import UnfitFileError, bounded_bytes, sha256_of_json
from qola_base.rule_main import run_main

FETCHED = "AITER.sha256"
"""The file of a fetched tree with the digest of the tree after the fetch."""

_NOT_FETCHED = (RECORD, FETCHED, "BUILD.bazel", "REPO.bazel")
"""Files that qola and Bazel write into the directory of a tree."""


def record_digest(tree: Path) -> None:
    """Write the digest of a newly fetched and patched tree into a file of the tree."""
    digest = tree_digest(tree, _NOT_FETCHED)
    (tree / FETCHED).write_text(f"{digest}\n", encoding="ascii")


def fetched_digest(tree: Path) -> str:
    """Return the digest of a fetched tree; "" for a local or edited one."""
    with suppress(OSError, UnfitFileError, AiterError):
        recorded = bounded_bytes(tree / FETCHED, 100).decode("ascii", "replace").strip()
        if recorded == tree_digest(tree, _NOT_FETCHED):
            return recorded
    return ""


def tree_answers(tree: Path, environ: Mapping[str, str]) -> AnswerCache:
    """Return the cache of generator answers about a tree.

    It caches answers only about fetched, unchanged trees: the pinned generators depend only on the
    tree. Edited generators may depend on anything, and run each time.
    """
    return AnswerCache(cache_directory(environ) / DIRECTORY, lambda: _state(tree))


def _state(tree: Path) -> str:
    """Return the digest of all that answers about a tree depend on; "" for an edited tree."""
    if content := fetched_digest(tree):
        # Messages contain the tree's path as given.
        places = [str(tree), os.path.abspath(tree), os.path.realpath(tree)]
        with suppress(OSError, AiterError):  # somebody is editing qola
            return sha256_of_json([content, places, *_own_code(), sys.version, _packages()])
    return ""


def _own_code() -> list[str]:
    """Return the digests of the code that answers."""
    return [tree_digest(ROOT / part) for part in ("qola", "qola_base")]


def _packages() -> list[str]:
    """Return the versions of the packages that generators import, "" for a missing one."""
    found = dict.fromkeys(sorted(EXTRAS["generators"].values()), "")
    for name in found:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return [*found.values()]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the repository rules that fetch AITER."""
    parser = argparse.ArgumentParser(prog="qola.fetch.fetched", description=__doc__)
    parser.add_argument("--tree", required=True, type=Path, help="a tree that was just fetched")
    args = parser.parse_args(argv)
    return run_main(lambda: record_digest(args.tree))


if __name__ == "__main__":
    sys.exit(main())
