"""Packs a directory, or a part of a split bundle, into a tar file.

Its bytes depend only on names and contents.
"""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

from qola_base.files import writing

HOST = "host"
"""The part without packs; the others are named by archs."""

_PACK = re.compile(r"lib/[^/]+-(gfx[0-9a-f]+)\.qpack")


def pack(directory: Path, output: Path, prefix: str, part: str = "") -> None:
    """Write `output`, an uncompressed tar file of `directory` below the directory `prefix`.

    `part` selects the files of a part; directories that thereby have none are omitted.

    Entries are sorted, owned by 0:0 without names, with time 0; directories, libraries and programs
    (bin/) have mode 0755, other files 0644; symlinks are followed. Deflate's bytes would depend on
    the version of zlib.
    """
    paths = sorted(directory.rglob("*"), key=lambda path: path.relative_to(directory).parts)
    if part:
        files = {path for path in paths if has_file(part, path.relative_to(directory).as_posix())}
        files = {path for path in files if not path.is_dir()}
        kept = files.union(*(path.parents for path in files))
        paths = [path for path in paths if path in kept]
    with writing(output), tarfile.open(output, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(_entry(prefix, directory=True))
        for path in paths:
            name = f"{prefix}/{path.relative_to(directory).as_posix()}"
            if path.is_dir():
                archive.addfile(_entry(name, directory=True))
                continue
            entry = _entry(name)
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(entry, file)


def _entry(name: str, *, directory: bool = False) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.DIRTYPE if directory else tarfile.REGTYPE
    entry.mode = 0o755 if directory or is_executable(name) else 0o644
    return entry


def is_executable(name: str) -> bool:
    """Return whether a path in an archive is a program (in bin/ of its directory) or a library."""
    return name.split("/")[1:2] == ["bin"] or name.endswith(".so")


def part_of(path: str) -> str:
    """Return the part that has a file of a bundle."""
    match = _PACK.fullmatch(path)
    return match[1] if match else HOST


def has_file(part: str, path: str) -> bool:
    """Return whether a part has a file; "" stands for the whole bundle.

    Each part has the licenses of its code.
    """
    return part in ("", part_of(path)) or path.startswith("licenses/")
