"""The record beside an archive: which bundle it is, and the archive's digest. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qola.errors import Finding, PrebuiltError
from qola.files import sha256_of_json
from qola.prebuilt.key import SCHEMA, Key, differences

MAX_SIZE = 4 << 20
"""Largest record that is read, in bytes."""


def archive_name(key: str) -> str:
    """Return the file name of a key's archive."""
    return f"{key}.tar.gz"


def checksum_name(key: str) -> str:
    """Return the file name of the checksum of a key's archive."""
    return f"{archive_name(key)}.sha256"


def record_name(key: str) -> str:
    """Return the file name of a key's record."""
    return f"{key}.manifest.json"


@dataclass(frozen=True)
class Archive:
    """An archive: bytes and digest of the file, of the tar file in it, and bytes of its files."""

    size: int
    sha256: str
    tar_sha256: str
    unpacked_size: int


@dataclass(frozen=True)
class Record:
    """A prebuilt bundle's key, the digest of the key's inputs, and its file."""

    key: str
    digest: str
    inputs: Mapping[str, Any]
    archive: Archive

    def to_json(self) -> str:
        """Return the text of the record's file: the same for the same bundle."""
        content = {
            "schema": SCHEMA,
            "key": self.key,
            "digest": self.digest,
            "inputs": self.inputs,
            "archive": {"name": archive_name(self.key), **vars(self.archive)},
        }
        return json.dumps(content, indent=2, sort_keys=True) + "\n"


def record_of(key: Key, archive: Archive) -> Record:
    """Return the record of a bundle."""
    return Record(key.text, key.digest, key.inputs, archive)


def parse(data: bytes, key: Key, place: str) -> Record:
    """Read a record; raises PrebuiltError where it is not one, or not the one of a key."""
    try:
        content = json.loads(data)
        archive = content["archive"]
        found = Archive(
            int(archive["size"]),
            str(archive["sha256"]),
            str(archive["tar_sha256"]),
            int(archive["unpacked_size"]),
        )
        inputs = dict(content["inputs"])
        record = Record(str(content["key"]), str(content["digest"]), inputs, found)
        name, schema = archive["name"], content["schema"]
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        raise PrebuiltError(
            Finding(place, f"no record: {type(error).__name__} {error}", "what qola publish writes")
        ) from None
    # The digest comes first: a file of another schema has another, and says so by its inputs.
    wrong = _wrong(record, key)
    if not wrong and (schema != SCHEMA or name != archive_name(key.text)):
        wrong = f"schema {schema!r}, archive {name!r}"
    if wrong:
        raise PrebuiltError(
            Finding(
                place,
                wrong,
                f"the record of {key.text}, digest {key.digest}",
                "do not use it: whoever publishes it has to do so anew "
                "(qola publish --overwrite); --no-prebuilt builds",
            )
        )
    return record


def _wrong(record: Record, key: Key) -> str:
    """Return what a record says that the key does not, "" for nothing."""
    if (record.key, record.digest) != (key.text, key.digest):
        differing = ", ".join(differences(record.inputs, key.inputs)) or "nothing in its inputs"
        return f"the record of {record.key}, digest {record.digest}; {differing} differs"
    found = sha256_of_json(record.inputs)
    if found != record.digest:
        return f"digest {record.digest}, where that of its inputs is {found}"
    return ""
