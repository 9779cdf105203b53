"""Chooses the AITER source of a build, and says it in MODULE.bazel's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qola import starlark
from qola.checkout.commits import resolve_commit
from qola.checkout.prepare import GitSource, LocalSource, Source, WheelSource, prepare_tree
from qola.checkout.request import AiterRequest, default_aiter_root
from qola.errors import AiterError, Finding
from qola.fetch.pins import RECORD, PatchPin, patch_files, pin_patches, recorded_patches
from qola.manifest.types import Manifest


@dataclass(frozen=True)
class AiterSource:
    """The source of a build, and the folder of patches to apply to a copy of it."""

    source: Source
    patches_dir: Path | None = None

    @property
    def root(self) -> Path | None:
        """The directory on this machine, None where Bazel fetches."""
        return self.source.path if isinstance(self.source, LocalSource) else None

    def to_starlark(self) -> str:
        """Return the tag of the module extension."""
        attributes = self.source.to_json()
        if self.patches_dir is not None:
            attributes["patches_dir"] = str(self.patches_dir)
        tags = {WheelSource: "aiter_wheel", GitSource: "aiter_git", LocalSource: "aiter_local"}
        return starlark.rule(f"qola.{tags[type(self.source)]}", **attributes)

    def describe(self) -> str:
        """Return the source in a few words, for people."""
        if isinstance(self.source, WheelSource):
            words = f"{self.source.package} {self.source.version}"
        elif isinstance(self.source, GitSource):
            words = f"{self.source.remote} {self.source.commit}"
        else:
            words = str(self.source.path)
        return f"{words}, patched" if self.patches_dir else words


def pinned_source(request: AiterRequest) -> Source:
    """Return what to fetch: the commit, or the pinned wheel.

    Raises:
        AiterError: there is no such commit.
    """
    commit = request.commit
    if commit is None or commit.removeprefix("v") == request.pin["version"]:
        return WheelSource(**request.pin)
    return GitSource(request.remote, resolve_commit(request.remote, commit))


def use_as_is(root: Path) -> AiterSource:
    """Return a tree as the source, without patches.

    Raises:
        AiterError: it is no AITER tree.
    """
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
    """Make a directory the patched tree that a request means, whatever root the request has.

    Raises:
        AiterError: the directory is neither absent nor empty nor a tree that was made this way, the
            fetch failed, or a patch does not fit.
    """
    patches = patch_files(request.patches_dir) if request.patches_dir else ()
    source = pinned_source(request)
    return prepare_tree(source, root, patches, replace_existing=True)


def choose(request: AiterRequest) -> AiterSource:
    """Return the source of a build, preparing the tree in request.root where there is none.

    A tree of the user's own (without AITER.json) is read and never changed: patches apply to a
    copy.

    Raises:
        AiterError: as `checkout`; another commit is asked of a tree of the user's own; or a tree
            that qola prepared has other patches than are asked for.
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
                f"{request.commit}, of the tree in {root}, which qola has not made",
                "a directory that is new, empty, or made by qola checkout: a tree of your own "
                "is never reset",
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
                f"with {_names(pins)}: this is what is asked for",
                f"qola checkout --aiter-root {root}{option} (with the --manifest or --aiter-commit "
                "of the build) makes it anew; --skip-checkout builds the tree as it is",
            ),
            "the AITER tree has other patches",
        )
    return source


def choose_for(
    manifest: Manifest,
    request: AiterRequest,
    environ: Mapping[str, str],
    *,
    skip_checkout: bool,
) -> tuple[AiterSource, bool]:
    """Return the source that a manifest is built from, and whether it overrides the manifest.

    Args:
        skip_checkout: use the tree in request.root as it is.

    Raises:
        AiterError: as `choose`.
        QolaError: another user may have written the default tree.
    """
    if skip_checkout:
        return use_as_is(request.root or default_aiter_root(environ)), True
    # What the command line names wins over the manifest; patches_dir is part of the source.
    named = request.commit_asked and manifest.aiter_commit not in (None, request.commit)
    return choose(request), named or manifest.patches_dir is not None


def _names(pins: tuple[PatchPin, ...]) -> str:
    return ", ".join(f"{pin.name} ({pin.sha256[:12]})" for pin in pins) or "no patches"
