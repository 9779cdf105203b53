"""Reads a manifest: one TOML file that selects the attention libraries to build.

`load` validates it as a whole; `check_against` compares it with an AITER tree and a toolchain.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from qola.errors import Finding, ManifestError, visible
from qola.files import UnfitFileError, bounded_bytes, too_long
from qola.manifest.check import check_against
from qola.manifest.parse import build_manifest
from qola.manifest.toml_lines import TomlSyntaxError, parse
from qola.manifest.types import BwdVariant, FwdVariant, Manifest, ModuleSpec
from qola.version import docs_url

__all__ = [
    "BwdVariant",
    "FwdVariant",
    "Manifest",
    "ModuleSpec",
    "check_against",
    "load",
    "loads",
]

MAX_BYTES = 128 * 1024
"""Maximal size of a manifest: a hundred times that of the shipped ones."""

_EXPECTED = f"a readable manifest in TOML ({docs_url('reference/manifest.md')})"


def load(path: Path, *, display: str | None = None) -> Manifest:
    """Read a manifest from a file.

    Args:
        display: the name in findings; `path` by default.

    Raises:
        ManifestError: the file cannot be read, is not UTF-8, or as `loads`.
    """
    name = display or path.as_posix()
    try:
        data = bounded_bytes(path, MAX_BYTES)
    except (OSError, UnfitFileError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise ManifestError(Finding(name, found, _EXPECTED)) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{data[error.start]:02x}, which is not UTF-8"
        finding = Finding(f"{name}:{line}", found, _EXPECTED, "save the file in UTF-8")
        raise ManifestError(finding) from None
    return loads(text, file=name)


def loads(text: str, *, file: str) -> Manifest:
    """Read a manifest from a string.

    Raises:
        ManifestError: with every finding, if `text` is not TOML or not a manifest.
    """
    if len(text) > MAX_BYTES:
        raise ManifestError(Finding(file, too_long(MAX_BYTES), _EXPECTED))
    try:
        document, lines = parse(text)
    except TomlSyntaxError as error:
        raise ManifestError(_syntax_finding(error, file), f"{file} is not TOML") from None
    return replace(build_manifest(document, lines, file), text=text)


def _syntax_finding(error: TomlSyntaxError, file: str) -> Finding:
    """Show the offending line, with a caret below the column."""
    place = f"{file}:{error.line}:{error.column}"
    if len(error.source) > 200:
        return Finding(place, error.reason, "TOML (https://toml.io)")
    before = visible(error.source[: error.column - 1], keep="\t")
    found = f"{error.reason}\n{error.source}\n{' ' * len(before)}^"
    return Finding(place, found, "TOML (https://toml.io)", _syntax_fix(error))


def _syntax_fix(error: TomlSyntaxError) -> str:
    """Return a fix for the usual slips of users of Python or YAML, or ""."""
    if error.source.startswith("\ufeff"):
        return "save the file without a byte order mark"
    if match := re.match(r"\s*([\w.-]+)\s*=\s*(True|False)\s*(#.*)?$", error.source):
        return f"{match[1]} = {match[2].lower()}"
    if match := re.match(r"\s*([\w.-]+)\s*=\s*([A-Za-z][\w./:-]*)\s*(#.*)?$", error.source):
        return f'{match[1]} = "{match[2]}"'
    if match := re.match(r"\s*\[(modules|mha_[fb]wd_variants)\]", error.source):
        return f"tables that may repeat have two brackets: [[{match[1]}]]"
    if match := re.match(r"\s*([A-Za-z][\w-]*)\s*:\s", error.source):
        return f"{match[1]} = ..."
    return ""
