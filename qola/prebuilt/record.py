"""The record of an archive: the identity of its bundle, and the archive's digest. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qola.errors import Finding, PrebuiltError
from qola.files import sha256_of_json
from qola.prebuilt.key import SCHEMA, Key, differences

MAX_SIZE = 4 << 20
"""Largest accepted record in bytes."""

MAX_ARCHIVE = 16 << 30
"""Largest accepted archive, packed and unpacked, in bytes."""

_LAST_SERIAL = 1 << 40

_SHOWN = 1000
"""Largest number of characters of a record in a message."""


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
    """Sizes and digests of an archive, of its tar file, and the total size of its files."""

    size: int
    sha256: str
    tar_sha256: str
    unpacked_size: int

    def to_json(self) -> dict[str, int | str]:
        """Return the archive as a record has it."""
        return {
            "size": self.size,
            "sha256": self.sha256,
            "tar_sha256": self.tar_sha256,
            "unpacked_size": self.unpacked_size,
        }


@dataclass(frozen=True)
class Record:
    """A prebuilt bundle's key, the digest of the key's inputs, and its file.

    Attributes:
        serial: orders the records of a key. 0 or, for a record that replaced another one
            (qola publish --overwrite), its time in seconds since 1970, UTC.
    """

    key: str
    digest: str
    inputs: Mapping[str, Any]
    archive: Archive
    serial: int = 0

    def to_json(self) -> str:
        """Return the text of the record's file, which only depends on bundle and serial."""
        content = {
            "schema": SCHEMA,
            "serial": self.serial,
            "key": self.key,
            "digest": self.digest,
            "inputs": self.inputs,
            "archive": {"name": archive_name(self.key), **self.archive.to_json()},
        }
        return json.dumps(content, indent=2, sort_keys=True) + "\n"


def record_of(key: Key, archive: Archive, serial: int = 0) -> Record:
    """Return the record of a bundle."""
    return Record(key.text, key.digest, key.inputs, archive, serial)


def parse(data: bytes, key: Key, place: str) -> Record:
    """Parse a record; raise PrebuiltError if it is invalid, or belongs to another key."""
    try:
        content = json.loads(data.decode("utf-8"))
        # Check the inputs first: they name the schema of a record from another version.
        wrong = _wrong(content["inputs"], content["key"], content["digest"], key)
        found = content["archive"]
        archive = Archive(
            _number(found["size"], MAX_ARCHIVE),
            _digest(found["sha256"]),
            _digest(found["tar_sha256"]),
            _number(found["unpacked_size"], MAX_ARCHIVE),
        )
        serial = _number(content.get("serial", 0), _LAST_SERIAL)
        name, schema = found["name"], content["schema"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        words = _shown(f"{type(error).__name__} {error}")
        raise PrebuiltError(
            Finding(place, f"no record: {words}", "what qola publish writes")
        ) from None
    if not wrong and (schema != SCHEMA or name != archive_name(key.text)):
        wrong = f"schema {schema!r}, archive {name!r}"
    if wrong:
        raise PrebuiltError(
            Finding(
                place,
                _shown(wrong),
                f"the record of {key.text}, digest {key.digest}",
                "do not use it: whoever publishes it has to do so anew "
                "(qola publish --overwrite); --no-prebuilt builds",
            )
        )
    return record_of(key, archive, serial)


def _wrong(inputs: object, name: object, digest: object, key: Key) -> str:
    """Return the difference between a record and a key, "" if there is none."""
    if not isinstance(inputs, dict):
        raise ValueError("inputs that are not an object")
    if (name, digest) != (key.text, key.digest):
        differing = ", ".join(differences(inputs, key.inputs)) or "nothing in its inputs"
        return f"the record of {name}, digest {digest}; {differing} differs"
    found = sha256_of_json(inputs)
    return "" if found == digest else f"digest {digest}, where that of its inputs is {found}"


def _shown(text: str) -> str:
    """Shorten foreign text and escape control characters."""
    return repr(text)[1:-1][:_SHOWN]


def _number(value: object, largest: int) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{value!r}, where a number from 0 to {largest} is to be")
    return value


def _digest(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{value!r}, where a sha256 is to be")
    return value
