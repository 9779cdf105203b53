"""The key of a prebuilt bundle: a digest of everything that determines its bytes.

It is computed from files: qola's ruleset, AITER, its patches and the compiling ROCm.
"""

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
from qola.common.version import __version__
from qola.fetch.fetched import tree_digest
from qola.fetch.pins import patch_files, pin_patches
from qola.plan.triton_kernels import triton_files
from qola_base.cache import cache_directory, distrust
from qola_base.errors import Finding, NoPrebuiltError, ToolchainError
from qola_base.files import sha256_of, sha256_of_json, sha256_of_text
from qola_base.json_types import JsonObject, JsonValue, WrongValueError, parse_json, reader

SCHEMA = 1
"""Version of a key's inputs and of the record of an archive."""

_SETTINGS_WITHOUT_EFFECT = (
    # Caches and the place of execution do not change results.
    *("--remote_", "--experimental_remote_", "--disk_cache=", "--experimental_disk_cache"),
    *("--credential_helper", "--experimental_credential_helper", "--tls_", "--grpc_"),
    *("--spawn_strategy=", "--strategy=", "--repository_cache=", "--google_"),
    # Parallelism and output.
    *("--jobs=", "-j", "--local_resources=", "--local_cpu_resources=", "--local_ram_resources="),
    *("--keep_going", "--nokeep_going", "--verbose_failures", "--noverbose_failures"),
    *("--color=", "--curses=", "--show_", "--noshow_", "--ui_", "--subcommands", "--profile="),
    *("--build_event_", "--execution_log_", "--bes_", "--announce_rc", "--experimental_ui_"),
    # Origin of the compiler, which the key has as `rocm`, and of qola's Python.
    *("--repo_env=QOLA_ROCM=", "--repo_env=QOLA_PYTHON=", "--repo_env=PIP_"),
)

_ELSEWHERE = (
    # A .bazelrc of the user, or a directory: the arguments do not contain their content.
    *("--config", "--override_", "--inject_repository", "--registry", "--flagfile"),
)

_FILES = (
    *(".bazelversion", "BUILD.bazel", "LICENSE", "MODULE.bazel"),
    # Unpacks the compiler's packages.
    "tools/setup/unpack_packages.sh",
)
_DIRECTORIES = ("runtime", "rules", "rules_hip", "third_party")
_PROGRAMS = ("repository", "bundle.__main__", "lazy.__main__")
"""Programs that plan or run in build actions."""

_FILES_WITHOUT_EFFECT = (
    *("rules/layers.bzl", "runtime/tests/", "third_party/debian/", "third_party/npm/"),
    *("rules_hip/README.md", "rules_hip/examples/"),
    *("rules_hip/gfxemu/", "rules_hip/qola_base/", "rules_hip/third_party/", "rules_hip/tools/"),
)
"""Layers, tests, packages of Bazel and of linters, examples, and links to other directories."""

ROCM_VARIABLE = "QOLA_ROCM"
_REPO_ENV = f"--repo_env={ROCM_VARIABLE}="
_LOCK = ("third_party/rocm/packages.lock", "third_party/rocm/sdk.json")


@dataclass(frozen=True)
class Key:
    """Everything that determines a bundle's bytes. The plan follows from it, and is not included.

    Attributes:
        ruleset: digest of the files that plan and build.
        manifest: content of the manifest, without the sources of prebuilt bundles.
        modes: modules in the bundle, each with its build mode.
        aiter: identity of the AITER source, in which Composable Kernel lies, and its patches.
        settings: arguments of Bazel, as `settings_of` returns them.
        triton: digests of the manifest's own Python files of kernels in Triton, by path; None if
            the bundle has none. The manifest pins files of a commit; the ruleset pins qola's
            kernels and Triton.
    """

    name: str
    ruleset: str
    manifest: Mapping[str, JsonValue]
    modes: Mapping[str, str]
    archs: tuple[str, ...]
    aiter: Mapping[str, JsonValue]
    rocm: Mapping[str, str]
    forms: Mapping[str, bool]
    settings: tuple[str, ...] = ()
    triton: Mapping[str, str] | None = None
    version: str = __version__

    @property
    def inputs(self) -> JsonObject:
        """The inputs as JSON values."""
        return {
            "schema": SCHEMA,
            "qola": {"version": self.version, "ruleset": self.ruleset},
            "manifest": {"name": self.name, "content": self.manifest},
            "modules": [{"name": name, "mode": mode} for name, mode in self.modes.items()],
            "archs": list(self.archs),
            "aiter": self.aiter,
            "rocm": self.rocm,
            "forms": self.forms,
            "settings": list(self.settings),
            **({} if self.triton is None else {"triton": self.triton}),
        }

    @property
    def digest(self) -> str:
        """64 hexadecimal digits: sha256 of the inputs as canonical JSON."""
        return sha256_of_json(self.inputs)

    @property
    def text(self) -> str:
        """The key as files are named: te-rocm7.2-gfx950-0123456789ab."""
        version = ".".join(self.rocm["rocm_version"].split(".")[:2])
        return f"{self.name}-rocm{version}-{'-'.join(self.archs)}-{self.digest[:12]}"

    @property
    def archive_name(self) -> str:
        """The file name of the bundle's archive."""
        return f"{self.text}.tar.gz"

    @property
    def record_name(self) -> str:
        """The file name of the archive's record."""
        return f"{self.text}.manifest.json"


def joined(bazel_args: Sequence[str]) -> tuple[str, ...]:
    """Return arguments of Bazel, with separate values joined to their options by ``=``."""
    found: list[str] = []
    for arg in bazel_args:
        if found and not arg.startswith("-"):
            found[-1] += f"={arg}"
        else:
            found.append(arg)
    return tuple(found)


def settings_of(bazel_args: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of Bazel that may change the built files, in order, as `joined`.

    Unknown arguments are included: at worst, they cause a miss.

    Raises:
        NoPrebuiltError: an argument refers to content that the key does not cover.
    """
    kept = [arg for arg in joined(bazel_args) if not arg.startswith(_SETTINGS_WITHOUT_EFFECT)]
    for arg in kept:
        inherits = arg.startswith(("--action_env=", "--host_action_env=", "--repo_env="))
        if arg.startswith(_ELSEWHERE) or (inherits and arg.count("=") == 1):
            raise NoPrebuiltError(
                Finding(
                    "--bazel-arg",
                    f"{arg}, whose meaning lies elsewhere",
                    "arguments that say in themselves what they do: a key is made of their words",
                    "write out what it stands for, or build with --no-prebuilt",
                )
            )
    return tuple(kept)


def differences(one: object, other: object, path: str = "") -> list[str]:
    """Return the paths at which two JSON values differ, such as ``aiter.patches``."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        found: list[str] = []
        for name in sorted({*one, *other}):
            below = f"{path}.{name}".lstrip(".")
            found += differences(one.get(name), other.get(name), below)
        return found
    return [] if one == other else [path]


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
    return {n: p for n, p in sorted(named.items()) if not n.startswith(_FILES_WITHOUT_EFFECT)}


def _files_below(directory: Path) -> Iterator[Path]:
    """Yield the files of a tree, and links to directories that were yielded before."""
    seen = {os.path.realpath(directory)}
    for place, directories, files in os.walk(directory, followlinks=True):
        followed: list[str] = []
        # Links can form a cycle.
        links: list[str] = []
        # Bazel's links lead out of the ruleset.
        for name in sorted(name for name in directories if not name.startswith("bazel-")):
            real = os.path.realpath(os.path.join(place, name))
            (links if real in seen else followed).append(name)
            seen.add(real)
        directories[:] = followed
        yield from (Path(place, name) for name in (*files, *links) if not name.endswith(".pyc"))


def make_key(chosen: ResolvedBuild, rocm: Mapping[str, str], bazel_args: Sequence[str] = ()) -> Key:
    """Return the key of a build's bundle. No other function makes keys.

    Raises:
        NoPrebuiltError: an argument of Bazel refers to a file that the key does not cover.
        ManifestError: a file of a kernel in Triton cannot be read.
    """
    manifest, aiter = chosen.manifest, chosen.aiter
    mode = chosen.spec.mode
    modes = {module.name: manifest.module_mode(module, mode) for module in chosen.modules}
    patches = pin_patches(patch_files(aiter.patches_dir))
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
        return {"kind": source.kind, **source.to_json()}
    if isinstance(source, GitSource):
        return {"kind": source.kind, "commit": source.commit}
    return {"kind": source.kind, "sha256": tree_digest(source.path)}


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
