"""Builds and publishes bundles; the record is written last."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import minisign

from qola.build.bazel import BuildOptions, own_settings_alone
from qola.build.build import build_all
from qola.build.setup import ResolvedBuild
from qola.build.workspace import set_up
from qola.common.version import docs_url
from qola.prebuilt import signature
from qola.prebuilt.archive import pack_bundle
from qola.prebuilt.key import Key, differences
from qola.prebuilt.record import (
    MAX_SIZE,
    Archive,
    Record,
    parse,
)
from qola.prebuilt.sources import NoDirectoryError, Source, UnreachableError
from qola_base.errors import BundleError, Finding, NoAnswerError, PrebuiltError, QolaError
from qola_base.progress import log
from qola_base.system_errors import disk_error

_NOT_PUBLISHED = "the bundle is not published"


@dataclass(frozen=True)
class Published:
    """The record of a bundle, and whether it was written or already there."""

    record: Record
    written: bool


def build_archive(
    chosen: ResolvedBuild,
    options: BuildOptions,
    environ: Mapping[str, str],
    output: Path,
) -> Archive:
    """Build a bundle without settings outside of its key, and pack it; all modules must build."""
    workspace = set_up(chosen, environ)
    workspace = replace(workspace, bazel=[*workspace.bazel, *own_settings_alone()])
    with workspace.opened():
        built = build_all(workspace, options, environ)
        findings = [
            Finding(f"{chosen.manifest.file}: {name}", words, f"{', '.join(chosen.names)} built")
            for name, words in built.errors.items()
        ]
        if built.bundle is None and not findings:
            findings = [Finding(chosen.manifest.file, built.bundle_error, "a bundle")]
        if findings or built.bundle is None:
            raise BundleError(findings, "only a whole bundle is published")
        log.info(f"packing {output.name}")
        return pack_bundle(built.bundle, output)


def publish(
    key: Key,
    archive: Path,
    packed: Archive,
    target: Source,
    secret_key: minisign.SecretKey | None,
    *,
    overwrite: bool,
) -> Published:
    """Publish a bundle at a target.

    An existing bundle of the same content stays: its record was written last. It is signed if it
    is not yet signed as requested.

    Raises:
        PrebuiltError: the target has another bundle with the same key.
        NoAnswerError: the target refuses the files.
        BundleError: the disk is full.
    """
    name = key.record_name
    there = published(key, target, overwrite=overwrite)
    if there and there.archive.tar_sha256 != packed.tar_sha256:
        raise PrebuiltError(
            Finding(
                target.place(name),
                f"a bundle whose tar file has sha256 {there.archive.tar_sha256}",
                f"sha256 {packed.tar_sha256}: the same inputs give the same bytes",
                "compare the two (diffoscope); qola publish --overwrite replaces it",
            ),
            "another bundle with the same key is there",
        )
    record = there or Record(key, packed, int(time.time()) if overwrite else 0)
    try:
        data = (target.read(name, MAX_SIZE) if there else None) or record.to_json().encode("utf-8")
        if there is None:
            target.write(key.archive_name, archive)
            line = f"{packed.sha256}  {key.archive_name}\n"
            target.write(f"{key.archive_name}.sha256", line.encode("ascii"))
        unsigned = False
        if secret_key is not None:
            # The same key makes the same signature of the same bytes.
            signed, file = signature.sign(data, secret_key, name), f"{name}{signature.SUFFIX}"
            unsigned = target.read(file, MAX_SIZE) != signed
            if unsigned:
                target.write(file, signed)
        if there is None:
            # Last, so that the other files exist when the record does.
            target.write(name, data)
    except UnreachableError as error:
        raise _not_published(target, error) from None
    except OSError as error:
        raise BundleError(disk_error(error).findings, _NOT_PUBLISHED) from None
    return Published(record, written=unsigned or there is None)


def published(key: Key, target: Source, *, overwrite: bool) -> Record | None:
    """Return the record that `target` holds for `key`; None if it has none or `overwrite` is set.

    Raises as `publish`.
    """
    name = key.record_name
    try:
        data = target.read(name, MAX_SIZE)
    except NoDirectoryError:
        return None  # It is made by the first file.
    except UnreachableError as error:
        raise _not_published(target, error) from None
    if data is None or overwrite:
        return None
    return parse(data, key, target.place(name))


def _not_published(target: Source, error: UnreachableError) -> NoAnswerError:
    return NoAnswerError(
        Finding(
            str(target),
            str(error),
            "a directory, or an HTTP server that takes PUT",
            error.hint
            or "QOLA_PREBUILT_TOKEN is sent over https as a bearer token "
            f"({docs_url('guide/prebuilt.md')})",
        ),
        _NOT_PUBLISHED,
    )


def check_same(before: Key, after: Key) -> None:
    """Raise QolaError if the inputs have changed since the build began."""
    if after.digest != before.digest:
        changed = ", ".join(differences(before.inputs, after.inputs))
        raise QolaError(
            Finding(
                before.text,
                f"{changed} changed while it was built: the key is {after.text} now",
                "the same inputs before and after the build",
                "qola publish again",
            ),
            _NOT_PUBLISHED,
        )
