"""TransformerEngine's own prebuilt archives, with a weaker key and another layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from qola.checkout.source import AiterSource, GitSource
from qola.fetch.git import CheckoutHead, read_head
from qola.fetch.pins import pinned_id
from qola.prebuilt.record import MAX_ARCHIVE
from qola.prebuilt.sources import DirectorySource, Source, UnreachableError
from qola.prebuilt.store import MAX_SMALL, Found, Outcome, arrive, check_digest, no_answer
from qola_base.files import sha256_of
from qola_base.progress import log

LAYOUT = "transformer-engine"
_CHECKSUM = ".sha256"


def commit_of(source: AiterSource) -> CheckoutHead:
    """Return AITER's full commit, or the reason why it is unknown."""
    if isinstance(source.source, GitSource):
        return CheckoutHead(source.source.commit)
    root = source.root
    known = pinned_id(root) if root else ""
    head = read_head(root) if root and not known else CheckoutHead(known)
    if re.fullmatch("[0-9a-f]{40}", head.commit):
        return head
    return CheckoutHead(problem=head.problem or "no full commit of AITER is known")


def names(rocm: str, commit: str) -> tuple[str, ...]:
    """Return the possible names of an archive, without suffix, in search order."""
    parts = rocm.split(".")
    versions = dict.fromkeys((parts[0], ".".join(parts[:2])))
    return tuple(f"rocm-{version}_aiter-{commit}" for version in versions)


def find(
    source: Source, rocm: str, commit: str, cache: Path, *, offline: bool
) -> Found | list[Outcome]:
    """Return an archive of TransformerEngine, or the reasons why there is none.

    An earlier download is used if it still has the source's digest or, offline, the digest from
    the download. The caller locks the cache.

    Raises:
        PrebuiltError: the archive differs from its checksum.
    """
    outcomes: list[Outcome] = []
    for name in names(rocm, commit):
        file = f"{name}.tar.gz"
        try:
            if offline and not source.is_local:
                found = _cached(file, cache)
            else:
                found = _download(source, file, cache)
        except UnreachableError as error:
            return [*outcomes, no_answer(source, error)]
        if isinstance(found, Found):
            log.warning(
                f"warning: {found.source} is TransformerEngine's own prebuilt: its name does not "
                "cover archs, patches, edits of the tree, receipts and all else of the manifest, "
                "compiler flags, the compiler and its version, the version of qola"
            )
            return found
        outcomes.append(Outcome(source.place(file), found))
    return outcomes


def _cached(file: str, cache: Path) -> Found | str:
    """Return an earlier download of an archive, or the reason not to use it."""
    sha256 = DirectorySource(cache).read(f"{file}{_CHECKSUM}", MAX_SMALL)
    if sha256 is None or not (cache / file).is_file():
        return "not asked: offline"
    check_digest(cache / file, _first_word(sha256), str(cache / file))
    return Found(cache / file, MAX_ARCHIVE, str(cache / file), LAYOUT)


def _download(source: Source, file: str, cache: Path) -> Found | str:
    """Return an archive of a source, downloaded if necessary, or the reason why it has none."""
    sha256 = source.read(f"{file}{_CHECKSUM}", MAX_SMALL)
    if sha256 is None:
        return f"no {_CHECKSUM} there"
    archive, digest = cache / file, _first_word(sha256)
    current = archive.is_file() and sha256_of(archive) == digest
    if not current and not arrive(source, file, cache, MAX_ARCHIVE, digest):
        return "not there"
    DirectorySource(cache).write(f"{file}{_CHECKSUM}", sha256)
    return Found(archive, MAX_ARCHIVE, source.place(file), LAYOUT)


def _first_word(data: bytes) -> str:
    """Return the digest in a checksum file; raise UnreachableError if it is another file."""
    words = data[:100].decode("utf-8", "replace").split()
    if not words or not re.fullmatch("[0-9a-fA-F]{64}", words[0]):
        raise UnreachableError(f"no digest in its {_CHECKSUM}")
    return words[0].lower()


def without_top(files: Sequence[str]) -> dict[str, str]:
    """Map paths in an archive to installed paths.

    TransformerEngine packs one directory, and its CMake strips that directory's name.
    """
    tops = {file.partition("/")[0] for file in files}
    nested = len(tops) == 1 and all("/" in file for file in files)
    return {file: file.partition("/")[2] if nested else file for file in files}
