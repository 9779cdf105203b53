"""Builds kernels by their configs: one or hundreds, each with a library that launches it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qola.build.bazel import BuildOptions
from qola.build.programs import BuiltProgram, build_programs
from qola.errors import Finding
from qola.files import sha256_of_text
from qola.fmha.build import built_by
from qola.fmha.manifest import make_exact_manifest
from qola.fmha.registry import Registry
from qola.kernel.archs import Archs, pinned
from qola.kernel.config import ConfigError, KernelConfig
from qola.kernel.rules import validate
from qola.progress import library_progress
from qola.verify.host import Built

_PROGRAM = "dispatch"
_PADDING = ("spad", "skpad", "dpad", "dvpad")


@dataclass(frozen=True)
class BuiltKernel:
    """The result of building a config.

    Attributes:
        name: CK's of the kernel, "" where there is none.
        built: a library with the kernel, for `Runner`; None if it was not built.
        error: why there is none: broken rules, or the words of CK's generator or the compiler.
    """

    config: KernelConfig
    name: str = ""
    built: Built | None = None
    error: str = ""


def build_kernels(
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
    a kernel's problems that its conditions allow go to it there. One that fails stops no other:
    those of its library are built again, each by itself.

    Args:
        archs: to build for, such as gfx950: a kernel for those of them that CK has it for.
        aiter_root: see `qola.build_kernels`.
        receipt: by whose kernels others are made, see `make_exact_manifest`.
        jobs: actions at a time.

    Returns:
        In the order of the configs; those that are there twice, once.

    Raises:
        QolaError: nothing could be tried: the AITER tree or this machine is at fault.
    """
    wanted = list(dict.fromkeys(configs))
    found = {one.config: one for one in _refused(wanted, archs)}
    left = [config for config in wanted if config not in found]
    options = BuildOptions(jobs=jobs, quiet=True)
    known = os.environ if environ is None else environ
    with library_progress():
        groups = grouped(left)
        for _ in range(2):
            built = _build(groups, archs, receipt, options, known, aiter_root)
            again = [
                config
                for group in groups
                if len(group) > 1 and any(not built[config].name for config in group)
                for config in group
            ]
            found |= {config: one for config, one in built.items() if config not in again}
            groups = [(config,) for config in again]
            if not groups:
                break
    return [found[config] for config in wanted]


def grouped(configs: Iterable[KernelConfig]) -> list[tuple[KernelConfig, ...]]:
    """Return kernels in groups of which none hides another in a dispatch.

    Those of a group have one tile and differ in features or padding: kernels that take fewer
    problems come first.
    """
    groups: dict[KernelConfig, list[KernelConfig]] = {}
    for config in configs:
        bare = KernelConfig(
            config.family, config.dtype, config.hdim_q, config.hdim_v, config.tile, arch=config.arch
        )
        key = replace(bare, pipeline=config.pipeline, trload=config.trload, more=config.more)
        groups.setdefault(key, []).append(config)
    return [tuple(sorted(group, key=_takes_more)) for group in groups.values()]


def _takes_more(config: KernelConfig) -> tuple[int, str]:
    pads = [getattr(config, name) for name in _PADDING]
    return sum(2 if pad in (True, 1) else bool(pad) for pad in pads), config.name


def archs_of(config: KernelConfig, archs: Sequence[str], known: Archs | None = None) -> list[str]:
    """Return those of some archs that a kernel is for, by CK's names for archs."""
    offers = (pinned() if known is None else known).offers
    tags = {offer.arch for offer in offers if offer.family == config.family and offer.arch}
    tags |= {config.arch} if config.arch else set()
    taking = {
        arch: max((tag for tag in tags if arch.startswith(tag)), key=len, default=None)
        for arch in archs
    }
    return [arch for arch, tag in taking.items() if config.arch in (None, tag)]


def _refused(configs: Iterable[KernelConfig], archs: Sequence[str]) -> Iterator[BuiltKernel]:
    """Yield kernels that need not be tried, with all that is wrong."""
    for config in configs:
        wrong = [b.finding for b in validate(config) if b.finding.severity == "error"]
        if not archs_of(config, archs):
            words = f"kernel for {config.arch}, archs {', '.join(archs)}"
            wrong.append(Finding("archs", words, f"an arch that CK calls {config.arch}"))
        if wrong:
            error = ConfigError(wrong, "no kernel can be made of the config")
            yield BuiltKernel(config, error=str(error))


def _build(
    groups: Sequence[Sequence[KernelConfig]],
    archs: Sequence[str],
    receipt: str | int,
    options: BuildOptions,
    environ: Mapping[str, str],
    aiter_root: str | Path | None,
) -> dict[KernelConfig, BuiltKernel]:
    texts: dict[str, str] = {}
    of_name: dict[str, Sequence[KernelConfig]] = {}
    for group in groups:
        own = archs_of(group[0], archs)
        text = make_exact_manifest(group, own, receipt=receipt)
        name = f"k_{sha256_of_text(text)[:16]}"
        texts[name], of_name[name] = text, group
    if not texts:
        return {}
    made = build_programs(texts, _PROGRAM, options, environ, aiter_root=aiter_root)
    return {one.config: one for name, group in of_name.items() for one in _built(group, made[name])}


def _built(group: Sequence[KernelConfig], made: BuiltProgram) -> Iterator[BuiltKernel]:
    if made.path is None:
        yield from (BuiltKernel(config, error=made.error) for config in group)
        return
    ((module, built),) = built_by(made.path).items()
    registry = Registry.of(module, built.repository)
    for config in group:
        names = [entry.name for entry in registry if entry.config == config]
        words = "another kernel of its library takes all its problems"
        yield BuiltKernel(config, *([names[0], built] if names else ["", None, words]))
