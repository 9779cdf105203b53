"""Finds and verifies the archive of a key in the download cache, then at each source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import minisign

from qola.prebuilt import signature
from qola.prebuilt.key import Key
from qola.prebuilt.record import MAX_SIZE, Record, parse
from qola.prebuilt.sources import DirectorySource, Source, UnreachableError
from qola_base.errors import Finding, NoAnswerError, NoPrebuiltError, PrebuiltError
from qola_base.files import ASIDE, sha256_of, write_if_changed
from qola_base.progress import log

MAX_SMALL = 1 << 16
"""Largest signature or checksum file in bytes."""

_ARRIVED = ".arrived"
CACHE = "the cache of downloads"
"""Prefix of `Found.source` for archives from the download cache."""


@dataclass(frozen=True)
class Found:
    """A verified bundle, whose files have at most `unpacked_size` bytes."""

    archive: Path
    unpacked_size: int
    source: str
    layout: str = "qola"


@dataclass(frozen=True)
class Outcome:
    """Why a source gave no bundle, and a correction. Without an answer, it may still have one."""

    source: str
    words: str
    answered: bool = True
    hint: str = ""


def no_answer(source: Source, error: UnreachableError) -> Outcome:
    """Log and return the outcome of a source that does not answer."""
    if error.hint:
        log.warning(f"{source}: {error}; {error.hint}")
    else:
        log.info(f"{source}: {error}")
    return Outcome(str(source), str(error), answered=False, hint=error.hint)


def find(
    key: Key,
    sources: Sequence[Source],
    cache: Path,
    newest: Path,
    public_key: minisign.PublicKey | None,
    *,
    offline: bool,
) -> Found | list[Outcome]:
    """Return the bundle of a key, or the reason of each source without it.

    The caller locks the download directory of this key.

    Args:
        newest: the file with the serial of the newest known signed record of this key.

    Raises:
        PrebuiltError: a source has a bundle with a wrong digest or signature.
    """
    for pattern in (f"*{_ARRIVED}", f"{ASIDE}*"):
        for left in cache.glob(pattern):  # by a fetch that was killed
            if left.is_file():
                left.unlink(missing_ok=True)
    archive, here = cache / key.archive_name, DirectorySource(cache)
    unusable: PrebuiltError | None = None
    try:
        # The cached copy is verified like a download.
        read = _verified_record(key, here, newest, public_key) if archive.is_file() else None
        if read:
            check_digest(archive, read[0].archive.sha256, str(archive))
            return Found(archive, read[0].archive.unpacked_size, f"{CACHE} ({cache})")
    except PrebuiltError as error:
        # A wrong file of a source is an error, a wrong copy on this machine only a warning.
        log.warning(f"the copy in the cache is not used: {error.findings[0].found}")
        unusable = error
    outcomes = []
    for source in sources:
        if offline and not source.is_local:
            outcomes.append(Outcome(str(source), "not asked: offline"))
            continue
        try:
            taken = _take(key, source, cache, newest, public_key)
            if isinstance(taken, Record):
                return Found(archive, taken.archive.unpacked_size, str(source))
            outcomes.append(Outcome(str(source), taken))
        except UnreachableError as error:
            outcomes.append(no_answer(source, error))
    if offline and unusable:
        raise unusable
    return outcomes


def no_such(key: str, outcomes: Sequence[Outcome]) -> NoPrebuiltError:
    """Return the error for a key that no answering source has."""
    asked = "\n".join(f"{o.source}: {o.words}" for o in outcomes)
    hints = dict.fromkeys(o.hint for o in outcomes if o.hint)
    build = "qola build builds it, qola publish puts it there; --prebuilt URL names a source"
    kind = NoPrebuiltError if all(o.answered for o in outcomes) else NoAnswerError
    return kind(
        Finding(
            key,
            asked or "no source to ask",
            "a prebuilt bundle of just these inputs (qola fetch --explain)",
            "\n".join([*hints, build]),
        )
    )


def _take(
    key: Key, source: Source, cache: Path, newest: Path, public_key: minisign.PublicKey | None
) -> Record | str:
    """Download and verify a source's archive and record; return the reason if it has none."""
    read = _verified_record(key, source, newest, public_key)
    if read is None:
        return "not there"
    record, data, signed = read
    name = key.archive_name
    if not arrive(source, name, cache, record.archive.size, record.archive.sha256):
        return f"a record, but no {name}"
    here = DirectorySource(cache)
    if signed is not None:
        write_if_changed(newest, f"{record.serial}\n")
        here.write(f"{key.record_name}{signature.SUFFIX}", signed)
    here.write(key.record_name, data)
    return record


def arrive(source: Source, name: str, cache: Path, limit: int, sha256: str) -> bool:
    """Download a source's file and check its digest; return whether it exists."""
    arrived = cache / f"{name}{_ARRIVED}"
    try:
        if not source.download(name, arrived, limit):
            return False
        check_digest(arrived, sha256, source.place(name))
        arrived.replace(cache / name)
    finally:
        arrived.unlink(missing_ok=True)
    return True


def _verified_record(
    key: Key, source: Source, newest: Path, public_key: minisign.PublicKey | None
) -> tuple[Record, bytes, bytes | None] | None:
    """Return a source's record, its bytes and its signature; None if it has none."""
    name = key.record_name
    data, place = source.read(name, MAX_SIZE), source.place(name)
    if data is None:
        return None
    if public_key is None:
        return parse(data, key, place), data, None
    signed = source.read(f"{name}{signature.SUFFIX}", MAX_SMALL)
    signature.verify(data, signed, public_key, place, signature.trusted_comment(name))
    record = parse(data, key, place)
    try:
        known = int(newest.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        known = 0
    if record.serial < known:
        raise PrebuiltError(
            Finding(
                place,
                f"a signed record with serial {record.serial}",
                f"serial {known}, which was here before, or a newer one",
                "do not use it: somebody may have put an old bundle back; if whoever publishes it "
                f"says that it is right, delete {newest}",
            ),
            "the prebuilt bundle is older than the one before",
        )
    return record, data, signed


def check_digest(path: Path, sha256: str, place: str) -> None:
    """Compare a file with its digest; raise PrebuiltError with both if they differ."""
    found = sha256_of(path)
    if found != sha256:
        raise PrebuiltError(
            Finding(
                place,
                f"sha256 {found}",
                f"sha256 {sha256}",
                "do not use it: whoever publishes it has to do so anew (qola publish --overwrite); "
                "--no-prebuilt builds",
            ),
            "the prebuilt bundle has a wrong digest",
        )
