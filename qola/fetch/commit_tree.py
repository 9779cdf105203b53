"""Keeps trees of commits that kernels in Triton are taken from."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from qola.cache import cache_directory, kept_directory
from qola.fetch.git import fetch_commit
from qola.progress import log

TREES = "trees"
"""Directory below the cache with the trees that were fetched without Bazel."""


def commit_tree(
    remote: str,
    commit: str,
    environ: Mapping[str, str],
    place: str,
) -> Path:
    """Return the tree of a commit without its submodules, fetched the first time and kept.

    Its name has the commit, which git checked; it is there as a whole, or not at all.

    Args:
        place: where the commit is named, for messages.

    Raises:
        AiterError: git cannot fetch it.
        QolaError: others may have written what is in the cache.
    """
    trees = cache_directory(environ) / TREES
    tree = trees / f"git-{commit}"

    def make() -> None:
        log.info(f"fetching commit {commit} of {remote}")
        with tempfile.TemporaryDirectory(prefix=".git-", dir=trees) as temporary:
            made = Path(temporary, "tree")
            # Its own user's, whatever the umask: `refuse_foreign` looks at it.
            made.mkdir(mode=0o700)
            fetch_commit(remote, commit, made, place, submodules=False)
            made.rename(tree)

    return kept_directory(tree, tree, "fetch", make)
