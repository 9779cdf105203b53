"""The AITER source of a build: its choice, its tag for MODULE.bazel, and its tree on disk.

A tree is fetched, verified, patched and recorded in a directory.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from qola.aiter.tree import read_tree
from qola.checkout.request import AiterOptions, AiterRequest, aiter_request, default_aiter_root
from qola.common import starlark
from qola.common.ruleset import ruleset_root
from qola.fetch.fetched import FETCHED, record_digest
from qola.fetch.git import check_commit, fetch_commit, resolve_commit
from qola.fetch.patches import apply_patches
from qola.fetch.pins import (
    RECORD,
    PatchPin,
    TreeRecord,
    patch_files,
    patches_of,
    pin_patches,
    read_record,
    recorded_patches,
)
from qola.fetch.wheel import pip_download, read_pin, unpack, verify
from qola.manifest.types import Manifest
from qola_base.errors import AiterError, Finding
from qola_base.files import write_if_changed
from qola_base.progress import log
from qola_base.system_errors import disk_error


class _Source:
    """Where AITER comes from: `kind` is the end of its tag's name, and its name in records."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, str]:
        """Return the form in tags, AITER.json and keys of prebuilt bundles."""
        return {name: str(value) for name, value in sorted(vars(self).items())}


@dataclass(frozen=True)
class WheelSource(_Source):
    """AITER's wheel: exact version, and sha256 of the file (64 hexadecimal digits)."""

    kind = "wheel"
    version: str
    sha256: str
    package: str = "amd-aiter"

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"


@dataclass(frozen=True)
class GitSource(_Source):
    """A commit (40 hexadecimal digits) of a repository, with its submodules."""

    kind = "git"
    remote: str
    commit: str

    def __str__(self) -> str:
        return f"commit {self.commit} of {self.remote}"


@dataclass(frozen=True)
class LocalSource(_Source):
    """A tree on this machine: a checkout with its submodules, or an unpacked wheel."""

    kind = "local"
    path: Path

    def __str__(self) -> str:
        return str(self.path)


Source = WheelSource | GitSource | LocalSource


@dataclass(frozen=True)
class AiterSource:
    """The source of a build, and the folder of patches for a copy of it."""

    source: Source
    patches_dir: Path | None = None

    @property
    def root(self) -> Path | None:
        """The directory on this machine, None if Bazel fetches the source."""
        return self.source.path if isinstance(self.source, LocalSource) else None

    def to_starlark(self) -> str:
        """Return the tag of the module extension."""
        attributes = self.source.to_json()
        if self.patches_dir is not None:
            attributes["patches_dir"] = str(self.patches_dir)
        return starlark.rule(f"qola.aiter_{self.source.kind}", **attributes)

    def describe(self) -> str:
        """Return a short description for messages."""
        return f"{self.source}, patched" if self.patches_dir else str(self.source)


def pinned_wheel() -> WheelSource:
    """Return AITER's wheel that qola pins."""
    pin, _ = read_pin(ruleset_root())
    return WheelSource(**pin)


def pinned_source(request: AiterRequest) -> Source:
    """Return the source to fetch: the commit, or the pinned wheel."""
    commit, wheel = request.commit, pinned_wheel()
    if commit is None or commit.removeprefix("v") == wheel.version:
        return wheel
    return GitSource(request.remote, resolve_commit(request.remote, commit))


def use_as_is(root: Path) -> AiterSource:
    """Return a tree as the source, without patches; AiterError if it is not an AITER tree."""
    if not (root / "aiter" / "jit" / "optCompilerConfig.json").is_file():
        raise AiterError(
            Finding(
                str(root),
                "no aiter/jit/optCompilerConfig.json" if root.is_dir() else "no such directory",
                "an AITER checkout with its submodules, or an unpacked amd-aiter wheel",
                f"qola checkout --aiter-root {root} makes one",
            )
        )
    return AiterSource(LocalSource(root))


def checkout(request: AiterRequest, root: Path) -> Path:
    """Prepare the patched tree of a request in a directory, instead of the request's root."""
    patches = patch_files(request.patches_dir)
    return prepare_tree(pinned_source(request), root, patches, replace_existing=True)


def choose(request: AiterRequest) -> AiterSource:
    """Return the source of a build; prepare the tree in request.root if it is absent.

    The user's own tree (without AITER.json) is never changed: patches apply to a copy.

    Raises:
        AiterError: a commit is requested of the user's own tree, or a prepared tree has other
            patches than the request.
    """
    root = request.root
    if root is None:
        return AiterSource(pinned_source(request), request.patches_dir)
    there = root.is_dir() and any(root.iterdir())
    prepared = (root / RECORD).is_file()
    if not there or (prepared and request.commit):
        return use_as_is(checkout(request, root))
    if request.commit_asked and not prepared:
        raise AiterError(
            Finding(
                "--aiter-commit",
                f"{request.commit}, for the tree in {root}, which qola did not prepare",
                "a directory that is new, empty, or made by qola checkout: qola never resets "
                "your own tree",
                f"git -C {root} checkout {request.commit}, and leave --aiter-commit out",
            )
        )
    source = use_as_is(root)
    if not prepared:
        return AiterSource(source.source, request.patches_dir)
    pins = pin_patches(patch_files(request.patches_dir))
    applied = recorded_patches(root)
    if applied != pins:
        option = f" --patches-dir {request.patches_dir}" if request.patches_dir else ""
        raise AiterError(
            Finding(
                str(root),
                f"a tree that qola prepared with {_names(applied)}",
                f"with {_names(pins)}, as requested",
                f"qola checkout --aiter-root {root}{option} (with the --manifest or --aiter-commit "
                "of the build) makes it again; --skip-checkout builds the tree unchanged",
            ),
            "the AITER tree has other patches",
        )
    return source


def choose_for(
    manifest: Manifest, folder: Path, options: AiterOptions, environ: Mapping[str, str]
) -> tuple[AiterSource, bool]:
    """Return the source of a manifest's build, and whether it overrides the manifest's commit.

    Args:
        folder: the manifest's, for its patches_dir.
    """
    request = aiter_request(manifest, folder, options)
    if options.skip_checkout:
        return use_as_is(request.root or default_aiter_root(environ)), True
    # The command line overrides the manifest; patches_dir is part of the source.
    named = request.commit_asked and manifest.aiter_commit not in (None, request.commit)
    return choose(request), named or manifest.patches_dir is not None


def _names(pins: Sequence[PatchPin]) -> str:
    return ", ".join(f"{pin.name} ({pin.sha256[:12]})" for pin in pins) or "no patches"


def source_record(source: Source, patches: Sequence[PatchPin]) -> TreeRecord:
    """Return the content of a tree's AITER.json: kind, pin and patches in the order applied.

    A copy of a tree with an AITER.json keeps its pin and patches; an invalid one is an AiterError.
    """
    pins = [pin.to_json() for pin in patches]
    if isinstance(source, LocalSource):
        known = _read_record(source.path)
        pins = [*known.get("patches", ()), *pins]
        return {**known, "kind": source.kind, "patches": pins}
    return {**source.to_json(), "kind": source.kind, "patches": pins}


def prepare_tree(
    source: Source, directory: Path, patches: Sequence[Path] = (), *, replace_existing: bool = False
) -> Path:
    """Prepare a patched AITER tree in `directory`, completely or not at all.

    It consists of regular files, which may be edited. Its AITER.json records the source, which a
    plan compares with a manifest's patches_dir and aiter_commit.

    Args:
        directory: absent, empty, or a prepared tree; its parents are created. A tree of the same
            pinned source and patches is reused without a fetch.
        replace_existing: replace another prepared tree (one with an AITER.json) in `directory`.
            Other content is never deleted.

    Raises:
        AiterError: `directory` has other content, the fetch failed or does not match the pin, a
            patch does not fit (with the rejected hunk), or the result is not an AITER tree.
    """
    record = source_record(source, pin_patches(patches))
    if _is_there(directory, source, record, replace_existing):
        log.info(f"{directory} is prepared already")
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{directory.name}.", dir=directory.parent
    ) as temporary:
        tree = Path(temporary) / "tree"
        tree.mkdir()
        _fill(source, tree, Path(temporary))
        if patches:
            log.info(f"applying {len(patches)} patch{'es' if len(patches) > 1 else ''}")
            apply_patches(tree, patches)
        try:
            read_tree(tree)
        except AiterError as error:
            # The temporary directory no longer exists when a user reads this.
            raise AiterError(
                [replace(f, place=str(source)) for f in error.findings], error.title
            ) from None
        write_if_changed(tree / RECORD, json.dumps(record, sort_keys=True) + "\n")
        if not isinstance(source, LocalSource):
            record_digest(tree)
        _move_into_place(tree, directory, Path(temporary) / "old")
    return directory


def _move_into_place(tree: Path, directory: Path, aside: Path) -> None:
    """Rename a tree to `directory`; move existing content aside, and back on any failure."""
    there = directory.exists()
    if there:
        # A directory that is not empty cannot be replaced by a rename.
        directory.rename(aside)
    try:
        tree.rename(directory)
    except BaseException:
        if there:
            aside.rename(directory)
        raise


def _is_there(directory: Path, source: Source, record: TreeRecord, replacing: bool) -> bool:
    """Return whether a directory already has the tree; AiterError for content that must stay."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return False
    known: TreeRecord = {}
    with suppress(AiterError):
        known = _read_record(directory)
    # A local source has no pin: a copy of it may be out of date.
    same = known == record and not isinstance(source, LocalSource)
    # A tree without a recorded digest is prepared again: answers about it cannot be cached.
    if same and (directory / FETCHED).is_file():
        return True
    if same or (known and replacing):
        return False
    raise AiterError(
        Finding(
            str(directory),
            "another AITER tree" if known else "something that is not a prepared AITER tree",
            "a new or empty directory",
            "name another directory, or delete this one",
        ),
        "the AITER tree cannot be prepared",
    )


def _fill(source: Source, tree: Path, temporary: Path) -> None:
    name = str(source)
    if isinstance(source, WheelSource):
        log.info(f"fetching {name}")
        (temporary / "wheel").mkdir()
        wheel = pip_download(source.package, source.version, temporary / "wheel")
        verify(wheel, source.sha256, name)
        unpack(wheel, tree)
    elif isinstance(source, GitSource):
        check_commit(source.commit, name)
        log.info(f"fetching {name} with its submodules")
        fetch_commit(source.remote, source.commit, tree, name)
    else:
        read_tree(source.path)  # a check before a large copy
        log.info(f"copying {name}")
        try:
            shutil.copytree(
                source.path,
                tree,
                # Regular files: patches and edits must not reach the user's tree through links.
                symlinks=False,
                ignore=shutil.ignore_patterns(".git", "__pycache__", RECORD, FETCHED),
                dirs_exist_ok=True,
            )
        except (OSError, shutil.Error) as error:
            raise AiterError(_not_copied(error)) from None


def _not_copied(error: OSError) -> Finding:
    """Return the first failure of a copy: on a full disk all later files fail too."""
    if not isinstance(error, shutil.Error):
        return disk_error(error).findings[0]
    source, target, words = error.args[0][0]
    return Finding(
        str(target),
        str(words),
        f"{source}, readable, and enough free space",
        "df -h and df -i of the directory show used space and inodes",
    )


def _read_record(tree: Path) -> TreeRecord:
    """Return the content of a tree's AITER.json; {} for a tree without one."""
    record = read_record(tree)
    if record is None or (record and "kind" not in record) or patches_of(record) is None:
        found = "not an object with a kind, and patches with names and digests"
        raise AiterError(Finding(str(tree / RECORD), found, "JSON, as qola writes it"))
    return record
