"""Files below a directory: written, and read again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qola.files import write_if_changed


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a directory, and return it."""
    for name, content in files.items():
        write_if_changed(root / name, content)
    return root


def read(root: Path) -> dict[str, bytes]:
    """Return what the files below a directory hold, by their paths in it."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}
