"""Lists the patches of a directory, and reads a prepared tree's record of its pin and patches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qola_base.errors import AiterError, Finding, unseen
from qola_base.files import UnfitFileError, bounded_bytes, sha256_of

SUFFIXES = (".diff", ".patch")
"""Suffixes of patches in a patches_dir."""

RECORD = "AITER.json"
"""The file of a prepared tree with its pin and patches."""

_MAX_BYTES = 1 << 20

TreeRecord = dict[str, Any]
"""The content of an AITER.json: its kind, the pin's fields, and patches, as `patches_of` reads."""


@dataclass(frozen=True, order=True)
class PatchPin:
    """A patch as in AITER.json, plan.json and keys: file name without directory, and sha256."""

    name: str
    sha256: str

    def to_json(self) -> dict[str, str]:
        """Return the fields."""
        return {"name": self.name, "sha256": self.sha256}


def patch_files(directory: Path | None, *, place: str = "") -> tuple[Path, ...]:
    """Return the *.patch and *.diff files of a directory, sorted by name; () without a directory.

    Raises AiterError if there is none; `place` is that of the directory's name in its message.
    """
    if directory is None:
        return ()
    found = f"{directory}: no such directory"
    if os.path.isdir(directory):  # pathlib raises for an overlong name
        files = [path for path in directory.iterdir() if path.suffix in SUFFIXES and path.is_file()]
        if files:
            return tuple(sorted(files, key=lambda path: path.name))
        found = f"{directory}, which holds no patch"
    raise AiterError(
        Finding(
            place or str(directory),
            found,
            "a directory with *.patch or *.diff files",
            f"git format-patch -o {directory} BASE in an AITER checkout, or leave patches_dir out",
        )
    )


def pin_patches(patches: Iterable[Path]) -> tuple[PatchPin, ...]:
    """Return name and digest of each patch, in the order given."""
    try:
        return tuple(PatchPin(path.name, sha256_of(path)) for path in patches)
    except OSError as error:
        raise AiterError(
            Finding(str(error.filename), error.strerror or str(error), "a readable patch")
        ) from None


def recorded_patches(tree: Path) -> tuple[PatchPin, ...]:
    """Return the patches in a tree's AITER.json; () without one."""
    return patches_of(read_record(tree) or {}) or ()


def patches_of(record: TreeRecord) -> tuple[PatchPin, ...] | None:
    """Return the patches of an AITER.json, None if they are invalid."""
    try:
        pins = [PatchPin(patch["name"], patch["sha256"]) for patch in record.get("patches", ())]
    except (LookupError, TypeError):
        return None
    texts = [text for pin in pins for text in (pin.name, pin.sha256)]
    fit = all(type(text) is str and not unseen(text) for text in texts)
    return tuple(pins) if fit else None


def pinned_id(tree: Path) -> str:
    """Return the commit or version in a tree's AITER.json; "" without one.

    A local directory that `qola checkout` prepared has one.
    """
    record = read_record(tree) or {}
    known = record.get("commit") or record.get("version")
    return known if isinstance(known, str) and not unseen(known) else ""


def read_record(tree: Path) -> TreeRecord | None:
    """Return the content of a tree's AITER.json; {} if it is absent, None if it is invalid."""
    try:
        record = json.loads(bounded_bytes(tree / RECORD, _MAX_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, UnfitFileError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
