"""Generates the Bazel workspace of a manifest, deterministically, for `qola build`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from qola.build.bazel import LOG, find_bazel
from qola.build.forms import without_form
from qola.build.outputs import OutputBase, output_base
from qola.build.setup import ResolvedBuild
from qola.checkout.source import AiterSource
from qola.common import starlark
from qola.common.layout import FUNCTIONS, TRITON
from qola.common.ruleset import ruleset_root
from qola.common.version import __version__
from qola.plan.resolve import all_modules
from qola.plan.spec import Forms
from qola.plan.triton_kernels import triton_files
from qola_base.cache import cache_directory, locked, refuse_foreign
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
    """The Bazel workspace of a build.

    Attributes:
        bazel: the command of Bazel.
        cache: qola's cache directory, with workspaces, output bases and Bazel's disk cache.
    """

    chosen: ResolvedBuild
    bazel: Sequence[str]
    ruleset: Path
    cache: Path

    @property
    def name(self) -> str:
        """The Bazel name of the manifest; its repository is @qola_<name>."""
        return repository_name(self.chosen.file)

    @property
    def directory(self) -> Path:
        """Directory of the workspace, the same for each build of the manifest by this qola."""
        digest = sha256_of_text(f"{self.chosen.file}\n{self.ruleset}")
        return self.cache / WORKSPACES / f"{self.name}-{digest[:16]}"

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules with a target: all, so that builds of different groups share a workspace."""
        chosen = self.chosen
        every = all_modules(chosen.manifest, chosen.spec.mode)
        return tuple(module.name for module in every)

    @contextmanager
    def opened(self) -> Iterator[OutputBase]:
        """Write the workspace, and lock it for the block; other builds of the manifest wait."""
        with (
            locked(self.directory, "build of this manifest"),
            self.output_base(self.directory) as outputs,
        ):
            write(self.directory, self.ruleset, self.files(self.directory, outputs.base))
            yield outputs

    def output_base(self, directory: Path) -> AbstractContextManager[OutputBase]:
        """Lock an output base for a workspace in a directory."""
        fetched = f"{self.ruleset}\n{self.chosen.aiter.to_starlark()}"
        return output_base(self.cache, fetched, directory)

    def files(self, directory: Path, output_base: Path) -> Mapping[str, str]:
        """Return the workspace's files by name."""
        chosen = self.chosen
        paths = [directory, output_base, self.ruleset, *filter(None, [chosen.aiter.root])]
        return {
            ".bazelrc": self._bazelrc(output_base, paths),
            "BUILD.bazel": self.build_file(),
            "MODULE.bazel": module_text(self.ruleset, chosen.aiter, [self.name]),
            **self.manifest_files(),
            **triton_files(chosen.manifest, chosen.file),
        }

    def manifest_files(self) -> Mapping[str, str]:
        """Return the files of the manifest and its BuildSpec by name."""
        chosen = self.chosen
        return {
            f"{self.name}.toml": chosen.manifest.text,
            f"{self.name}.json": chosen.spec.to_json(),
        }

    def build_file(self) -> str:
        """Return BUILD.bazel: a library per module, and a lazy one if the module has that form."""
        # Both, so that lazy and other builds share a workspace.
        full = without_form("lazy", self.modules)
        lazy = [f"{module}{_LAZY}" for module in self.modules if module not in full]
        libraries = [
            starlark.rule(
                "qola_library",
                name=name,
                library=self.label(name),
                visibility=["//bundle:__pkg__"],
            )
            for name in (*self.modules, *lazy)
        ]
        manifest = self.chosen.manifest
        # Targets of this workspace, whose names Bazel's events have.
        if manifest.triton:
            srcs = [self.label(_TRITON_LIBRARY)]
            libraries.append(starlark.rule("filegroup", name=TRITON, srcs=srcs))
        if manifest.functions:
            srcs = [self.label(FUNCTIONS)]
            libraries.append(starlark.rule("filegroup", name=FUNCTIONS, srcs=srcs))
        return _build_text(["qola_library"], libraries)

    def label(self, target: str) -> str:
        """Return the label of a target in the repository of the manifest."""
        return f"@qola_{self.name}//:{target}"

    def bundle_file(self, modules: Sequence[str], forms: Forms) -> str:
        """Return BUNDLE_FILE for modules, TRITON and FUNCTIONS."""
        in_triton, with_functions = TRITON in modules, FUNCTIONS in modules
        modules = [name for name in modules if name not in (TRITON, FUNCTIONS)]
        static = forms.static and bool(modules)
        for_aiter = self.chosen.manifest.for_aiter
        calls: dict[str, str] = {}

        def call(rule: str, **values: str | bool | Sequence[str] | None) -> None:
            calls[rule] = starlark.rule(rule, **values)

        if static:
            archives = [self.label(module) for module in modules]
            call("qola_static_library", name="static", modules=archives)
        call(
            "qola_bundle",
            name="bundle",
            for_aiter=for_aiter or None,
            functions=self.label(FUNCTIONS) if with_functions else None,
            libraries=targets(modules, forms.lazy),
            split=forms.split or None,
            static=":static" if static else None,
            triton=self.label(_TRITON_LIBRARY) if in_triton else None,
        )
        if forms.wheel:
            call(
                "qola_wheel",
                name="wheel",
                bundle=":bundle",
                # The same as in qola_manifest_targets. PyTorch decides for AITER's modules.
                external_libraries=None if for_aiter else ["libamdhip64.so"],
                jax="@qola//runtime/jax" if forms.jax else None,
                package=self._wheel_package(forms),
                platform=None if for_aiter else "manylinux_2_28_x86_64",
                split=forms.split or None,
                version=forms.wheel,
            )
        return _build_text(sorted(calls), calls.values())

    def wheel_patterns(self, forms: Forms) -> tuple[str, ...]:
        """Return patterns of the file names of a wheel and of the wheels of its archs."""
        package, version = self._wheel_package(forms), forms.wheel
        return (f"{package}-{version}-*.whl", f"{package}_gfx*-{version}-*.whl")

    def _wheel_package(self, forms: Forms) -> str:
        """Return the Python package of a wheel."""
        return f"qola_{self.name}{_LAZY if forms.lazy else ''}"

    def pack_file(self, modules: Sequence[str], kernels: Sequence[str]) -> str:
        """Return PACK_FILE: the pack of these kernels, or of all kernels of the modules."""
        labels = [self.label(f"{module}_kernels") for module in modules]
        rule = "qola_kernel_pack"
        pack = starlark.rule(rule, name="pack", kernels=kernels or None, modules=labels)
        return _build_text([rule], [pack])

    def program(self, name: str, kind: str, modules: Sequence[str]) -> str:
        """Return the target of a program."""
        labels = [self.label(f"{module}_emulated") for module in modules]
        tool = f"@qola//qola_lab/{PROGRAMS[kind]}:tool"
        return starlark.rule("emulation_program", name=name, modules=labels, tool=tool)

    def _bazelrc(self, output_base: Path, paths: Iterable[Path]) -> str:
        """Return .bazelrc for a build that uses the given directories."""
        # Quoted as for a shell: a blank in a path would end the option.
        text = _BAZELRC.format(
            header=_HEADER,
            disk_cache=shlex.quote(f"--disk_cache={self.cache / DISK}"),
            output_base=shlex.quote(f"--output_base={output_base}"),
        )
        return text + shown_in_sandboxes(paths)


def set_up(chosen: ResolvedBuild, environ: Mapping[str, str]) -> Workspace:
    """Return the workspace of a build, without writing anything.

    Raises:
        ToolchainError: Bazel was not found.
        QolaError: another user may have written Bazel's disk cache.
    """
    ruleset, cache = ruleset_root(), cache_directory(environ)
    bazel = find_bazel(environ, ruleset)
    refuse_foreign(cache / DISK)
    return Workspace(chosen, bazel, ruleset, cache)


def shown_in_sandboxes(paths: Iterable[Path]) -> str:
    """Return lines of .bazelrc with which sandboxes have paths below /tmp."""
    return _TMP if any(path.is_relative_to("/tmp") for path in paths) else ""


def dependencies(ruleset: Path) -> list[str]:
    """Return the calls of MODULE.bazel that take qola's modules from a directory."""
    modules = {"qola": ruleset, "rules_hip": ruleset / "rules_hip"}
    return [
        *(starlark.rule("bazel_dep", name=name, version=__version__) for name in modules),
        *(
            starlark.rule("local_path_override", module_name=name, path=place.as_posix())
            for name, place in modules.items()
        ),
    ]


def module_text(ruleset: Path, aiter: AiterSource, manifests: Sequence[str]) -> str:
    """Return MODULE.bazel for manifests, by their Bazel names, with the same AITER source."""
    repositories = [f"qola_{name}" for name in manifests]
    use = [
        'qola = use_extension("@qola//rules:extensions.bzl", "qola")',
        aiter.to_starlark(),
        *(
            starlark.rule(
                "qola.manifest", name=name, file=f"//:{name}.toml", spec=f"//:{name}.json"
            )
            for name in manifests
        ),
        f"use_repo(qola, {', '.join(map(starlark.string, repositories))})",
    ]
    # The ROCm is part of a prebuilt bundle's key.
    rocm = [
        'hip = use_extension("@rules_hip//hip:extensions.bzl", "hip")',
        f"use_repo(hip, {starlark.string(ROCM)})",
    ]
    calls = [
        _HEADER,
        'module(name = "qola_build")',
        *dependencies(ruleset),
        "\n".join(use),
        "\n".join(rocm),
    ]
    return "\n\n".join(calls) + "\n"


def programs_text(programs: Iterable[str]) -> str:
    """Return a BUILD file with programs that run libraries without a GPU."""
    return _build_text(["emulation_program"], programs, "@qola//rules/private:generated.bzl")


def _build_text(
    symbols: Iterable[str], calls: Iterable[str], file: str = "@qola//rules:defs.bzl"
) -> str:
    """Return a BUILD file with calls of symbols of a .bzl file."""
    load = ", ".join(map(starlark.string, (file, *symbols)))
    return "\n\n".join([_HEADER, f"load({load})", *calls]) + "\n"


BUNDLE_FILE = "bundle/BUILD.bazel"
BUNDLE = "//bundle:bundle"
WHEEL = "//bundle:wheel"

ROCM = "rocm"
"""The repository with rocm.json."""

PACK_FILE = "pack/BUILD.bazel"
PACK = "//pack:pack"

PROGRAMS = {"verify": "verify", "dispatch": "fmha"}
"""The package of each program that runs libraries without a GPU."""

WORKSPACES = "workspaces"
"""Directory of workspaces in the cache."""

DISK = "disk"
"""Directory of Bazel's disk cache there."""

_TRITON_LIBRARY = "triton_library"

_LAZY = "_lazy"
"""Suffix of a lazy library's target."""


def repository_name(manifest: Path) -> str:
    """Return the Bazel name of a manifest: te_manifest for te-manifest.toml."""
    name = re.sub(r"[^a-z0-9]+", "_", manifest.stem.lower()).strip("_")
    # Reserved names of the extension, and names that begin with a digit.
    reserved = name in ("python", "torch") or name.startswith(("pip_", "prebuilt_"))
    return f"m_{name}" if reserved or not name[:1].isalpha() else name


def write(directory: Path, ruleset: Path, files: Mapping[str, str]) -> None:
    """Write changed files of a workspace, with the version of Bazel of a ruleset, for Bazelisk.

    Removes manifests of earlier builds, and the log of the last one.
    """
    (directory / LOG).unlink(missing_ok=True)
    for stale in (*directory.glob("*.toml"), *directory.glob("*.json")):
        if stale.name not in files:
            stale.unlink()
    version = (ruleset / ".bazelversion").read_text(encoding="utf-8")
    for name, text in sorted({**files, ".bazelversion": version}.items()):
        write_if_changed(directory / name, text)


def targets(modules: Sequence[str], lazy: bool | None = False) -> list[str]:
    """Return the labels of the modules' libraries, lazy ones on request if a module has one."""
    full = without_form("lazy", modules) if lazy else modules
    return [f"//:{module}{'' if module in full else _LAZY}" for module in modules]
