"""Hostile manifests: qola refuses them within a second, with an error instead of a traceback."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from qola.manifest import archs
from qola.manifest.constants import KNOWN_ARCHS
from qola.manifest.load import MAX_BYTES, load, loads
from qola_base.errors import ManifestError, PlanError, unseen

HEAD = '[[modules]]\nname = "libmha_fwd"\n'
FWD = f"{HEAD}[[mha_fwd_variants]]\n"


def check_refusal(text: str) -> str:
    """Check that qola refuses a text within a second of CPU time, and return the error."""
    start = time.process_time()
    with pytest.raises(ManifestError) as caught:
        loads(text, file="m.toml")
    message = str(caught.value)
    assert time.process_time() - start < 1
    assert len(message) < 100_000
    assert not unseen(message.replace("\n", ""))
    return message


def fill(item: str, *, head: str = "", tail: str = "") -> str:
    """Repeat an item up to the maximum size of a manifest."""
    return head + item * ((MAX_BYTES - len(head) - len(tail)) // len(item)) + tail


@pytest.mark.parametrize(
    ("text", "error_text"),
    [
        (f"{HEAD}receipt = 0x{'f' * 5000}", "a number of 128"),
        (f"{HEAD}receipt = {'9' * 100}", "from 0 to 2147483647"),
        (f'{HEAD}receipt = "{"9" * 4400}"', "an integer from"),
        (f"{FWD}hdim = [0x{'f' * 120}]", "each from 1 to 512"),
        ("[" + ".".join("a" * 60_000) + "]", "more than 8 keys"),
        ("[" + '"a" . ' * 9 + "a]", "more than 8 keys"),
        ("a = " + "[" * 60_000, "more than 8 keys or brackets"),
        ("a = " + "{b = " * 900, "more than 8 keys or brackets"),
        (f"{HEAD}{'x' * 60_000} = 1", "a key or a number of 128"),
        (f'{HEAD}"{"x" * 60_000}" = 1', "unknown key"),
        (f'{HEAD}hsa_subdirs = ["{"../" * 20_000}"]', "of 60000 characters"),
        (f"{HEAD}srcs = [{'0,' * 60_000}]", "60000 items"),
        (f"{FWD}has_mask = [{'true,' * 5000}]", "5000 items"),
        ("[[modules]]\n" * 5000, "5000 tables"),
        (f"{HEAD}srcs = [{'0,' * 4000}]", "reading stopped here (100 errors)"),
        ("\n" * 5_000_000, "more than 128 KiB"),
    ],
    ids=range(16),
)
def test_excessive_values_are_refused_quickly(text: str, error_text: str) -> None:
    """Prevents: a manifest that takes minutes or all memory, or ends in a traceback."""
    assert error_text in check_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        fill("[[a]]\n"),
        fill('"'),
        fill("'"),
        fill('"""'),
        fill('\\"', head='a = """'),
        fill("a ."),
        fill("7.", head=f'{HEAD}[qola]\nrocm_versions = ["', tail='x"]'),
        fill("_", head=f'{HEAD}[qola]\nnamespace = "', tail='"'),
        HEAD + "".join(f"k{n}=1\n" for n in range(14_000)),
        "".join(f'[[modules]]\nname="a{n}"\n' for n in range(4000)) + "x = 1",
    ],
    ids=range(10),
)
def test_largest_manifest_is_refused_quickly(text: str) -> None:
    """Prevents: parsing time that is quadratic in the length of a manifest."""
    assert len(text) <= MAX_BYTES
    check_refusal(text)


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


def test_special_files_are_refused(tmp_path: Path) -> None:
    """Prevents: a command that waits for a FIFO or reads a device until memory is exhausted."""
    fifo, link = tmp_path / "fifo", tmp_path / "link.toml"
    os.mkfifo(fifo)
    link.symlink_to("/dev/zero")
    for path in (fifo, link, Path("/dev/zero"), Path("/dev/tty")):
        with pytest.raises(ManifestError, match=r"not a regular file|No such device"):
            load(path)
    for name in ("x" * 300, "x/" * 3000, "a\0b", "a\ud800"):
        with pytest.raises(ManifestError) as caught:
            load(tmp_path / name)
        str(caught.value).encode()


def test_large_file_is_not_read(tmp_path: Path) -> None:
    """Prevents: a file of many gigabytes read before it is refused."""
    file = tmp_path / "big.toml"
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    with pytest.raises(ManifestError, match="more than 128 KiB"):
        load(file)


def test_number_of_archs_is_limited() -> None:
    """Prevents: a plan that never ends, since each set of archs has a separate dispatch."""
    names = ", ".join(f'"{arch}"' for arch in KNOWN_ARCHS)
    manifest = loads(f"{HEAD}[build]\narchitectures = [{names}]", file="m.toml")
    with pytest.raises(PlanError, match=f"{len(KNOWN_ARCHS)} archs"):
        archs.resolve_archs((), manifest, (), lambda: ())
