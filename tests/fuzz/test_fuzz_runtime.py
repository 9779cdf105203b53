"""Hostile packs, indexes and entries for the C++ runtime of lazy libraries, with sanitizers."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from qola.lazy.index import FILE, LINK_SCRIPT, Headers, Index, Kernel, render_index
from qola_base.files import sha256_of_text
from tests.fuzz.fuzzing import HOSTILE, fuzz, mutate
from tests.support.folders import read, write

PACK, ENTRY, ABI = b"QOLAPCK1", b"QOLAKRN1", 1
FILES = {
    "src/p/k1.cpp": "int f();",
    "src/p/k2.cpp": "int g();",
    "entries/one.cpp": "entry",
    "include/k/k.h": "#pragma once",
    LINK_SCRIPT: "SECTIONS {}",
}
DIGESTS = {name: sha256_of_text(text) for name, text in FILES.items()}
INDEX = render_index(
    Index(
        module="libtoy",
        root="../share",
        identity="clang 22",
        flags=("-x", "hip"),
        arch_flags={"gfx950": ("-DFOR_950",)},
        package_flags={"p": ("-DP",)},
        headers={"k": Headers(("include/k",), {"include/k/k.h": DIGESTS["include/k/k.h"]})},
        link_flags=("-shared",),
        link_script=DIGESTS[LINK_SCRIPT],
        entries={"one": DIGESTS["entries/one.cpp"]},
        kernels=tuple(
            Kernel(name, arch, "p", "k", "one", DIGESTS[f"src/p/{name}.cpp"])
            for name in ("k1", "k2")
            for arch in ("gfx942", "gfx950")
        ),
    )
)
PATHS = ("../a", "/etc/passwd", "src/p/../p/k1.cpp", "src//p/k1.cpp", f"./{LINK_SCRIPT}", "include")


class RejectedError(Exception):
    """The error of a reader for a rejected input."""


class Readers:
    """A process that reads inputs one by one."""

    def __init__(self, program: str, directory: Path) -> None:
        """Start the process in a directory that the process may write to."""
        self.errors = (directory.parent / "errors").open("w+")
        # An allocation above the runtime's own limit fails the test.
        options = "max_allocation_size_mb=1100:detect_leaks=1:handle_abort=1"
        self.process = subprocess.Popen(
            [program],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={"ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1"},
        )

    def read_input(self, reader: bytes, data: bytes, zeros: int = 0) -> None:
        """Send an input to a reader; raise its error."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(reader + struct.pack("<QQ", len(data), zeros) + data)
            self.process.stdin.flush()
        except BrokenPipeError:
            pytest.fail(self.error_output())
        head = self.process.stdout.read(4)
        if len(head) < 4:
            raise AssertionError(self.error_output())
        response = self.process.stdout.read(*struct.unpack("<I", head)).decode()
        if response[0] == "-":
            raise RejectedError(response[1:])

    def error_output(self) -> str:
        """Return the standard error of the process after its end."""
        self.process.wait()
        self.errors.seek(0)
        return self.errors.read()[:5000]

    def close(self) -> str:
        """End the process; return its standard error, including reports of leaks."""
        with self.process, self.errors:
            assert self.process.stdin is not None
            with suppress(BrokenPipeError):
                self.process.stdin.close()
            return self.error_output()


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Readers]:
    """The readers, in a directory with the sources that INDEX lists."""
    directory = tmp_path / "in"
    write(directory / "root", {**FILES, FILE: INDEX})
    program = str(Path(os.environ["QOLA_TEST_FUZZED_RUNTIME"]).resolve())
    started = Readers(program, directory)
    yield started
    error_output = started.close()
    assert (started.process.returncode, error_output) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {"in", "errors"}
    assert {path.name for path in directory.iterdir()} <= {"root", "a.qpack", "copy.qpack"}
    expected = {name: text.encode() for name, text in {**FILES, FILE: INDEX}.items()}
    assert read(directory / "root") == expected


def entry(rng: random.Random, key: bytes, damage: float) -> bytes:
    """Return a kernel library with its trailer; each part is wrong with probability `damage`."""

    def part(correct: bytes) -> bytes:
        if rng.random() > damage:
            return correct
        return rng.choice(
            (b"", bytes(len(correct)), correct[:-1], correct + b"x", b"\xff" * len(correct))
        )

    body = rng.randbytes(rng.choice((0, 1, 79, 80, 81, 5000)))
    body += part(ENTRY) + part(struct.pack("<II", ABI, 0)) + part(key)
    return body + part(sha256(body).digest())


def test_entries(readers: Readers) -> None:
    """Prevents: the runtime reads beyond an entry's end, or loads code that was not compiled."""

    def make(rng: random.Random) -> tuple[bytes, bytes]:
        key = rng.randbytes(32)
        data = entry(rng, key, rng.choice((0, 0.1, 0.5)))
        if rng.random() < 0.2:
            data = data[: rng.randint(0, len(data))]
        requested_key = rng.choice(
            (key.hex().encode(),) * 4 + (b"", b"\xff", b"a" * 64, b"a" * 9000)
        )
        return requested_key, data

    def read_input(case: tuple[bytes, bytes]) -> None:
        key, data = case
        readers.read_input(b"e", key + b"\n" + data)
        start = len(data) - 80
        assert data[start : start + 12] == ENTRY + struct.pack("<I", ABI)
        assert key in (b"", data[start + 16 : start + 48].hex().encode())
        assert sha256(data[:-32]).digest() == data[-32:]

    readers.read_input(b"e", b"\n" + entry(random.Random(1), bytes(32), 0))
    fuzz(make, read_input, (RejectedError,))


def make_index(rng: random.Random) -> bytes:
    """Return an index with a few changed fields or lines, or with changes anywhere."""
    if rng.random() < 0.3:
        return mutate(rng, INDEX).encode("utf-8", "surrogatepass")
    rows = [line.split("\t") for line in INDEX.splitlines()]
    for _ in range(rng.randint(0, 3)):
        row = rng.choice(rows)
        at = rng.randrange(len(row))
        match rng.randint(0, 5):
            case 0:
                del row[at]
            case 1:
                rows.insert(rng.randint(0, len(rows)), list(row))
            case 2:
                rows.remove(row)
                rows = rows or [[""]]
            case _:
                row[at] = rng.choice((*PATHS, *HOSTILE, *rng.choice(rows)))
    text = "".join("\t".join(row) + "\n" for row in rows)
    return text.encode("utf-8", "surrogatepass")


def test_indexes(readers: Readers) -> None:
    """Prevents: the runtime reads invalid memory, or files outside of the index's directory."""
    readers.read_input(b"i", INDEX.encode())
    fuzz(make_index, lambda data: readers.read_input(b"i", data), (RejectedError,))


def make_pack(rng: random.Random) -> tuple[bytes, int]:
    """Return a pack with a valid digest, often with wrong numbers, and a count of zeros."""
    damage = rng.choice((0, 0.05, 0.4))

    def number(correct: int, bits: int) -> int:
        wrong = (0, 1, correct - 1, correct + 1, 2**bits - 1, 2 ** (bits - 1), 3 << 30)
        return correct if rng.random() >= damage else rng.choice(wrong) % 2**bits

    keys = sorted(rng.randbytes(32) for _ in range(rng.randint(0, 4)))
    entries = [entry(rng, key, damage / 4) for key in keys]
    name_parts = (*HOSTILE, "k1") if damage else ("k1", "fmha_fwd")
    names = "".join(
        f"{rng.choice(name_parts)}\tgfx950\tclang{rng.choice(name_parts)}\n" for _ in keys
    )
    labels = names.encode("utf-8", "surrogatepass")
    offset = 16 + 48 * len(keys) + len(labels) + 32
    rows = b""
    for key, data in zip(keys, entries, strict=True):
        rows += struct.pack("<32sQQ", key, number(offset, 64), number(len(data), 64))
        offset += len(data)
    table = struct.pack("<8sII", PACK, number(len(keys), 32), number(len(labels), 32))
    table += rows + labels
    data = table + sha256(table).digest() + b"".join(entries)
    if rng.random() < damage / 4:
        data = data[: rng.randint(0, len(data))]
    return data, rng.choice((0, 0, 0, 7, 400 << 30)) if damage else 0


def test_packs(readers: Readers) -> None:
    """Prevents: the runtime allocates sizes that a pack only claims, or reads beyond its parts."""
    readers.read_input(b"p", make_pack(random.Random(4))[0])
    fuzz(make_pack, lambda case: readers.read_input(b"p", *case), (RejectedError,))
