"""Finds the archive of a key: in the cache of downloads, then at each source; always verified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import minisign

from qola.errors import Finding, NoPrebuiltError, PrebuiltError
from qola.files import sha256_of
from qola.prebuilt import signature
from qola.prebuilt.http import UnreachableError
from qola.prebuilt.key import Key
from qola.prebuilt.record import MAX_SIZE, Record, archive_name, checksum_name, parse, record_name
from qola.prebuilt.sources import DirectorySource, Source

Note = Callable[[str], None]

_MAX_SMALL = 1 << 16


@dataclass(frozen=True)
class Found:
    """A bundle that was found and verified.

    Attributes:
        archive: the file.
        unpacked_size: most bytes that its files have.
        source: where it is from, as messages say it.
        layout: "qola", or "transformer-engine".
    """

    archive: Path
    unpacked_size: int
    source: str
    layout: str = "qola"


@dataclass(frozen=True)
class Outcome:
    """What became of asking one source.

    Attributes:
        source: the source.
        words: why it has no bundle.
    """

    source: str
    words: str


def find(
    key: Key,
    sources: Sequence[Source],
    cache: Path,
    public_key: minisign.PublicKey | None,
    *,
    offline: bool,
    note: Note,
) -> Found | list[Outcome]:
    """Return the bundle of a key, or why no source has it.

    Args:
        key: what is wanted.
        sources: where to ask, in order.
        cache: directory of what was downloaded for this key; locked by the caller.
        public_key: who has to have signed it, None for anybody.
        offline: ask no server.
        note: told what happens.

    Raises:
        PrebuiltError: a source has one whose digest or signature is wrong.
    """
    found = _cached(key, cache, public_key, note)
    if isinstance(found, Found):
        return found
    outcomes = []
    for source in sources:
        if offline and not source.is_local:
            outcomes.append(Outcome(str(source), "not asked: offline"))
            continue
        try:
            if record := _take(key, source, cache, public_key):
                archive = cache / archive_name(key.text)
                return Found(archive, record.archive.unpacked_size, str(source))
            outcomes.append(Outcome(str(source), "not there"))
        except UnreachableError as error:
            note(f"{source}: {error}")
            outcomes.append(Outcome(str(source), str(error)))
    if offline and found is not None:
        # There is one, and it must not be used: that is no miss.
        raise found
    return outcomes


def no_such(key: str, outcomes: Sequence[Outcome]) -> NoPrebuiltError:
    """Return the error for a key that no source has."""
    asked = "\n".join(f"{o.source}: {o.words}" for o in outcomes)
    return NoPrebuiltError(
        Finding(
            key,
            asked or "no source to ask",
            "a prebuilt bundle of just these inputs (qola fetch --explain)",
            "qola build builds it, qola publish puts it there; --prebuilt URL names a source",
        )
    )


def _cached(
    key: Key, cache: Path, public_key: minisign.PublicKey | None, note: Note
) -> Found | PrebuiltError | None:
    """Returns what an earlier fetch left, or what is wrong with it; None for nothing."""
    archive = cache / archive_name(key.text)
    if not archive.is_file() or not (cache / record_name(key.text)).is_file():
        return None
    try:
        return _found(key, cache, public_key, f"the cache of downloads ({cache})")
    except PrebuiltError as error:
        # A server's file is an error; this machine's copy of it is only a copy.
        note(f"the copy in the cache is not used: {error.findings[0].found}")
        return error


def _found(key: Key, cache: Path, public_key: minisign.PublicKey | None, place: str) -> Found:
    """Returns the bundle in the cache, verified as if nobody had done so before."""
    source = DirectorySource(cache)
    record = _verified_record(key, source, public_key)
    assert record is not None, "its file is there"
    archive = cache / archive_name(key.text)
    check_digest(archive, record[0].archive.sha256, source.place(archive.name))
    return Found(archive, record[0].archive.unpacked_size, place)


def _take(
    key: Key, source: Source, cache: Path, public_key: minisign.PublicKey | None
) -> Record | None:
    """Puts a source's archive and record into the cache, verified; None where it has none."""
    read = _verified_record(key, source, public_key)
    if read is None:
        return None
    record, data, signed = read
    name = archive_name(key.text)
    archive = record.archive
    _check_checksum(source, key, archive.sha256)
    arrived = cache / f"{name}.arrived"
    if not source.download(name, arrived, archive.size):
        raise UnreachableError(f"a record, but no {name}")
    try:
        check_digest(arrived, archive.sha256, source.place(name))
    except PrebuiltError:
        arrived.unlink()
        raise
    arrived.replace(cache / name)
    here = DirectorySource(cache)
    if signed is not None:
        here.write(f"{record_name(key.text)}{signature.SUFFIX}", signed)
    here.write(record_name(key.text), data)
    return record


def _verified_record(
    key: Key, source: Source, public_key: minisign.PublicKey | None
) -> tuple[Record, bytes, bytes | None] | None:
    """Returns a source's record, its bytes and its signature; None where it has none."""
    name = record_name(key.text)
    data = source.read(name, MAX_SIZE)
    if data is None:
        return None
    signed = None
    if public_key is not None:
        signed = source.read(f"{name}{signature.SUFFIX}", _MAX_SMALL)
        comment = signature.trusted_comment(name)
        signature.verify(data, signed, public_key, source.place(name), comment)
    return parse(data, key, source.place(name)), data, signed


def _check_checksum(source: Source, key: Key, sha256: str) -> None:
    """Compares the checksum file, which other programs read, with the record."""
    name = checksum_name(key.text)
    data = source.read(name, _MAX_SMALL)
    if data is not None and first_word(data) != sha256:
        raise wrong_digest(source.place(name), first_word(data), sha256)


def first_word(data: bytes) -> str:
    """Return the digest in a checksum file: its first word, whether or not a name follows."""
    words = data.decode("utf-8", "replace").split()
    return words[0].lower() if words else ""


def check_digest(path: Path, sha256: str, place: str) -> None:
    """Compare a file with its digest.

    Raises:
        PrebuiltError: they differ; names both digests.
    """
    found = sha256_of(path)
    if found != sha256:
        raise wrong_digest(place, found, sha256)


def wrong_digest(place: str, found: str, expected: str) -> PrebuiltError:
    """Return the error for a file that is not the one its record means."""
    return PrebuiltError(
        Finding(
            place,
            f"sha256 {found}",
            f"sha256 {expected}",
            "do not use it: whoever publishes it has to do so anew (qola publish --overwrite); "
            "--no-prebuilt builds",
        ),
        "the prebuilt bundle has a wrong digest",
    )
