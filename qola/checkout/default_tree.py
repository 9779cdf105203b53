"""Finds the AITER tree of a command, and fetches the pinned one into the cache."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from qola.checkout.source import (
    AiterSource,
    LocalSource,
    WheelSource,
    pinned_wheel,
    prepare_tree,
    source_record,
)
from qola.fetch.fetched import FETCHED, record_digest, tree_digest
from qola.fetch.git import TREES
from qola.fetch.pins import RECORD, patch_files, pin_patches
from qola.fetch.wheel import unpack
from qola_base.cache import cache_directory, kept_directory
from qola_base.errors import AiterError, Finding
from qola_base.files import sha256_of, sha256_of_json

RUNFILE = PurePosixPath("aiter/AITER.json")
"""The file of the default tree among the runfiles of //:qola."""


def find_tree(explicit: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the explicit tree, Bazel's tree for //:qola, or the pinned tree in the cache."""
    if explicit is not None:
        return explicit
    return runfile_tree(environ) or pinned_tree(environ)


def tree_of(aiter: AiterSource, environ: Mapping[str, str]) -> Path:
    """Return the tree of a source: the user's directory, or a tree in the cache, fetched once.

    A tree with patches is a copy in the cache. Its name contains a digest of the source (the
    content of a local one) and of the patches.

    Raises:
        QolaError: the source cannot be fetched, a patch does not fit, or the cache is not private.
    """
    source = aiter.source
    patches = patch_files(aiter.patches_dir)
    if isinstance(source, LocalSource) and not patches:
        return source.path
    if isinstance(source, WheelSource) and not patches:
        return runfile_tree(environ) or pinned_tree(environ)
    record = source_record(source, pin_patches(patches))
    complete = FETCHED
    if isinstance(source, LocalSource):
        # A local copy has no digest of a fetch.
        complete = RECORD
        record["tree"] = tree_digest(source.path)
    tree = cache_directory(environ) / TREES / f"aiter-{sha256_of_json(record)[:16]}"
    return kept_directory(
        *(tree, tree / complete, "fetch of AITER"), lambda: prepare_tree(source, tree, patches)
    )


def wheel_tree(wheel: Path, environ: Mapping[str, str]) -> Path:
    """Return the tree of a wheel (.whl) of AITER, unpacked in the cache once.

    Raises:
        AiterError: the file cannot be read, or is not a wheel.
    """
    try:
        name = f"wheel-{sha256_of(wheel)[:16]}"
        tree = cache_directory(environ) / TREES / name

        def make() -> None:
            unpack(wheel, tree)
            record_digest(tree)

        return kept_directory(tree, tree / FETCHED, "unpacking a wheel", make)
    except (OSError, zipfile.BadZipFile) as error:
        finding = Finding(str(wheel), str(error), "a wheel of AITER (.whl)", "name its tree")
        raise AiterError(finding) from None


def pinned_tree(environ: Mapping[str, str]) -> Path:
    """Return the tree of the pinned wheel in the cache; fetch it the first time.

    Raises:
        QolaError: the wheel cannot be fetched, does not match its pin, or the cache is not private.
    """
    tree = kept_tree(environ)

    def make() -> None:
        try:
            prepare_tree(pinned_wheel(), tree)
        except AiterError as error:
            named = Finding(
                "AITER's pinned wheel",
                "no tree in the cache, and it could not be fetched",
                "an index with the wheel, for the first use; or your own tree",
                "--aiter-root DIR names an AITER checkout with its submodules, or an unpacked "
                "wheel",
            )
            raise AiterError((*error.findings, named), error.title) from None

    return kept_directory(tree, tree / FETCHED, "fetch of AITER", make)


def kept_tree(environ: Mapping[str, str]) -> Path:
    """Return the path of the pinned wheel's tree in the cache, which may be absent."""
    source = pinned_wheel()
    name = f"{source.package}-{source.version}-{source.sha256[:16]}"
    return cache_directory(environ) / TREES / name


def runfile_tree(environ: Mapping[str, str]) -> Path | None:
    """Return the tree among the runfiles, None if Bazel did not start this Python."""
    folder = Path(environ["RUNFILES_DIR"]) if environ.get("RUNFILES_DIR") else None
    mapping = folder / "_repo_mapping" if folder else None
    if folder is None or mapping is None or not mapping.is_file():
        return None
    # Of each repository, the names that it uses for others: SOURCE,NAME,DIRECTORY.
    lines = [line.split(",") for line in mapping.read_text(encoding="utf-8").splitlines()]
    rows = [line for line in lines if len(line) == 3]
    files = [folder / row[2] / RUNFILE.name for row in rows if row[1] == RUNFILE.parent.name]
    # The runfile is a link to a file in the root of the tree.
    return next((file.resolve().parent for file in files if file.is_file()), None)
