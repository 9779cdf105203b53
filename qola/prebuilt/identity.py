"""Computes keys from files: qola's ruleset, AITER, its patches and the compiling ROCm."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.build import workspace
from qola.build.setup import ResolvedBuild
from qola.checkout.source import GitSource, Source, WheelSource
from qola.common.packages import find_sources
from qola.common.ruleset import ruleset_root
from qola.fetch.digest import tree_digest
from qola.fetch.pins import patch_files, pin_patches
from qola.plan.triton_kernels import triton_files
from qola.prebuilt.key import Key, settings_of
from qola_base.cache import cache_directory, distrust
from qola_base.errors import Finding, ToolchainError
from qola_base.files import sha256_of, sha256_of_text
from qola_base.json_types import WrongValueError, parse_json, reader

_FILES = (
    *(".bazelversion", "BUILD.bazel", "LICENSE", "MODULE.bazel"),
    # Unpacks the compiler's packages.
    "tools/setup/unpack_packages.sh",
)
_DIRECTORIES = ("runtime", "rules", "third_party")
_PROGRAMS = ("repository", "bundle.__main__", "lazy.__main__")
"""Programs that plan or run in build actions."""

_WITHOUT_EFFECT = (
    *("rules/layers.bzl", "runtime/tests/", "third_party/debian/", "third_party/npm/"),
)
"""Layers, tests, and packages of Bazel and of linters."""

ROCM_VARIABLE = "QOLA_ROCM"
_REPO_ENV = f"--repo_env={ROCM_VARIABLE}="
_LOCK = ("third_party/rocm/packages.lock", "third_party/rocm/sdk.json")


def ruleset_digest(root: Path) -> str:
    """Return the digest of the files that plan and build.

    A checkout and its pip installation have the same digest.
    """
    digest = hashlib.sha256()
    for name, path in ruleset_files(root).items():
        if path.is_file():
            content = sha256_of(path)
        else:
            content = sha256_of_text(f"link to {os.readlink(path)}")
        digest.update(f"{content}  {name}\n".encode())
    return digest.hexdigest()


def ruleset_files(root: Path) -> dict[str, Path]:
    """Return the files that plan and build, by their paths below the ruleset's root."""
    files = [root / name for name in _FILES]
    files += find_sources(*(f"qola.{name}" for name in _PROGRAMS), root=root)
    for directory in _DIRECTORIES:
        files += _files_below(root / directory)
    files = [path for path in files if path.is_file() or path.is_symlink()]
    named = {path.relative_to(root).as_posix(): path for path in files}
    return {n: p for n, p in sorted(named.items()) if not n.startswith(_WITHOUT_EFFECT)}


def _files_below(directory: Path) -> Iterator[Path]:
    """Yield the files of a tree, and links to directories that were yielded before."""
    seen = {os.path.realpath(directory)}
    for place, directories, files in os.walk(directory, followlinks=True):
        followed: list[str] = []
        # Links can form a cycle.
        links: list[str] = []
        for name in sorted(directories):
            real = os.path.realpath(os.path.join(place, name))
            (links if real in seen else followed).append(name)
            seen.add(real)
        directories[:] = followed
        yield from (Path(place, name) for name in (*files, *links) if not name.endswith(".pyc"))


def key_of(chosen: ResolvedBuild, rocm: Mapping[str, str], bazel_args: Sequence[str] = ()) -> Key:
    """Return the key of a build's bundle. No other function makes keys.

    Raises:
        NoPrebuiltError: an argument of Bazel refers to a file that the key does not cover.
        ManifestError: a file of a kernel in Triton cannot be read.
    """
    manifest, aiter = chosen.manifest, chosen.aiter
    mode = chosen.spec.mode
    modes = {module.name: manifest.module_mode(module, mode) for module in chosen.modules}
    patches = pin_patches(patch_files(aiter.patches_dir)) if aiter.patches_dir else ()
    triton = None
    if chosen.triton:
        texts = triton_files(manifest, chosen.file)
        triton = {name: sha256_of_text(text) for name, text in texts.items()}
    return Key(
        name=workspace.repository_name(chosen.file),
        ruleset=ruleset_digest(ruleset_root()),
        manifest=manifest.to_json(),
        modes=modes,
        archs=tuple(sorted(set(chosen.spec.archs or manifest.archs))),
        aiter={**source_identity(aiter.source), "patches": [pin.to_json() for pin in patches]},
        rocm=rocm,
        forms=chosen.forms.to_json(),
        settings=settings_of(bazel_args),
        triton=triton,
    )


def source_identity(source: Source) -> dict[str, str]:
    """Identify an AITER independent of its origin: a commit has no remote here."""
    if isinstance(source, WheelSource):
        return {"kind": "wheel", **source.to_json()}
    if isinstance(source, GitSource):
        return {"kind": "git", "commit": source.commit}
    return {"kind": "local", "sha256": tree_digest(source.path)}


def rocm_identity(
    root: Path, environ: Mapping[str, str], bazel_args: Sequence[str], ask: Callable[[], Path]
) -> dict[str, str]:
    """Identify the compiling ROCm; `ask` runs Bazel for rocm.json unless it is pinned."""
    asked = environ.get(ROCM_VARIABLE, "")
    for arg in bazel_args:
        if arg.startswith(_REPO_ENV):
            asked = arg.removeprefix(_REPO_ENV)
    if asked in ("", "pinned"):
        return pinned_rocm(root, environ)
    return detected_rocm(ask(), root, environ)


def detected_rocm(file: Path, root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Identify the ROCm of a rocm.json, made by rocm/repositories.bzl; raise if there is none."""
    found = json.loads(file.read_text(encoding="utf-8"))
    if found["origin"] in ("pinned", "offered"):
        return pinned_rocm(root, environ)
    if not found["identity"]:
        raise ToolchainError(
            Finding(
                ROCM_VARIABLE,
                "no ROCm where it is looked for",
                "a ROCm installation: which one is part of a prebuilt bundle's key",
                f"unset {ROCM_VARIABLE}, or {ROCM_VARIABLE}=/opt/rocm",
            )
        )
    keys = ("origin", "rocm_version", "hip_version", "clang_version", "identity")
    return {key: found[key] for key in keys}


def pinned_rocm(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Identify the pinned ROCm by the digests of its packages.

    If bazelw could not get them and resolved others, these are used.
    """
    lock, facts = (root / name for name in _LOCK)
    time = re.search(r"^# snapshot: (\S+)$", lock.read_text(encoding="utf-8"), re.MULTILINE)
    name = f"third_party-rocm-{time[1] if time else 'none'}"
    offered = cache_directory(environ) / "offered" / name
    # Like the rule, which reads no files that another user could have written.
    if (offered / lock.name).is_file() and not distrust(offered):
        lock, facts = offered / lock.name, offered / facts.name
    identity = sha256_of_text(f"{sha256_of(lock)}\n{sha256_of(facts)}")
    return {"origin": "pinned", **vars(_read_sdk(facts)), "identity": identity}


@dataclass(frozen=True)
class _Sdk:
    """The versions in an sdk.json."""

    rocm_version: str
    hip_version: str
    clang_version: str


def _read_sdk(facts: Path) -> _Sdk:
    try:
        versions: _Sdk = reader(_Sdk)(parse_json(facts.read_bytes()))
    except (OSError, WrongValueError) as error:
        found, expected = str(error), "the versions of the packages, which bazelw writes"
        fix = f"rm -r {shlex.quote(str(facts.parent))}, and ./bazelw makes it again"
        raise ToolchainError(Finding(str(facts), found, expected, fix)) from None
    return versions
