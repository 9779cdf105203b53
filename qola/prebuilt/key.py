"""The key of a prebuilt bundle: a digest of everything that determines its bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qola.common.version import __version__
from qola_base.errors import Finding, NoPrebuiltError
from qola_base.files import sha256_of_json
from qola_base.json_types import JsonObject, JsonValue

SCHEMA = 1
"""Version of a key's inputs and of the record of an archive."""

_WITHOUT_EFFECT = (
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
    kept = [arg for arg in joined(bazel_args) if not arg.startswith(_WITHOUT_EFFECT)]
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
