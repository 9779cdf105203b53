"""Digests of trees that qola fetched by a pin, and the cache of answers about such trees."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from qola.answers import DIRECTORY, AnswerCache
from qola.cache import cache_directory
from qola.errors import AiterError
from qola.fetch.digest import tree_digest
from qola.fetch.pins import RECORD
from qola.files import UnfitFileError, bounded_bytes, sha256_of_json
from qola.rule_main import run_main

FETCHED = "AITER.sha256"
"""The file in a tree that qola fetched by a pin: the digest of the tree as it was then."""

_NOT_FETCHED = (RECORD, FETCHED, "BUILD.bazel", "REPO.bazel")
"""What qola and Bazel write into the directory of a tree."""

_PACKAGE = Path(__file__).absolute().parent.parent


def record_digest(tree: Path) -> None:
    """Write the digest of a tree that was just fetched, and patched, into it.

    Raises:
        AiterError: as `tree_digest`.
        OSError: something cannot be read or written.
    """
    digest = tree_digest(tree, _NOT_FETCHED)
    (tree / FETCHED).write_text(f"{digest}\n", encoding="ascii")


def fetched_digest(tree: Path) -> str:
    """Return the digest of a tree as qola fetched it; "" for a local or edited one."""
    with suppress(OSError, UnfitFileError, AiterError):
        recorded = bounded_bytes(tree / FETCHED, 100).decode("ascii", "replace").strip()
        if recorded == tree_digest(tree, _NOT_FETCHED):
            return recorded
    return ""


def tree_answers(tree: Path, environ: Mapping[str, str]) -> AnswerCache:
    """Return the cache of answers about a tree.

    It caches answers only for a tree that qola fetched by a pin and nobody changed since: the
    generators there are the pinned ones, which depend on the tree and on nothing else of the
    machine. Generators that somebody may have edited can do anything: they run each time.
    """
    return AnswerCache(cache_directory(environ) / DIRECTORY, lambda: _state(tree))


def _state(tree: Path) -> str:
    """Return the digest of what decides answers about a tree; "" unless it is as it was fetched."""
    if content := fetched_digest(tree):
        # Messages name files of the tree as it was named.
        places = [str(tree), os.path.abspath(tree), os.path.realpath(tree)]
        with suppress(OSError, AiterError):  # somebody is editing qola
            return sha256_of_json([content, places, tree_digest(_PACKAGE), sys.version])
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the repository rules that fetch AITER."""
    parser = argparse.ArgumentParser(prog="qola.fetch.fetched", description=__doc__)
    parser.add_argument("--tree", required=True, type=Path, help="a tree that was just fetched")
    args = parser.parse_args(argv)
    return run_main(lambda: record_digest(args.tree))


if __name__ == "__main__":
    sys.exit(main())
