"""Hostile sources of prebuilt bundles: archives, records, signatures, and what is kept of them."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import minisign
import pytest

from qola.errors import PrebuiltError, QolaError, unseen
from qola.layout import RECORD
from qola.prebuilt import signature, store, te_layout
from qola.prebuilt.archive import pack_bundle, unpack
from qola.prebuilt.install import bundle_record, libraries_of
from qola.prebuilt.key import Key
from qola.prebuilt.publish import publish
from qola.prebuilt.record import MAX_ARCHIVE, Archive, archive_name, parse, record_name, record_of
from qola.prebuilt.sources import DirectorySource
from tests.fuzz.fuzzing import HOSTILE, fuzz, mutate, mutate_json
from tests.prebuilt.tars import END, entry, pax
from tests.support.folders import read, write

KEY = Key("left", "a", {"x": [1]}, {}, ("gfx950",), {}, {"rocm_version": "7.2.4", "y": "1"}, {})
NAME = record_name(KEY.text)
LIBRARY = "lib/left_libmha_fwd.so"
BUNDLE = json.dumps({"schema": 1, "modules": [{"name": "libmha_fwd", "library": LIBRARY}]})
LIMIT = 200_000
"""Most bytes of files that an archive may have."""

MEMORY = 16 << 20
COMMIT = "c" * 40

SIZES = (b"7" * 11, b"00000001750", b"\x80" + b"\x7f" * 10, b"\xff" * 12, b"-1", b"", b"many", b"8")
SAID = ("path", "path", "linkpath", "size", "hdrcharset", "comment", "GNU.sparse.major")
VALUES: tuple[Any, ...] = (None, True, -1, 0, 10**30, 1.5, float("nan"), "", [], {}, {"a": 1}, [[]])


def name_of(rng: random.Random) -> bytes:
    """Return a name that bundles have, or one that nobody has."""
    known = ("lib/a.so", "./lib//b.so", "include/ü.h", "lib/", "lib", "a/" * 30 + "b", LIBRARY)
    name = rng.choice(known)
    if rng.random() < 0.4:
        name = mutate(rng, name, (*HOSTILE, "a/" * 700))
    return name.encode("utf-8", "surrogatepass") if rng.random() < 0.95 else rng.randbytes(9)


def member(rng: random.Random) -> bytes:
    """Return a member of an archive, or what is said of the next one."""
    kind = rng.choice((b"0", b"0", b"0", b"0", b"\0", b"5", b"x", b"L", b"g", rng.randbytes(1)))
    wrong: dict[str, object] = {"size": rng.choice(SIZES)[:12].ljust(12, b"\0")}
    wrong = wrong if rng.random() < 0.1 else {"magic": b"ustar  \0"} if rng.random() < 0.1 else {}
    if kind in (b"x", b"g") and rng.random() < 0.8:
        count = rng.choice((1, 1, 1, 2, 500))
        return pax(*((rng.choice(SAID), name_of(rng)) for _ in range(count)), kind=kind)
    if kind == b"L":
        return entry("././@LongLink", name_of(rng) + b"\0", kind, **wrong)
    content = b"" if kind == b"5" else rng.randbytes(rng.choice((0, 1, 511, 512, 3000, 60_000)))
    return entry(name_of(rng), content, kind, **wrong)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with some of them changed, or cut off."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 4))):
        place = rng.randint(0, len(changed))
        changed[place : place + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
    return bytes(changed[: rng.randint(0, len(changed))] if rng.random() < 0.2 else changed)


def archive_of(rng: random.Random) -> bytes:
    """Return an archive of members right and wrong, at times damaged within or without."""
    plain = b"".join(member(rng) for _ in range(rng.choice((1, 2, 5, 40))))
    plain += rng.choice((END, END, END, END * 9, b"", bytes(512), bytes(20 << 20)))
    packed = gzip.compress(damaged(rng, plain) if rng.random() < 0.2 else plain, 1)
    packed *= rng.choice((1, 1, 1, 1, 1, 2))
    return damaged(rng, packed) if rng.random() < 0.1 else packed


def test_archives(tmp_path: Path) -> None:
    """Prevents: a traceback, a file elsewhere, or memory without end, from a server's archive."""
    file, out = tmp_path / "a.tar.gz", tmp_path / "in/out"

    def take(data: bytes) -> None:
        file.write_bytes(data)
        tracemalloc.start()
        try:
            found = unpack(file, out, LIMIT, "here")
            assert {*read(out)} == {*found}
            assert not any(map(unseen, found))
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < MEMORY
            assert {path.name for path in tmp_path.iterdir()} <= {"a.tar.gz", "in"}
            assert not any(path.is_symlink() for path in out.rglob("*"))
            assert sum(map(len, read(out).values())) <= LIMIT
            shutil.rmtree(tmp_path / "in", ignore_errors=True)

    fuzz(archive_of, take, (PrebuiltError,))


def test_records() -> None:
    """Prevents: a traceback, or a record of something else, from a server's record."""
    record = record_of(KEY, Archive(10, "a" * 64, "b" * 64, 20), 7)

    def text(rng: random.Random) -> bytes:
        return mutate_json(rng, record.to_json(), VALUES).encode("utf-8", "surrogatepass")

    def take(data: bytes) -> None:
        found = parse(data, KEY, "here")
        assert (found.key, found.digest, found.inputs) == (KEY.text, KEY.digest, KEY.inputs)
        assert 0 <= found.archive.size <= MAX_ARCHIVE
        assert 0 <= found.archive.unpacked_size <= MAX_ARCHIVE
        assert parse(found.to_json().encode(), KEY, "here") == found

    take(record.to_json().encode())
    fuzz(text, take, (PrebuiltError,))


def test_records_of_bundles(tmp_path: Path) -> None:
    """Prevents: the same from an archive's manifest.json; a library that is not in the archive."""
    files = {name: tmp_path / name for name in (RECORD, LIBRARY)}

    def take(text: str) -> None:
        files[RECORD].write_bytes(text.encode("utf-8", "surrogatepass"))
        found = bundle_record(files, "here")
        json.dumps(found).encode()
        assert {*libraries_of(found, ["libmha_fwd"], files, "here").values()} == {LIBRARY}

    take(BUNDLE)
    fuzz(lambda rng: mutate_json(rng, BUNDLE, VALUES), take, (PrebuiltError,))


def test_signatures(tmp_path: Path) -> None:
    """Prevents: a traceback, or anything but the record itself taken as signed."""
    signature.write_pair(tmp_path / "k", "")
    secret = signature.read_secret_key(tmp_path / "k.key", "")
    key = signature.read_public_key("k.pub", tmp_path)
    data, comment = b'{"a": "record"}\n', signature.trusted_comment(NAME)
    signed = signature.sign(data, secret, NAME)
    lines = signed.split(b"\n")

    def inputs(rng: random.Random) -> tuple[bytes, bytes]:
        kind = rng.random()
        if kind < 0.3:
            return data, damaged(rng, signed)
        if kind < 0.5:
            text = mutate(rng, signed.decode()).encode("utf-8", "surrogatepass")
            return data, text
        if kind < 0.8:
            some = (*lines, b"", damaged(rng, lines[2]))
            return data, b"\n".join(rng.choices(some, k=rng.randint(1, 9)))
        return damaged(rng, data), signed

    def take(given: tuple[bytes, bytes]) -> None:
        signature.verify(given[0], given[1], key, "there", comment)
        assert given[0] == data
        parsed = minisign.Signature.from_bytes(given[1])
        assert bytes(parsed).split(b"\n")[1:] == lines[1:4]

    take((data, signed))
    fuzz(inputs, take, (PrebuiltError,))
    text = (tmp_path / "k.pub").read_text()

    def take_key(given: str) -> None:
        (tmp_path / "other.pub").write_bytes(given.encode("utf-8", "surrogatepass"))
        for word in ("other.pub", given):
            signature.shown(signature.read_public_key(word, tmp_path))

    fuzz(lambda rng: mutate(rng, text), take_key, (QolaError,))


@pytest.fixture
def published(tmp_path: Path) -> tuple[dict[str, bytes], minisign.PublicKey]:
    """Files of a source with a signed bundle and one of TransformerEngine's, and who signed."""
    signature.write_pair(tmp_path / "k", "")
    secret = signature.read_secret_key(tmp_path / "k.key", "")
    write(tmp_path / "bundle", {RECORD: BUNDLE, LIBRARY: b"\x7fELF"})
    packed = pack_bundle(tmp_path / "bundle", tmp_path / "packed")
    target = DirectorySource(tmp_path / "published")
    publish(KEY, tmp_path / "packed", packed, target, secret, overwrite=False)
    files = read(tmp_path / "published")
    name = f"{te_layout.names(KEY.rocm['rocm_version'], COMMIT)[0]}.tar.gz"
    files |= {name: b"other", f"{name}.sha256": hashlib.sha256(b"other").hexdigest().encode()}
    return files, signature.read_public_key("k.pub", tmp_path)


@pytest.mark.parametrize("signed", [True, False])
def test_sources(
    tmp_path: Path, published: tuple[dict[str, bytes], minisign.PublicKey], signed: bool
) -> None:
    """Prevents: another bundle than the right one found, or anything half-arrived that stays."""
    files, key = published
    right = files[archive_name(KEY.text)]
    place, cache = tmp_path / "there", tmp_path / "cache"

    def content(rng: random.Random) -> dict[str, bytes]:
        found = dict(files)
        for name in rng.sample([*files], rng.randint(0, 3)):
            match rng.randint(0, 3):
                case 0:
                    del found[name]
                case 1:
                    found[name] = rng.choice((*files.values(), b"", b"<html>", b"\xff" * 70_000))
                case _:
                    found[name] = damaged(rng, found[name])
        return found

    def take(given: dict[str, bytes]) -> None:
        source = DirectorySource(place)
        for directory in (place, cache):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
        write(place, given)
        try:
            newest = tmp_path / "newest"
            used = key if signed else None
            found = store.find(KEY, [source], cache, newest, used, offline=False)
            if isinstance(found, store.Found):
                assert found.archive.read_bytes() == right
            te_layout.find(source, KEY.rocm["rocm_version"], COMMIT, cache, offline=False)
        finally:
            assert not [name for name in read(cache) if name.endswith(".arrived")]

    fuzz(content, take, (PrebuiltError,))
