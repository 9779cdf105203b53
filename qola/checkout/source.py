"""Chooses the AITER source of a build, and writes its tag for MODULE.bazel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qola.checkout.prepare import GitSource, LocalSource, Source, WheelSource, prepare_tree
from qola.checkout.request import AiterRequest, default_aiter_root
from qola.common import starlark
from qola.fetch.git import resolve_commit
from qola.fetch.pins import RECORD, PatchPin, patch_files, pin_patches, recorded_patches
from qola.manifest.types import Manifest
from qola_base.errors import AiterError, Finding


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
        tags = {WheelSource: "aiter_wheel", GitSource: "aiter_git", LocalSource: "aiter_local"}
        return starlark.rule(f"qola.{tags[type(self.source)]}", **attributes)

    def describe(self) -> str:
        """Return a short description for messages."""
        return f"{self.source}, patched" if self.patches_dir else str(self.source)


def pinned_source(request: AiterRequest) -> Source:
    """Return the source to fetch: the commit, or the pinned wheel."""
    commit = request.commit
    if commit is None or commit.removeprefix("v") == request.pin["version"]:
        return WheelSource(**request.pin)
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
    patches = patch_files(request.patches_dir) if request.patches_dir else ()
    source = pinned_source(request)
    return prepare_tree(source, root, patches, replace_existing=True)


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
    pins = pin_patches(patch_files(request.patches_dir)) if request.patches_dir else ()
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
    manifest: Manifest, request: AiterRequest, environ: Mapping[str, str], *, skip_checkout: bool
) -> tuple[AiterSource, bool]:
    """Return the source of a manifest's build, and whether it overrides the manifest's commit.

    Args:
        skip_checkout: use the tree in request.root unchanged.
    """
    if skip_checkout:
        return use_as_is(request.root or default_aiter_root(environ)), True
    # The command line overrides the manifest; patches_dir is part of the source.
    named = request.commit_asked and manifest.aiter_commit not in (None, request.commit)
    return choose(request), named or manifest.patches_dir is not None


def _names(pins: tuple[PatchPin, ...]) -> str:
    return ", ".join(f"{pin.name} ({pin.sha256[:12]})" for pin in pins) or "no patches"
