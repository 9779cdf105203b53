"""ROCm/QoLA's precedence of archs: the command line, the manifest, $GPU_ARCHS, this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from qola.errors import Finding, PlanError
from qola.manifest_types import Manifest
from qola.schema import NATIVE, SUPPORTED_ARCHS


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

    Args:
        asked: archs of the command line, () for none.
        manifest: the manifest.
        default: archs of $GPU_ARCHS, () for none.
        native: asks the machine; called only if need be.

    Raises:
        PlanError: an arch there are no kernels for, or `native` beside others.
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
    unknown = [arch for arch in archs if arch not in SUPPORTED_ARCHS]
    if unknown:
        raise PlanError(
            Finding(place, ", ".join(unknown), f"archs out of {', '.join(SUPPORTED_ARCHS)}")
        )
    return archs
