"""ROCm/QoLA's precedence of archs: the command line, the manifest, $GPU_ARCHS, this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from qola.errors import Finding, ManifestError, PlanError
from qola.manifest.types import Manifest, ModuleSpec
from qola.manifest.values import nearest
from qola.manifest.words import KNOWN_ARCHS, NATIVE

MAX_ARCHS = 8
"""A library can be restricted to each subset of its archs, and these are then 255."""


def split(values: Iterable[str]) -> tuple[str, ...]:
    """Return the items of lists with ; or , between them, each once, in the order given."""
    items = (item.strip() for text in values for item in text.replace(",", ";").split(";"))
    return tuple(dict.fromkeys(filter(None, items)))


def resolve(
    asked: Sequence[str],
    manifest: Manifest,
    default: Sequence[str],
    native: Callable[[], tuple[str, ...]],
) -> tuple[str, ...]:
    """Return the archs to build for, sorted.

    What is asked for wins over [build].architectures, that over the default, and where nobody says
    anything it is the GPUs of this machine, as it is for the word `native`, which stands alone.
    `native` asks the machine, and is called only if need be.

    Raises:
        PlanError: a word that is no arch, or `native` beside others.
        ToolchainError: as `native`.
    """
    place = manifest.place("build", "architectures")
    if asked:
        named, place = tuple(asked), "the archs asked for instead of the manifest's"
    elif manifest.architectures:
        named = tuple(manifest.architectures)
    elif default:
        named, place = tuple(default), "GPU_ARCHS"
    else:
        named = (NATIVE,)
    if NATIVE in named:
        if len(set(named)) > 1:
            raise PlanError(
                Finding(place, ", ".join(named), f"{NATIVE} alone, or archs by their names")
            )
        named, place = native(), f"{NATIVE}: the GPUs of this machine"
    archs = tuple(sorted(set(named)))
    unknown = [arch for arch in archs if arch not in KNOWN_ARCHS]
    if unknown:
        expected = f"archs by their LLVM names: {', '.join(KNOWN_ARCHS)}"
        meant = [near for arch in unknown if (near := nearest(arch, (*KNOWN_ARCHS, NATIVE)))]
        fix = f"did you mean {', '.join(meant)}?" if meant else ""
        raise PlanError(Finding(place, ", ".join(unknown), expected, fix))
    if len(archs) > MAX_ARCHS:
        expected = f"{MAX_ARCHS} archs at most: each set of them has a dispatch of its own"
        raise PlanError(Finding(place, f"{len(archs)} archs", expected, "several manifests"))
    return archs


def choose_archs(
    asked: Sequence[str],
    manifest: Manifest,
    gpu_archs: str,
    native: Callable[[], tuple[str, ...]],
) -> tuple[str, ...]:
    """Return the archs to build for instead of the manifest's, () for the manifest's own.

    As `resolve`, of what the command line and $GPU_ARCHS say: items may be lists.
    """
    archs = resolve(split(asked), manifest, split([gpu_archs]), native)
    return () if archs == tuple(sorted(set(manifest.architectures))) else archs


def choose_modules(manifest: Manifest, groups: Sequence[str]) -> tuple[ModuleSpec, ...]:
    """Return the modules to build: all, or those of the groups.

    Raises:
        ManifestError: no module has such a group.
    """
    wanted = split(groups)
    known = sorted({module.group for module in manifest.modules if module.group})
    unknown = [group for group in wanted if group not in known]
    if unknown:
        raise ManifestError(
            Finding(
                f"{manifest.file} [[modules]].group",
                f"none with {', '.join(unknown)}",
                f"a group out of {', '.join(known)}" if known else "modules with a group",
            )
        )
    return tuple(m for m in manifest.modules if not wanted or m.group in wanted)
