"""Hostile sources of prebuilt bundles: archives, records, signatures, and the cache."""

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

from qola.common.layout import RECORD
from qola.prebuilt import signature, store, te_layout
from qola.prebuilt.archive import pack_bundle, unpack
from qola.prebuilt.fetch import bundle_record, libraries_of
from qola.prebuilt.key import Key
from qola.prebuilt.publish import publish
from qola.prebuilt.record import MAX_ARCHIVE, Archive, Record, parse
from qola.prebuilt.sources import DirectorySource
from qola_base.errors import PrebuiltError, QolaError, unseen
from tests.fuzz.fuzzing import HOSTILE, fuzz, mutate, mutate_json
from tests.prebuilt.tars import END, entry, pax
from tests.support.folders import read, write

KEY = Key("left", "a", {"x": [1]}, {}, ("gfx950",), {}, {"rocm_version": "7.2.4", "y": "1"}, {})
NAME = KEY.record_name
LIBRARY = "lib/left_libmha_fwd.so"
BUNDLE = json.dumps({"schema": 1, "modules": [{"name": "libmha_fwd", "library": LIBRARY}]})
LIMIT = 200_000
"""Maximum total size of an archive's files, in bytes."""

MEMORY = 16 << 20
COMMIT = "c" * 40

SIZES = (b"7" * 11, b"00000001750", b"\x80" + b"\x7f" * 10, b"\xff" * 12, b"-1", b"", b"many", b"8")
PAX_KEYS = ("path", "path", "linkpath", "size", "hdrcharset", "comment", "GNU.sparse.major")
VALUES: tuple[Any, ...] = (None, True, -1, 0, 10**30, 1.5, float("nan"), "", [], {}, {"a": 1}, [[]])


def make_name(rng: random.Random) -> bytes:
    """Return a typical file name of bundles, or a hostile name."""
    known = ("lib/a.so", "./lib//b.so", "include/ü.h", "lib/", "lib", "a/" * 30 + "b", LIBRARY)
    name = rng.choice(known)
    if rng.random() < 0.4:
        name = mutate(rng, name, (*HOSTILE, "a/" * 700))
    return name.encode("utf-8", "surrogatepass") if rng.random() < 0.95 else rng.randbytes(9)


def member(rng: random.Random) -> bytes:
    """Return a member of an archive, or a header with metadata of the next member."""
    kind = rng.choice((b"0", b"0", b"0", b"0", b"\0", b"5", b"x", b"L", b"g", rng.randbytes(1)))
    wrong: dict[str, object] = {"size": rng.choice(SIZES)[:12].ljust(12, b"\0")}
    wrong = wrong if rng.random() < 0.1 else {"magic": b"ustar  \0"} if rng.random() < 0.1 else {}
    if kind in (b"x", b"g") and rng.random() < 0.8:
        count = rng.choice((1, 1, 1, 2, 500))
        return pax(*((rng.choice(PAX_KEYS), make_name(rng)) for _ in range(count)), kind=kind)
    if kind == b"L":
        return entry("././@LongLink", make_name(rng) + b"\0", kind, **wrong)
    content = b"" if kind == b"5" else rng.randbytes(rng.choice((0, 1, 511, 512, 3000, 60_000)))
    return entry(make_name(rng), content, kind, **wrong)


def damage(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with some bytes changed, or cut off."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 4))):
        position = rng.randint(0, len(changed))
        changed[position : position + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
    return bytes(changed[: rng.randint(0, len(changed))] if rng.random() < 0.2 else changed)


def make_archive(rng: random.Random) -> bytes:
    """Return an archive of valid and invalid members, sometimes damaged."""
    content = b"".join(member(rng) for _ in range(rng.choice((1, 2, 5, 40))))
    content += rng.choice((END, END, END, END * 9, b"", bytes(512), bytes(20 << 20)))
    packed = gzip.compress(damage(rng, content) if rng.random() < 0.2 else content, 1)
    packed *= rng.choice((1, 1, 1, 1, 1, 2))
    return damage(rng, packed) if rng.random() < 0.1 else packed


def test_archives(tmp_path: Path) -> None:
    """Prevents: a server's archive causes a traceback, writes outside files or fills memory."""
    file, out = tmp_path / "a.tar.gz", tmp_path / "in/out"

    def take(data: bytes) -> None:
        file.write_bytes(data)
        tracemalloc.start()
        try:
            unpacked = unpack(file, out, LIMIT, "here")
            assert {*read(out)} == {*unpacked}
            assert not any(map(unseen, unpacked))
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < MEMORY
            assert {path.name for path in tmp_path.iterdir()} <= {"a.tar.gz", "in"}
            assert not any(path.is_symlink() for path in out.rglob("*"))
            assert sum(map(len, read(out).values())) <= LIMIT
            shutil.rmtree(tmp_path / "in", ignore_errors=True)

    fuzz(make_archive, take, (PrebuiltError,))


def test_records() -> None:
    """Prevents: a server's record causes a traceback, or qola accepts another key's record."""
    record = Record(KEY, Archive(10, "a" * 64, "b" * 64, 20), 7)

    def text(rng: random.Random) -> bytes:
        return mutate_json(rng, record.to_json(), VALUES).encode("utf-8", "surrogatepass")

    def take(data: bytes) -> None:
        record_read = parse(data, KEY, "here")
        content = json.loads(data)
        named = (content["key"], content["digest"], content["inputs"])
        assert named == (KEY.text, KEY.digest, KEY.inputs)
        assert 0 <= record_read.archive.size <= MAX_ARCHIVE
        assert 0 <= record_read.archive.unpacked_size <= MAX_ARCHIVE
        assert parse(record_read.to_json().encode(), KEY, "here") == record_read

    take(record.to_json().encode())
    fuzz(text, take, (PrebuiltError,))


def test_records_of_bundles(tmp_path: Path) -> None:
    """Prevents: an archive's manifest.json causes a traceback, or names a missing library."""
    files = {name: tmp_path / name for name in (RECORD, LIBRARY)}

    def take(text: str) -> None:
        files[RECORD].write_bytes(text.encode("utf-8", "surrogatepass"))
        bundle = bundle_record(files, "here")
        json.dumps(bundle).encode()
        assert {*libraries_of(bundle, ["libmha_fwd"], files, "here").values()} == {LIBRARY}

    take(BUNDLE)
    fuzz(lambda rng: mutate_json(rng, BUNDLE, VALUES), take, (PrebuiltError,))


def test_signatures(tmp_path: Path) -> None:
    """Prevents: a signature causes a traceback, or verifies other data than the record."""
    signature.write_pair(tmp_path / "k", "")
    secret = signature.read_secret_key(tmp_path / "k.key", "")
    key = signature.read_public_key("k.pub", tmp_path)
    data, comment = b'{"a": "record"}\n', signature.trusted_comment(NAME)
    signed = signature.sign(data, secret, NAME)
    lines = signed.split(b"\n")

    def inputs(rng: random.Random) -> tuple[bytes, bytes]:
        kind = rng.random()
        if kind < 0.3:
            return data, damage(rng, signed)
        if kind < 0.5:
            text = mutate(rng, signed.decode()).encode("utf-8", "surrogatepass")
            return data, text
        if kind < 0.8:
            candidates = (*lines, b"", damage(rng, lines[2]))
            return data, b"\n".join(rng.choices(candidates, k=rng.randint(1, 9)))
        return damage(rng, data), signed

    def take(case: tuple[bytes, bytes]) -> None:
        signature.verify(case[0], case[1], key, "there", comment)
        assert case[0] == data
        parsed = minisign.Signature.from_bytes(case[1])
        assert bytes(parsed).split(b"\n")[1:] == lines[1:4]

    take((data, signed))
    fuzz(inputs, take, (PrebuiltError,))
    text = (tmp_path / "k.pub").read_text()

    def take_key(case: str) -> None:
        (tmp_path / "other.pub").write_bytes(case.encode("utf-8", "surrogatepass"))
        for word in ("other.pub", case):
            signature.shown(signature.read_public_key(word, tmp_path))

    fuzz(lambda rng: mutate(rng, text), take_key, (QolaError,))


@pytest.fixture
def published(tmp_path: Path) -> tuple[dict[str, bytes], minisign.PublicKey]:
    """Files of a source with a signed bundle and a TransformerEngine bundle; the public key."""
    signature.write_pair(tmp_path / "k", "")
    secret = signature.read_secret_key(tmp_path / "k.key", "")
    write(tmp_path / "bundle", {RECORD: BUNDLE, LIBRARY: b"\x7fELF"})
    packed_archive = pack_bundle(tmp_path / "bundle", tmp_path / "packed")
    target = DirectorySource(tmp_path / "published")
    publish(KEY, tmp_path / "packed", packed_archive, target, secret, overwrite=False)
    files = read(tmp_path / "published")
    name = f"{te_layout.names(KEY.rocm['rocm_version'], COMMIT)[0]}.tar.gz"
    files |= {name: b"other", f"{name}.sha256": hashlib.sha256(b"other").hexdigest().encode()}
    return files, signature.read_public_key("k.pub", tmp_path)


@pytest.mark.parametrize("signed", [True, False])
def test_sources(
    tmp_path: Path, published: tuple[dict[str, bytes], minisign.PublicKey], signed: bool
) -> None:
    """Prevents: qola finds a wrong bundle, or an incomplete download remains in the cache."""
    files, key = published
    expected = files[KEY.archive_name]
    source_directory, cache = tmp_path / "there", tmp_path / "cache"

    def content(rng: random.Random) -> dict[str, bytes]:
        found = dict(files)
        for name in rng.sample([*files], rng.randint(0, 3)):
            match rng.randint(0, 3):
                case 0:
                    del found[name]
                case 1:
                    found[name] = rng.choice((*files.values(), b"", b"<html>", b"\xff" * 70_000))
                case _:
                    found[name] = damage(rng, found[name])
        return found

    def take(case: dict[str, bytes]) -> None:
        source = DirectorySource(source_directory)
        for directory in (source_directory, cache):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
        write(source_directory, case)
        try:
            newest = tmp_path / "newest"
            public_key = key if signed else None
            found = store.find(KEY, [source], cache, newest, public_key, offline=False)
            if isinstance(found, store.Found):
                assert found.archive.read_bytes() == expected
            te_layout.find(source, KEY.rocm["rocm_version"], COMMIT, cache, offline=False)
        finally:
            assert not [name for name in read(cache) if name.endswith(".arrived")]

    fuzz(content, take, (PrebuiltError,))
