"""The digest of an AITER tree on this machine: two trees that a build can tell apart have two."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from qola.errors import AiterError, Finding
from qola.files import sha256_of

_GIT, _CODE = b".git", b"__pycache__"
_LEFT_OUT = {_GIT, _CODE}


def tree_digest(root: Path, leave_out: Collection[str] = ()) -> str:
    """Return the digest of a tree: 64 hexadecimal digits of sha256, wherever the tree lies.

    It has names, contents, which files can be executed, and links; a link that leads out of the
    tree is followed, as a build follows it. Left out are what git keeps (`.git`) and Python's byte
    code in `__pycache__`, which no generator reads (`qola.codegen.process`).

    Args:
        leave_out: names in the root directory that do not count.

    Raises:
        AiterError: something is neither file, directory nor link.
        OSError: something cannot be read.
    """
    digest = hashlib.sha256()
    for part in _parts(root, {os.fsencode(name) for name in leave_out}):
        # With its length before it, no part can pass for several.
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


def _parts(root: Path, leave_out: Collection[bytes]) -> Iterator[bytes]:
    """Yield kind, name and content of each entry, in an order that names alone decide."""
    # Real directories that are read, and their names here.
    known = {os.path.realpath(os.fsencode(root)): b""}

    def entry(path: bytes, name: bytes, status: os.stat_result) -> Iterator[bytes]:
        if stat.S_ISDIR(status.st_mode):
            yield from (b"directory", name, b"")
            yield from below(path, name)
        elif stat.S_ISREG(status.st_mode):
            yield b"program" if status.st_mode & stat.S_IXUSR else b"file"
            yield from (name, _content(path))
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
                # What it leads to has an entry of its own, and it may lead in a circle.
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
                yield from below(path, inner)  # it comes and goes, and counts by what is in it
            else:
                yield from entry(path, inner, status)

    yield b"qola tree 1"
    yield from below(os.path.realpath(os.fsencode(root)), b"")


def _content(path: bytes) -> bytes:
    return sha256_of(Path(os.fsdecode(path))).encode("ascii")
