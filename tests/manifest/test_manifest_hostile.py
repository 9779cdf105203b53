"""Manifests with values that a generated file, a terminal or a plan must not get."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qola.manifest import archs
from qola.manifest.constants import KNOWN_ARCHS
from qola.manifest.load import load, loads
from qola_base.errors import ManifestError, PlanError, unseen

HEAD = '[[modules]]\nname = "libmha_fwd"\n'
FWD = f"{HEAD}[[mha_fwd_variants]]\n"


def check_refusal(text: str) -> str:
    """Check that qola refuses a text, and return the error, which a terminal can show."""
    with pytest.raises(ManifestError) as caught:
        loads(text, file="m.toml")
    message = str(caught.value)
    assert len(message) < 100_000
    assert not unseen(message.replace("\n", ""))
    return message


@pytest.mark.parametrize(
    ("text", "error_text"),
    [
        (f"{HEAD}receipt = {'9' * 100}", "from 0 to 2147483647"),
        (f"{HEAD}receipt = {'9' * 9000}", "is not TOML"),
        (f'{HEAD}receipt = "{"9" * 4400}"', "an integer from"),
        (f"{FWD}hdim = [0x{'f' * 120}]", "each from 1 to 512"),
        ("a = " + "[" * 60_000, "is not TOML"),
    ],
    ids=range(5),
)
def test_excessive_values(text: str, error_text: str) -> None:
    """Prevents: a slip of the keyboard ends in a traceback."""
    assert error_text in check_refusal(text)


ESCAPES = ["\\u0000", "\\u001b[31m", "\\n", "\\t", "\\u007f", "\\u009b", "\\u2028", "\\u202e"]


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize(
    "line",
    [
        'group = "a{}b"',
        'srcs = ["a{}b"]',
        'hsa_subdirs = ["a{}b"]',
        'flags_extra_hip_per_source = {{ "a{}b" = [] }}',
        'flags_extra_hip_per_source = {{ a = ["a{}b"] }}',
        '"a{}b" = 1',
        '[qola]\npatches_dir = "a{}b"',
        '[prebuilt]\nurls = ["a{}b"]',
        '["a{}b"]',
    ],
)
def test_control_characters_are_refused(line: str, escape: str) -> None:
    """Prevents: a value that inserts a line into a generated file, or moves a terminal's cursor."""
    message = check_refusal(HEAD + line.format(escape))
    assert re.search(r"a\\\S+b", message), message


def test_surrogates_are_refused() -> None:
    """Prevents: a value that cannot be encoded when qola writes it to a file."""
    assert "\\ud800" in check_refusal(f'{HEAD}group = "a\ud800"')


@pytest.mark.parametrize(
    "line",
    [
        'receipt = "\u0667"',
        'receipt = "\u00b2"',
        '[qola]\nrocm_versions = ["\u0667.\u0662"]',
    ],
)
def test_digits_are_ascii(line: str) -> None:
    """Prevents: a version or receipt with digits that look right and do not compare equal."""
    check_refusal(HEAD + line)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "a\0b", "a\ud800", "."])
def test_unreadable_names(tmp_path: Path, name: str) -> None:
    """Prevents: a traceback for a name that no file can have, or for a directory."""
    with pytest.raises(ManifestError) as caught:
        load(tmp_path / name)
    str(caught.value).encode()


def test_number_of_archs_is_limited() -> None:
    """Prevents: a plan that never ends, since each set of archs has a separate dispatch."""
    names = ", ".join(f'"{arch}"' for arch in KNOWN_ARCHS)
    manifest = loads(f"{HEAD}[build]\narchitectures = [{names}]", file="m.toml")
    with pytest.raises(PlanError, match=f"{len(KNOWN_ARCHS)} archs"):
        archs.resolve_archs((), manifest, (), lambda: ())
