"""Encodes values in names: with letters, digits, _ and ~ only, and reversibly."""

from __future__ import annotations

import re

FieldValue = str | int | bool | None
"""The value of a kernel's field."""

ANY = "any"
"""The encoding of None at a fixed position of a name."""

_PLAIN = {"true": True, "false": False, "null": None}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_OTHER = re.compile(r"[^A-Za-z0-9_]")
_ESCAPED = re.compile(r"(?:~[0-9a-f]{2})+")
#: Prefix of a text that would otherwise be decoded to another type.
_TEXT = "~s"


def word(value: FieldValue) -> str:
    """Encode a value; `value_of` decodes it."""
    if isinstance(value, str):
        mistaken = not value or value == ANY or value in _PLAIN or _NUMBER.fullmatch(value)
        return _TEXT * bool(mistaken) + _OTHER.sub(_escape, value)
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    return _OTHER.sub(_escape, str(value))


def value_of(text: str) -> FieldValue:
    """Decode a value; escapes that are not UTF-8 are a ValueError."""
    plain = _ESCAPED.sub(_unescape, text.removeprefix(_TEXT))
    if text.startswith(_TEXT):
        return plain
    if _NUMBER.fullmatch(plain):
        return int(plain)
    return _PLAIN.get(plain, plain)


def _escape(match: re.Match[str]) -> str:
    return "".join(f"~{byte:02x}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _unescape(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("~", "")).decode("utf-8", "surrogatepass")
