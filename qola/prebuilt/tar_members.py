"""Reads the headers of untrusted tar files in one canonical form and within bounds.

tarfile would read extended headers of any size into memory.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

MAX_MEMBERS = 20_000
"""Largest number of files and directories. AITER and CK have some thousand headers."""

_MAX_HEADER = 1 << 16
"""Largest extended header of pax or GNU tar in bytes; it mostly holds a path."""

_MAX_BEFORE = 4
_MAX_NAME = 1024
_MAX_DEPTH = 64
_BLOCK = 512
_PAX, _GLOBAL, _LONG_NAME = b"x", b"g", b"L"
_FILE, _DIRECTORY = (b"0", b"\0"), b"5"
_KINDS = {b"1": "a link", b"2": "a link", b"K": "a link", b"S": "a sparse file"}
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,5}) ([^=]+)=")
_MEANING = (b"path", b"linkpath", b"size", b"hdrcharset")
"""Pax records that affect unpacked files, unlike times and owners."""


class NotATarError(Exception):
    """A tar file is incomplete, or unlike a bundle; `args` are found and expected."""


class Stream(Protocol):
    """A reader that returns fewer bytes than requested only at its end."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""


@dataclass(frozen=True)
class Member:
    """A file or a directory; `name` is a relative path without ``.`` and ``..``, "" for the top."""

    name: str
    is_directory: bool
    is_executable: bool
    size: int


def members(stream: Stream) -> Iterator[Member]:
    """Yield the members of a tar file. The caller reads the content of each before the next.

    Reads the stream to its end.

    Raises:
        NotATarError: the stream is not a tar file of files and directories, or exceeds a bound.
    """
    count, before, path = 0, 0, b""
    while (block := _exactly(stream, _BLOCK)) != bytes(_BLOCK):
        header = _header(block)
        if header.type in (_PAX, _GLOBAL, _LONG_NAME):
            if header.size > _MAX_HEADER:
                raise NotATarError(f"a header of {header.size} bytes", f"at most {_MAX_HEADER}")
            text = _exactly(stream, header.size)
            skip_padding(stream, header.size)
            said = text.rstrip(b"\0") if header.type == _LONG_NAME else _pax_path(text)
            if header.type == _GLOBAL and said:
                raise NotATarError("a path for all files", "one for each")
            if path and said:
                raise NotATarError("two paths of one file", "one")
            path = path or said
            before += 1
            if before > _MAX_BEFORE:
                raise NotATarError(f"more than {_MAX_BEFORE} headers before a file", "one or two")
        else:
            yield _member(header, path)
            count, before, path = count + 1, 0, b""
            if count > MAX_MEMBERS:
                raise NotATarError(f"more than {MAX_MEMBERS} files", "as many as a bundle has")
    if path:
        raise NotATarError("a path, and no file", "a file for each path")
    while rest := stream.read(1 << 16):
        if rest.strip(b"\0"):
            raise NotATarError("more behind its end", "nothing there")


def skip_padding(stream: Stream, size: int) -> None:
    """Skip the padding after a member of `size` bytes."""
    _exactly(stream, -size % _BLOCK)


def _exactly(stream: Stream, size: int) -> bytes:
    data = stream.read(size) if size else b""
    if len(data) != size:
        raise NotATarError("it breaks off", "a whole tar file")
    return data


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.TarError, ValueError, ArithmeticError) as error:
        raise NotATarError(f"a header that cannot be read ({error})", "headers in UTF-8") from None
    if header.size < 0:
        raise NotATarError(f"a file of {header.size} bytes", "sizes that can be")
    return header


def _pax_path(text: bytes) -> bytes:
    """Return the path that a pax header gives its member, b"" for none."""
    found: dict[bytes, bytes] = {}
    while text:
        match = _PAX_RECORD.match(text)
        length = int(match[1]) if match else 0
        if not match or not match.end() < length <= len(text) or text[length - 1 : length] != b"\n":
            raise NotATarError("a pax header that cannot be read", "records: LENGTH NAME=VALUE")
        name, value = match[2], text[match.end() : length - 1]
        if name in found or name.startswith(b"GNU.sparse"):
            raise NotATarError(f"a pax header with {name!r}", "each record once, whole files")
        found[name] = value
        text = text[length:]
    odd = sorted(found.keys() & set(_MEANING[1:]))
    if odd:
        raise NotATarError(f"a pax header with {odd[0]!r}", "paths, in UTF-8")
    return found.get(b"path", b"")


def _member(header: tarfile.TarInfo, path: bytes) -> Member:
    try:
        name = path.decode("utf-8") if path else header.name
    except UnicodeDecodeError:
        raise NotATarError(f"the path {path[:_MAX_NAME]!r}", "paths in UTF-8") from None
    shown = repr(name[:_MAX_NAME])
    is_directory = header.type == _DIRECTORY
    if not is_directory and header.type not in _FILE:
        kind = _KINDS.get(header.type, "a special file")
        raise NotATarError(f"{shown}, {kind}", "files and directories only")
    if is_directory and header.size:
        raise NotATarError(f"{shown}, a directory of {header.size} bytes", "files with content")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    odd = name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable()
    large = len(name.encode("utf-8")) > _MAX_NAME or len(parts) > _MAX_DEPTH
    if odd or large or (not is_directory and (not parts or name.endswith("/"))):
        expected = f"printable paths below one directory, of at most {_MAX_NAME} bytes"
        raise NotATarError(f"the path {shown}", expected)
    return Member("/".join(parts), is_directory, bool(header.mode & 0o100), header.size)
