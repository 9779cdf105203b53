"""Generates the Bazel workspace of a manifest, deterministically, for `qola build`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qola.build.forms import without_form
from qola.checkout.source import AiterSource
from qola.common import starlark
from qola.common.layout import FUNCTIONS, TRITON
from qola.common.version import __version__
from qola.plan.spec import BuildSpec, Forms
from qola_base.files import sha256_of_text, write_if_changed

_HEADER = f"# Written by qola {__version__} (qola build); do not edit."

_BAZELRC = """\
{header}
# What differs between machines and builds stays out of cache keys (docs/guide/bazel.md).
common --experimental_output_paths=strip
common --incompatible_strict_action_env
common --lockfile_mode=off
common {disk_cache}
common --experimental_disk_cache_gc_max_size=20G
# A server keeps a gigabyte of memory. Before it ends, it trims the disk cache, when idle.
startup --max_idle_secs=60
common --experimental_disk_cache_gc_idle_delay=5s
# Shared with other manifests (docs/guide/qola-build.md#workspaces-and-output-bases).
startup {output_base}
build --sandbox_default_allow_network=false
"""

_TMP = """\
# A sandbox has a /tmp of its own, in which what lies there does not show.
build --sandbox_add_mount_pair=/tmp
"""


@dataclass(frozen=True)
class Workspace:
    """The content of a workspace.

    Attributes:
        name: name of the manifest; its repository is @qola_<name>.
        manifest: text of the manifest.
        modules: modules that get a target.
        python: Python files of the manifest's Triton kernels, by path.
        triton: the manifest has Triton kernels.
        functions: it has functions of AITER's second JIT.
        for_aiter: AITER's own Python imports the modules.
    """

    name: str
    manifest: str
    modules: tuple[str, ...]
    ruleset: Path
    aiter: AiterSource
    disk_cache: Path
    spec: BuildSpec = field(default_factory=BuildSpec)
    python: Mapping[str, str] = field(default_factory=dict)
    triton: bool = False
    functions: bool = False
    for_aiter: bool = False

    def files(self, version: str, directory: Path, output_base: Path) -> Mapping[str, str]:
        """Return the workspace's files by name; `version` is for Bazelisk."""
        paths = [directory, output_base, self.ruleset, *filter(None, [self.aiter.root])]
        return {
            ".bazelrc": self.bazelrc(output_base, paths),
            ".bazelversion": version,
            "BUILD.bazel": self.build_file(),
            "MODULE.bazel": self.module_file(),
            **self.manifest_files(),
            **self.python,
        }

    def manifest_files(self) -> Mapping[str, str]:
        """Return the files of the manifest and its BuildSpec by name."""
        return {f"{self.name}.toml": self.manifest, f"{self.name}.json": self.spec.to_json()}

    def module_file(self) -> str:
        """Return MODULE.bazel."""
        return module_text(self.ruleset, self.aiter, [self])

    def build_file(self) -> str:
        """Return BUILD.bazel: a library per module, and a lazy one if the module has that form."""
        # Both, so that lazy and other builds share a workspace.
        full = without_form("lazy", self.modules)
        lazy = [f"{module}{_LAZY}" for module in self.modules if module not in full]
        libraries = [
            starlark.rule(
                "qola_library",
                name=name,
                library=f"@qola_{self.name}//:{name}",
                visibility=["//bundle:__pkg__"],
            )
            for name in (*self.modules, *lazy)
        ]
        for name, label, exists in (
            (TRITON, self._triton_library, self.triton),
            (FUNCTIONS, self._functions, self.functions),
        ):
            if exists:
                # A target of this workspace, whose name Bazel's events have.
                libraries.append(starlark.rule("filegroup", name=name, srcs=[label]))
        load = 'load("@qola//rules:defs.bzl", "qola_library")'
        return "\n\n".join([_HEADER, load, *libraries]) + "\n"

    @property
    def _triton_library(self) -> str:
        return f"@qola_{self.name}//:triton_library"

    @property
    def _functions(self) -> str:
        return f"@qola_{self.name}//:{FUNCTIONS}"

    def bundle_file(self, modules: Sequence[str], forms: Forms) -> str:
        """Return BUNDLE_FILE for modules, TRITON and FUNCTIONS."""
        in_triton, with_functions = TRITON in modules, FUNCTIONS in modules
        modules = [name for name in modules if name not in (TRITON, FUNCTIONS)]
        static = forms.static and bool(modules)
        rules = ["qola_bundle"]
        calls = []
        if static:
            rules.append("qola_static_library")
            archives = [f"@qola_{self.name}//:{module}" for module in modules]
            calls.append(starlark.rule("qola_static_library", name="static", modules=archives))
        bundle = starlark.rule(
            "qola_bundle",
            name="bundle",
            for_aiter=self.for_aiter or None,
            functions=self._functions if with_functions else None,
            libraries=targets(modules, forms.lazy),
            split=forms.split or None,
            static=":static" if static else None,
            triton=self._triton_library if in_triton else None,
        )
        calls.append(bundle)
        if forms.wheel:
            rules.append("qola_wheel")
            calls.append(
                starlark.rule(
                    "qola_wheel",
                    name="wheel",
                    bundle=":bundle",
                    # The same as in qola_manifest_targets. PyTorch decides for AITER's modules.
                    external_libraries=None if self.for_aiter else ["libamdhip64.so"],
                    jax="@qola//runtime/jax" if forms.jax else None,
                    package=self._wheel_package(forms),
                    platform=None if self.for_aiter else "manylinux_2_28_x86_64",
                    split=forms.split or None,
                    version=forms.wheel,
                )
            )
        load = f'load("@qola//rules:defs.bzl", {", ".join(map(starlark.string, rules))})'
        return "\n\n".join([_HEADER, load, *calls]) + "\n"

    def wheel_patterns(self, forms: Forms) -> tuple[str, ...]:
        """Return patterns of the file names of a wheel and of the wheels of its archs."""
        package, version = self._wheel_package(forms), forms.wheel
        return (f"{package}-{version}-*.whl", f"{package}_gfx*-{version}-*.whl")

    def _wheel_package(self, forms: Forms) -> str:
        """Return the Python package of a wheel."""
        return f"qola_{self.name}{_LAZY if forms.lazy else ''}"

    def pack_file(self, modules: Sequence[str], kernels: Sequence[str]) -> str:
        """Return PACK_FILE: the pack of these kernels, or of all kernels of the modules."""
        labels = [f"@qola_{self.name}//:{module}_kernels" for module in modules]
        load = 'load("@qola//rules:defs.bzl", "qola_kernel_pack")'
        pack = starlark.rule(
            "qola_kernel_pack", name="pack", kernels=kernels or None, modules=labels
        )
        return "\n\n".join([_HEADER, load, pack]) + "\n"

    def program_file(self, name: str, modules: Sequence[str]) -> str:
        """Return the BUILD file of a program that runs these modules' host code, see PROGRAMS."""
        return programs_text([self.program(name, name, modules)])

    def program(self, name: str, kind: str, modules: Sequence[str]) -> str:
        """Return the target of a program."""
        labels = [f"@qola_{self.name}//:{module}_emulated" for module in modules]
        tool = f"@qola//qola_lab/{PROGRAMS[kind]}:tool"
        return starlark.rule("emulation_program", name=name, modules=labels, tool=tool)

    def bazelrc(self, output_base: Path, paths: Iterable[Path]) -> str:
        """Return .bazelrc for a build that uses the given directories."""
        # Quoted as for a shell: a blank in a path would end the option.
        text = _BAZELRC.format(
            header=_HEADER,
            disk_cache=shlex.quote(f"--disk_cache={self.disk_cache}"),
            output_base=shlex.quote(f"--output_base={output_base}"),
        )
        return text + shown_in_sandboxes(paths)


def shown_in_sandboxes(paths: Iterable[Path]) -> str:
    """Return lines of .bazelrc with which sandboxes have paths below /tmp."""
    return _TMP if any(path.is_relative_to("/tmp") for path in paths) else ""


def overrides(ruleset: Path) -> list[str]:
    """Return the calls of MODULE.bazel that take qola's modules from a directory."""
    return [
        starlark.rule("local_path_override", module_name=name, path=place.as_posix())
        for name, place in (("qola", ruleset), ("qola_compile", ruleset / "rules/qola_compile"))
    ]


def module_text(ruleset: Path, aiter: AiterSource, manifests: Sequence[Workspace]) -> str:
    """Return MODULE.bazel for manifests with the same AITER source."""
    # The ROCm is part of a prebuilt bundle's key.
    repositories = [*(f"qola_{manifest.name}" for manifest in manifests), ROCM]
    use = [
        'qola = use_extension("@qola//rules:extensions.bzl", "qola")',
        aiter.to_starlark(),
        *(
            starlark.rule(
                "qola.manifest", name=name, file=f"//:{name}.toml", spec=f"//:{name}.json"
            )
            for name in (manifest.name for manifest in manifests)
        ),
        f"use_repo(qola, {', '.join(map(starlark.string, repositories))})",
    ]
    calls = [
        _HEADER,
        'module(name = "qola_build")',
        f'bazel_dep(name = "qola", version = "{__version__}")',
        *overrides(ruleset),
        "\n".join(use),
    ]
    return "\n\n".join(calls) + "\n"


def programs_text(programs: Iterable[str]) -> str:
    """Return a BUILD file with programs that run libraries without a GPU."""
    load = 'load("@qola//rules/private:generated.bzl", "emulation_program")'
    return "\n\n".join([_HEADER, load, *programs]) + "\n"


BUNDLE_FILE = "bundle/BUILD.bazel"
BUNDLE = "//bundle:bundle"
WHEEL = "//bundle:wheel"

ROCM = "qola_rocm"
"""The repository with rocm.json."""

PACK_FILE = "pack/BUILD.bazel"
PACK = "//pack:pack"

PROGRAMS = {"verify": "verify", "dispatch": "fmha"}
"""The package of each program that runs libraries without a GPU."""

WORKSPACES = "workspaces"
"""Directory of workspaces in the cache."""

_LAZY = "_lazy"
"""Suffix of a lazy library's target."""


def repository_name(manifest: Path) -> str:
    """Return the Bazel name of a manifest: te_manifest for te-manifest.toml."""
    name = re.sub(r"[^a-z0-9]+", "_", manifest.stem.lower()).strip("_")
    # Reserved names of the extension, and names that begin with a digit.
    reserved = name in ("rocm", "rocm_headers", "rocm_sdk", "python", "torch") or name.startswith(
        ("pip_", "prebuilt_")
    )
    return f"m_{name}" if reserved or not name[:1].isalpha() else name


def directory_of(cache: Path, manifest: Path, ruleset: Path) -> Path:
    """Return the directory of a manifest's workspace, the same for each build by this qola."""
    digest = sha256_of_text(f"{manifest}\n{ruleset}")
    return cache / WORKSPACES / f"{repository_name(manifest)}-{digest[:16]}"


def write(directory: Path, files: Mapping[str, str]) -> None:
    """Write changed files of a workspace, and remove manifests of earlier builds."""
    directory.mkdir(parents=True, exist_ok=True)
    for stale in (*directory.glob("*.toml"), *directory.glob("*.json")):
        if stale.name not in files:
            stale.unlink()
    for name, text in sorted(files.items()):
        write_if_changed(directory / name, text)


def targets(modules: Sequence[str], lazy: bool | None = False) -> list[str]:
    """Return the labels of the modules' libraries, lazy ones on request if a module has one."""
    full = without_form("lazy", modules) if lazy else modules
    return [f"//:{module}{'' if module in full else _LAZY}" for module in modules]
