"""Computes the digest of a tree: trees that a build can distinguish have different digests."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from qola_base.errors import AiterError, Finding
from qola_base.files import sha256_of

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
