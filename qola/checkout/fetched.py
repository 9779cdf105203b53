"""Digests of trees that qola fetched by a pin, and the cache of answers about such trees."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from qola.answers import DIRECTORY, AnswerCache
from qola.cache import cache_directory
from qola.checkout.digest import tree_digest
from qola.errors import AiterError
from qola.fetch.pins import RECORD
from qola.files import UnfitFileError, bounded_bytes, sha256_of_json

FETCHED = "AITER.sha256"
"""The file in a tree that qola fetched by a pin: the digest of the tree as it was then."""

_WRITTEN_BY_QOLA = (RECORD, FETCHED)
_PACKAGE = Path(__file__).absolute().parent.parent


def record_digest(tree: Path) -> None:
    """Write the digest of a tree that was just fetched, and patched, into it.

    Raises:
        AiterError: as `tree_digest`.
        OSError: something cannot be read or written.
    """
    digest = tree_digest(tree, _WRITTEN_BY_QOLA)
    (tree / FETCHED).write_text(f"{digest}\n", encoding="ascii")


def fetched_digest(tree: Path) -> str:
    """Return the digest of a tree as qola fetched it; "" for a local or edited one.

    Raises:
        AiterError: as `tree_digest`.
        OSError: something cannot be read.
    """
    try:
        recorded = bounded_bytes(tree / FETCHED, 100).decode("ascii", "replace").strip()
    except (FileNotFoundError, UnfitFileError):
        return ""
    return recorded if recorded == tree_digest(tree, _WRITTEN_BY_QOLA) else ""


def tree_answers(tree: Path, environ: Mapping[str, str]) -> AnswerCache:
    """Return the cache of answers about a tree.

    It caches answers only for a tree that qola fetched by a pin and nobody changed since: the
    generators there are the pinned ones, which depend on the tree and on nothing else of the
    machine. Generators that somebody may have edited can do anything: they run each time.
    """
    return AnswerCache(cache_directory(environ) / DIRECTORY, lambda: _state(tree))


def _state(tree: Path) -> str:
    """Return the digest of what decides answers about a tree; "" unless it is as it was fetched."""
    try:
        content = fetched_digest(tree)
        if not content:
            return ""
        # Messages name files of the tree as it was named.
        places = [str(tree), os.path.abspath(tree), os.path.realpath(tree)]
        return sha256_of_json([content, places, tree_digest(_PACKAGE), sys.version])
    except (OSError, AiterError):
        return ""
