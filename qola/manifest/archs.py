"""Chooses the archs and modules to build."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from qola.common.suggestions import nearest
from qola.manifest.constants import KNOWN_ARCHS, NATIVE, OTHER_ARCHS, TESTED_ARCHS
from qola.manifest.types import Manifest, ModuleSpec
from qola.manifest.values import either
from qola_base.errors import Finding, ManifestError, PlanError, ToolchainError

MAX_ARCHS = 8
"""A library can be restricted to each subset of its archs: 255 subsets of 8."""

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
"""Where AMD's kernel driver has a directory for each processor of the machine."""


def split(values: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct items of lists separated by ; or , in the order given."""
    items = (item.strip() for text in values for item in text.replace(",", ";").split(";"))
    return tuple(dict.fromkeys(filter(None, items)))


def resolve_archs(
    requested: Sequence[str],
    manifest: Manifest,
    default: Sequence[str],
    native: Callable[[], tuple[str, ...]],
) -> tuple[str, ...]:
    """Return the archs to build for, sorted.

    Precedence as in ROCm/QoLA: `requested`, the manifest, `default`, this machine's (`native`).

    Raises:
        PlanError: an unknown arch, `native` together with other archs, or more than MAX_ARCHS.
        ToolchainError: as `native`, which is called only if needed.
    """
    place = manifest.place("build", "architectures")
    if requested:
        named, place = tuple(requested), "the archs asked for instead of the manifest's"
    elif manifest.archs:
        named = manifest.archs
    elif default:
        named, place = tuple(default), "GPU_ARCHS"
    else:
        named = (NATIVE,)
    if NATIVE in named:
        if len(set(named)) > 1:
            raise PlanError(
                Finding(place, ", ".join(named), f"only {NATIVE}, or archs by their names")
            )
        named, place = native(), f"{NATIVE}: the GPUs of this machine"
    archs = tuple(sorted(set(named)))
    if unknown := [arch for arch in archs if arch not in KNOWN_ARCHS]:
        expected = either((*TESTED_ARCHS, OTHER_ARCHS, NATIVE))
        meant = [near for arch in unknown if (near := nearest(arch, (*KNOWN_ARCHS, NATIVE)))]
        fix = f"did you mean {', '.join(meant)}?" if meant else ""
        raise PlanError(Finding(place, ", ".join(unknown), expected, fix))
    if len(archs) > MAX_ARCHS:
        expected = f"at most {MAX_ARCHS} archs: each set of them has its own dispatch"
        raise PlanError(Finding(place, f"{len(archs)} archs", expected, "several manifests"))
    return archs


def choose_archs(
    requested: Sequence[str],
    manifest: Manifest,
    gpu_archs: str,
    native: Callable[[], tuple[str, ...]],
) -> tuple[str, ...]:
    """Return the archs that replace the manifest's, () to keep those.

    Args:
        requested: of the command line; items may be lists, as in `gpu_archs` ($GPU_ARCHS).
    """
    archs = resolve_archs(split(requested), manifest, split([gpu_archs]), native)
    return () if archs == manifest.archs else archs


def choose_modules(manifest: Manifest, groups: Sequence[str]) -> tuple[ModuleSpec, ...]:
    """Return the modules of the groups, or all modules; an unknown group is a ManifestError."""
    wanted = split(groups)
    known = sorted({module.group for module in manifest.modules if module.group})
    if unknown := [group for group in wanted if group not in known]:
        raise ManifestError(
            Finding(
                f"{manifest.file} [[modules]].group",
                f"none with {', '.join(unknown)}",
                f"a group out of {', '.join(known)}" if known else "modules with a group",
            )
        )
    return tuple(m for m in manifest.modules if not wanted or m.group in wanted)


def native_archs(sysfs: Path = KFD_NODES) -> tuple[str, ...]:
    """Return the distinct archs of this machine's GPUs, sorted; none is a ToolchainError.

    Unreadable nodes are skipped: a container shows all GPUs, and may only read its own.
    """
    try:
        files = sorted(sysfs.glob("*/properties"))
    except OSError as error:
        raise _no_gpu(sysfs, f"{error.filename}: {error.strerror}") from None
    nodes = [_read_version(file) for file in files]
    if archs := sorted({arch_of_version(node) for node in nodes if isinstance(node, int) and node}):
        return tuple(archs)
    found = f"{len(files)} nodes, no GPU among them" if files else "no nodes"
    raise _no_gpu(sysfs, "; ".join([found, *(node for node in nodes if isinstance(node, str))]))


def named_archs(archs: tuple[str, ...]) -> tuple[str, ...]:
    """Replace `native` by the archs of this machine's GPUs; none is a ToolchainError."""
    return native_archs() if archs == (NATIVE,) else archs


def arch_of_version(version: int) -> str:
    """Return the LLVM name of a gfx_target_version: 90402 is gfx942, 90010 is gfx90a.

    It is major * 10000 + minor * 100 + stepping; LLVM writes the last two in hexadecimal.
    """
    major, rest = divmod(version, 10000)
    minor, stepping = divmod(rest, 100)
    return f"gfx{major}{minor:x}{stepping:x}"


def _read_version(properties: Path) -> int | str:
    """Return a node's gfx_target_version, 0 for a CPU or a node without one; or why it failed."""
    try:
        text = properties.read_text("utf-8")
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    found = re.search(r"^gfx_target_version (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _no_gpu(sysfs: Path, found: str) -> ToolchainError:
    return ToolchainError(
        Finding(
            sysfs.as_posix(),
            found,
            "an AMD GPU with its driver (amdgpu, with KFD) loaded, since the archs are native",
            'name the archs instead: --arch gfx950, or architectures = ["gfx950"] in the manifest',
        ),
        "native: no AMD GPU on this machine",
    )
