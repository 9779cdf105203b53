"""Makes manifests of kernel configs, and builds libraries for use from Python."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.build.bazel import BuildOptions
from qola.build.programs import BuiltProgram, NotBuiltError, build_program, build_programs
from qola.build.setup import resolve_build
from qola.checkout.request import AiterOptions
from qola.kernel.archs import pinned
from qola.kernel.config import ConfigError, KernelConfig
from qola.kernel.rules import validate
from qola.manifest.constants import ADDABLE
from qola.manifest.toml import TomlTable, toml_document
from qola.plan.spec import BuildRequest, BuildSpec
from qola_base.errors import Finding
from qola_base.files import sha256_of_text
from qola_base.progress import library_progress
from qola_lab.fmha.registry import Registry
from qola_lab.verify.host import Built

#: Directions of each module, without those that manifests add.
_DIRECTIONS: Mapping[str, tuple[str, ...]] = {
    "libmha_bwd": ("bwd",),
    "libmha_fwd": ("fwd", "fwd_splitkv", "batch_prefill"),
}
#: Families of helper kernels, which come along with others.
_HELPERS = ("fwd_splitkv_combine", "bwd_dot_do_o", "bwd_convert_dq")


def make_manifest(
    configs: Iterable[KernelConfig],
    archs: Sequence[str],
    *,
    namespace: str = "kernels",
    receipt: str | int = "aiter_cpp",
) -> str:
    """Return the manifest of the libraries that have only these kernels and helper kernels.

    Args:
        configs: main kernels, also such that CK does not enumerate; of two that take the same
            problems, the first gets them.
        archs: such as gfx950.
        receipt: CK's, by name or number; kernels that CK lacks are made by the receipt's.

    Raises:
        ConfigError: `configs` is empty, or names a helper kernel.
    """
    kernels = list(dict.fromkeys(configs))
    if helpers := [config for config in kernels if config.family in _HELPERS]:
        why = "helper kernels come along with main kernels"
        raise ConfigError(
            Finding(config.name, f"family {config.family}: {why}", "a main kernel")
            for config in helpers
        )
    if not kernels:
        raise ConfigError(Finding("configs", "none", "a kernel"))
    modules: list[TomlTable] = []
    names: list[TomlTable] = []
    for module, known in _DIRECTIONS.items():
        own = [c for c in kernels if (c.direction == "bwd") == (module == "libmha_bwd")]
        directions = {config.direction for config in own}
        dropped = [direction for direction in known if direction not in directions]
        keys = {"drop_directions": dropped, "add_directions": sorted(directions & {*ADDABLE})}
        if own:
            table = {"name": module, "receipt": receipt}
            modules.append(table | {key: found for key, found in keys.items() if found})
            names.append({"names": [config.name for config in own]})
    tables: dict[str, TomlTable | list[TomlTable]] = {
        "qola": {"namespace": namespace},
        "build": {"architectures": [*archs], "mode": "cpp_itfs"},
        "modules": modules,
        "kernels": names,
    }
    return toml_document(tables)


#: The program of `qola dispatch`, which knows where its libraries are.
_PROGRAM = "dispatch"
_PADDING = ("spad", "skpad", "dpad", "dvpad")


def build_libraries(
    manifest_path: str | Path,
    *,
    archs: Sequence[str] | None = None,
    aiter_root: str | Path | None = None,
    groups: Sequence[str] | None = None,
    jobs: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Built]:
    """Build the attention libraries of a manifest, as `qola verify` does, with the same caches.

    Args:
        archs, aiter_root, groups, jobs, environ: see `qola.BuildRequest` and
            `qola.BuildOptions`.

    Returns:
        Libraries by module, libmha_fwd or libmha_bwd, for `Registry.of` and `Runner`.

    Raises:
        NotBuiltError: a library does not build; the error has the compiler's output.
        QolaError: the manifest, the AITER tree, the plan or this machine is at fault.
    """
    environ = os.environ if environ is None else environ
    spec, aiter = BuildSpec(tuple(archs or ())), AiterOptions(aiter_root)
    request = BuildRequest(manifest_path, spec, aiter, tuple(groups or ()))
    options = BuildOptions(jobs=jobs, quiet=True)
    with library_progress():
        program = build_program(_PROGRAM, resolve_build(request, environ), options, environ)
    if program.path is None:
        place = Path(manifest_path).as_posix()
        raise NotBuiltError(Finding(place, program.error, "libraries that build"))
    return built_by(program.path)


def built_by(program: Path) -> dict[str, Built]:
    """Return the libraries of a program that Bazel made, by module."""
    output = subprocess.run([program, "--places"], check=True, stdout=subprocess.PIPE).stdout
    return {
        module: Built(module, **{name: Path(text) for name, text in places.items()})
        for module, places in json.loads(output).items()
    }


@dataclass(frozen=True)
class BuiltKernel:
    """The result of building a config.

    Attributes:
        name: CK's name of the kernel, "" if it was not built.
        built: a library with the kernel, for `Runner`; None if it was not built.
        error: broken rules, or the output of CK's generator or the compiler.
    """

    config: KernelConfig
    name: str = ""
    built: Built | None = None
    error: str = ""


def build_configs(
    configs: Iterable[KernelConfig],
    archs: Sequence[str],
    *,
    aiter_root: str | Path | None = None,
    receipt: str | int = "aiter_cpp",
    jobs: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[BuiltKernel]:
    """Build kernels, in one run of Bazel, with the caches and actions of `qola build`.

    Kernels of a tile that differ in their features share a library, with helper kernels; all of
    a kernel's problems that its conditions allow go to it there. If a library fails, its kernels
    are built again, each by itself.

    Args:
        archs: such as gfx950; a kernel is built for those of them that CK has it for.
        receipt: the kernels by which CK lacks are made, see `make_manifest`.
        aiter_root, jobs, environ: see `qola.BuildRequest` and
            `qola.BuildOptions`.

    Returns:
        In the order of the configs, each once.

    Raises:
        QolaError: nothing could be tried: the AITER tree or this machine is at fault.
    """
    wanted = list(dict.fromkeys(configs))
    found = {kernel.config: kernel for kernel in _refused(wanted, archs)}
    options = BuildOptions(jobs=jobs, quiet=True)
    known = os.environ if environ is None else environ
    groups = group_configs(config for config in wanted if config not in found)
    with library_progress():
        while groups:
            built = _build(groups, archs, receipt, options, known, aiter_root)
            again = {
                config
                for group in groups
                if len(group) > 1 and any(not built[config].name for config in group)
                for config in group
            }
            found |= {config: kernel for config, kernel in built.items() if config not in again}
            groups = [(config,) for config in wanted if config in again]
    return [found[config] for config in wanted]


def group_configs(configs: Iterable[KernelConfig]) -> list[tuple[KernelConfig, ...]]:
    """Return kernels in groups in which none hides another in a dispatch.

    The kernels of a group have one tile, and differ in features or padding. Kernels that take
    fewer problems come first.
    """
    groups: dict[KernelConfig, list[KernelConfig]] = {}
    for config in configs:
        kept = ("arch", "pipeline", "trload", "more")
        own = config.family, config.dtype, config.hdim_q, config.hdim_v, config.tile
        key = KernelConfig(*own, **{name: getattr(config, name) for name in kept})
        groups.setdefault(key, []).append(config)
    return [tuple(sorted(group, key=_takes_more)) for group in groups.values()]


def _takes_more(config: KernelConfig) -> tuple[int, str]:
    pads = [getattr(config, name) for name in _PADDING]
    return sum(2 if pad in (True, 1) else bool(pad) for pad in pads), config.name


def archs_of_config(config: KernelConfig, archs: Sequence[str]) -> list[str]:
    """Return those of some archs that a kernel is for, by CK's names for archs."""
    tags = {offer.arch for offer in pinned().offers if offer.family == config.family and offer.arch}
    tags |= {config.arch} if config.arch else set()
    taking = {
        arch: max((tag for tag in tags if arch.startswith(tag)), key=len, default=None)
        for arch in archs
    }
    return [arch for arch, tag in taking.items() if config.arch in (None, tag)]


def _refused(configs: Iterable[KernelConfig], archs: Sequence[str]) -> Iterator[BuiltKernel]:
    """Yield kernels that need not be tried, with all errors."""
    for config in configs:
        wrong = [broken.finding for broken in validate(config)]
        if not archs_of_config(config, archs):
            found = f"kernel for {config.arch}, archs {', '.join(archs)}"
            wrong.append(Finding("archs", found, f"an arch that CK calls {config.arch}"))
        if wrong:
            error = ConfigError(wrong, "no kernel can be made of the config")
            yield BuiltKernel(config, error=str(error))


def _build(
    groups: Iterable[Sequence[KernelConfig]],
    archs: Sequence[str],
    receipt: str | int,
    options: BuildOptions,
    environ: Mapping[str, str],
    aiter_root: str | Path | None,
) -> dict[KernelConfig, BuiltKernel]:
    texts: dict[str, str] = {}
    by_name: dict[str, Sequence[KernelConfig]] = {}
    for group in groups:
        text = make_manifest(group, archs_of_config(group[0], archs), receipt=receipt)
        name = f"k_{sha256_of_text(text)[:16]}"
        texts[name], by_name[name] = text, group
    made = build_programs(texts, _PROGRAM, options, environ, AiterOptions(aiter_root))
    return {k.config: k for name, group in by_name.items() for k in _built(group, made[name])}


def _built(group: Sequence[KernelConfig], made: BuiltProgram) -> Iterator[BuiltKernel]:
    if made.path is None:
        yield from (BuiltKernel(config, error=made.error) for config in group)
        return
    ((module, built),) = built_by(made.path).items()
    names = {entry.config: entry.name for entry in Registry.of(module, built.repository)}
    hidden = "another kernel of its library takes all its problems"
    for config in group:
        if config in names:
            yield BuiltKernel(config, names[config], built)
        else:
            yield BuiltKernel(config, error=hidden)
