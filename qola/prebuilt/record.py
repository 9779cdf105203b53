"""The record of an archive: the identity of its bundle, and the archive's digest. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from qola.prebuilt.key import SCHEMA, Key, differences
from qola_base.errors import Finding, PrebuiltError
from qola_base.files import sha256_of_json

MAX_SIZE = 4 << 20
"""Largest accepted record in bytes."""

MAX_ARCHIVE = 16 << 30
"""Largest accepted archive, packed and unpacked, in bytes."""

_LAST_SERIAL = 1 << 40


@dataclass(frozen=True)
class Archive:
    """Sizes and digests of an archive, of its tar file, and the total size of its files."""

    size: int
    sha256: str
    tar_sha256: str
    unpacked_size: int


@dataclass(frozen=True)
class Record:
    """The content of a record's file.

    Attributes:
        serial: orders the records of a key. 0 or, for a record that replaced another one
            (qola publish --overwrite), its time in seconds since 1970, UTC.
    """

    key: Key
    archive: Archive
    serial: int = 0

    def to_json(self) -> str:
        """Return the text of the record's file, which only depends on bundle and serial."""
        content = {
            "schema": SCHEMA,
            "serial": self.serial,
            "key": self.key.text,
            "digest": self.key.digest,
            "inputs": self.key.inputs,
            "archive": {"name": self.key.archive_name, **asdict(self.archive)},
        }
        return json.dumps(content, indent=2, sort_keys=True) + "\n"


def parse(data: bytes, key: Key, place: str) -> Record:
    """Parse a record; raise PrebuiltError if it is invalid, or belongs to another key."""
    try:
        content = json.loads(data.decode("utf-8"))
        # Check the inputs first: they name the schema of a record from another version.
        inputs, text, digest = content["inputs"], content["key"], content["digest"]
        if not isinstance(inputs, dict):
            raise ValueError("inputs that are not an object")
        wrong = ""
        if (text, digest) != (key.text, key.digest):
            differing = ", ".join(differences(inputs, key.inputs)) or "nothing in its inputs"
            wrong = f"the record of {text}, digest {digest}; {differing} differs"
        elif digest != (actual := sha256_of_json(inputs)):
            wrong = f"digest {digest}, where that of its inputs is {actual}"
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
    if not wrong and (schema != SCHEMA or name != key.archive_name):
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
    return Record(key, archive, serial)


def _shown(text: str) -> str:
    """Shorten foreign text and escape control characters."""
    return repr(text)[1:-1][:1000]


def _number(value: object, largest: int) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{value!r}, where a number from 0 to {largest} is to be")
    return value


def _digest(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{value!r}, where a sha256 is to be")
    return value
