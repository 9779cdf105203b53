"""Manifests that mean harm: refused within a second, in words, and without a traceback."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from qola.errors import ManifestError, PlanError, unseen
from qola.manifest import archs
from qola.manifest.constants import KNOWN_ARCHS
from qola.manifest.load import MAX_BYTES, load, loads

HEAD = '[[modules]]\nname = "libmha_fwd"\n'
FWD = f"{HEAD}[[mha_fwd_variants]]\n"


def refused(text: str) -> str:
    """Return what is said of a text, which takes less than a second of a processor."""
    start = time.process_time()
    with pytest.raises(ManifestError) as caught:
        loads(text, file="m.toml")
    message = str(caught.value)
    assert time.process_time() - start < 1
    assert len(message) < 100_000
    assert not unseen(message.replace("\n", ""))
    return message


def full(item: str, *, head: str = "", tail: str = "") -> str:
    """Return an item as often as a manifest of the largest size has room for."""
    return head + item * ((MAX_BYTES - len(head) - len(tail)) // len(item)) + tail


@pytest.mark.parametrize(
    ("text", "said"),
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
def test_what_is_too_much_is_refused_at_once(text: str, said: str) -> None:
    """Prevents: a manifest that takes minutes, all memory, or ends in a traceback."""
    assert said in refused(text)


@pytest.mark.parametrize(
    "text",
    [
        full("[[a]]\n"),
        full('"'),
        full("'"),
        full('"""'),
        full('\\"', head='a = """'),
        full("a ."),
        full("7.", head=f'{HEAD}[qola]\nrocm_versions = ["', tail='x"]'),
        full("_", head=f'{HEAD}[qola]\nnamespace = "', tail='"'),
        HEAD + "".join(f"k{n}=1\n" for n in range(14_000)),
        "".join(f'[[modules]]\nname="a{n}"\n' for n in range(4000)) + "x = 1",
    ],
    ids=range(10),
)
def test_the_largest_manifest_takes_no_second(text: str) -> None:
    """Prevents: time that grows with the square of a manifest's length."""
    assert len(text) <= MAX_BYTES
    refused(text)


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
    """Prevents: a value that ends a line of a file, or moves a terminal's cursor."""
    assert "b" in refused(HEAD + line.format(escape))


def test_surrogates_are_refused() -> None:
    """Prevents: a value that no file can hold, found out when it is written."""
    assert "\\ud800" in refused(f'{HEAD}group = "a\ud800"')


@pytest.mark.parametrize(
    "line",
    [
        'receipt = "\u0667"',
        'receipt = "\u00b2"',
        '[qola]\nrocm_versions = ["\u0667.\u0662"]',
    ],
)
def test_digits_are_ascii(line: str) -> None:
    """Prevents: a version or a receipt that reads like one and compares like none."""
    refused(HEAD + line)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Prevents: a command that waits for a FIFO or reads a device until memory ends."""
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


def test_a_file_is_read_no_further_than_it_may_go(tmp_path: Path) -> None:
    """Prevents: a file of many gigabytes read before it is refused."""
    file = tmp_path / "big.toml"
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    with pytest.raises(ManifestError, match="more than 128 KiB"):
        load(file)


def test_archs_are_few() -> None:
    """Prevents: a plan that never ends: each set of archs has a dispatch of its own."""
    names = ", ".join(f'"{arch}"' for arch in KNOWN_ARCHS)
    manifest = loads(f"{HEAD}[build]\narchitectures = [{names}]", file="m.toml")
    with pytest.raises(PlanError, match=f"{len(KNOWN_ARCHS)} archs"):
        archs.resolve_archs((), manifest, (), lambda: ())
