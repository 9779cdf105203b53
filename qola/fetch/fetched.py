"""Computes digests of trees, records those of fetched ones, and caches answers about these.

Trees that a build can distinguish have different digests.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import stat
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from qola.common.answers import DIRECTORY, AnswerCache
from qola.common.extras import EXTRAS
from qola.common.packages import ROOT
from qola.fetch.pins import RECORD
from qola_base.cache import cache_directory
from qola_base.errors import AiterError, Finding
from qola_base.files import UnfitFileError, bounded_bytes, sha256_of, sha256_of_json
from qola_base.rule_main import run_main

FETCHED = "AITER.sha256"
"""The file of a fetched tree with the digest of the tree after the fetch."""

_NOT_FETCHED = (RECORD, FETCHED, "BUILD.bazel", "REPO.bazel")
"""Files that qola and Bazel write into the directory of a tree."""

_GIT, _CODE = b".git", b"__pycache__"
_LEFT_OUT = {_GIT, _CODE}


def tree_digest(root: Path, leave_out: Collection[str] = ()) -> str:
    """Return the sha256 digest of a tree, 64 hexadecimal digits, independent of its path.

    The digest covers names, contents, executable bits and links; links out of the tree are
    followed, as in a build. It ignores `.git`, byte code in `__pycache__`, which no generator reads
    (`qola.codegen.process.ignore_bytecode`), and the names `leave_out` in the root directory.

    Raises:
        AiterError: an entry is neither file, directory nor link.
    """
    digest = hashlib.sha256()
    for part in _parts(root, {os.fsencode(name) for name in leave_out}):
        # The length before each part makes the concatenation unambiguous.
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


def _parts(root: Path, leave_out: Collection[bytes]) -> Iterator[bytes]:
    """Yield kind, name and content of each entry, ordered by name."""
    # Names, in the tree, of the real directories that are read.
    known = {os.path.realpath(os.fsencode(root)): b""}

    def entry(path: bytes, name: bytes, status: os.stat_result) -> Iterator[bytes]:
        if stat.S_ISDIR(status.st_mode):
            yield from (b"directory", name, b"")
            yield from below(path, name)
        elif stat.S_ISREG(status.st_mode):
            yield b"program" if status.st_mode & stat.S_IXUSR else b"file"
            yield from (name, sha256_of(Path(os.fsdecode(path))).encode("ascii"))
        else:
            place = os.fsdecode(path)
            found, expected = "a pipe, a socket or a device", "files, directories and links"
            raise AiterError(Finding(place, found, expected, f"rm {shlex.quote(place)}"))

    def link(path: bytes, name: bytes) -> Iterator[bytes]:
        real = os.path.realpath(path)
        if not os.path.exists(path):
            yield from (b"dangling", name, os.readlink(path))
            return
        for directory, place in known.items():
            inside = real[len(directory) :]
            if real.startswith(os.path.join(directory, b"")) or not inside:
                if not _LEFT_OUT.isdisjoint(inside.split(b"/")):
                    break
                # The target has its own entry, and links may form a cycle.
                yield from (b"link", name, place, inside)
                return
        yield b"followed"
        status = os.stat(real)
        if stat.S_ISDIR(status.st_mode):
            known[real] = name
        yield from entry(real, name, status)

    def below(directory: bytes, name: bytes) -> Iterator[bytes]:
        code = os.path.basename(directory) == _CODE
        for base in sorted(os.listdir(directory)):
            if not name and base in leave_out:
                continue
            path, inner = os.path.join(directory, base), os.path.join(name, base)
            status = os.lstat(path)
            if base == _GIT or (code and b".pyc" in base and stat.S_ISREG(status.st_mode)):
                continue
            if stat.S_ISLNK(status.st_mode):
                yield from link(path, inner)
            elif base == _CODE and stat.S_ISDIR(status.st_mode):
                yield from below(path, inner)  # exists at times; only its content counts
            else:
                yield from entry(path, inner, status)

    yield b"qola tree 1"
    yield from below(os.path.realpath(os.fsencode(root)), b"")


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
