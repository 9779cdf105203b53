"""Sums over groups of kernels, the slowest batches, and short names of kernel instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from qola.report.data import Batch, Kernel, Report

#: Fields that have columns of their own in the table of kernels.
_COLUMNS = frozenset({"arch_tag", "dtype", "hdim_q", "hdim_v", "mode"})


@dataclass(frozen=True)
class Group:
    """Sums and extremes of the kernels of a direction, head dimension, role and arch.

    Attributes:
        instances: number of kernel instances.
        seconds: sum of their shares, None without a log.
        sources: number of kernel instances by source of their object.
        vgprs, lds, waves: maximum, maximum and minimum of a kernel.
        spilling: number of kernels that spill registers.
    """

    direction: str
    hdim: str
    role: str
    arch: str
    instances: int
    kernels: int
    seconds: float | None
    sources: Mapping[str, int]
    code_bytes: int
    vgprs: int
    lds: int
    spilling: int
    waves: int | None


def groups(report: Report) -> list[Group]:
    """Return the groups of a report's kernels, sorted."""

    def key(kernel: Kernel) -> tuple[str, tuple[int, ...], str, str]:
        sizes = tuple(int(size) for size in kernel.hdim.split("x") if size)
        return kernel.direction, sizes, kernel.role, kernel.arch

    found = []
    for (direction, _, role, arch), rows in groupby(sorted(report.kernels, key=key), key):
        kernels = list(rows)
        # A kernel without a known instance counts as one instance.
        named = {kernel.name or kernel.symbol: kernel.source for kernel in kernels}
        waves = [kernel.waves for kernel in kernels if kernel.waves is not None]
        sources = sorted(set(named.values()) - {""})
        found.append(
            Group(
                direction,
                kernels[0].hdim,
                role,
                arch,
                len(named),
                len(kernels),
                sum(k.seconds or 0 for k in kernels) if report.timed else None,
                {source: list(named.values()).count(source) for source in sources},
                sum(k.code_bytes for k in kernels),
                max(k.vgprs for k in kernels),
                max(k.lds for k in kernels),
                sum(bool(k.vgpr_spills or k.sgpr_spills) for k in kernels),
                min(waves) if waves else None,
            )
        )
    return found


def slowest(report: Report, count: int = 20) -> list[Batch]:
    """Return the batches with the longest compiles, the longest first."""
    timed = [batch for batch in report.batches if batch.seconds is not None]
    return sorted(timed, key=lambda batch: (-(batch.seconds or 0), batch.name))[:count]


def short_names(kernels: Iterable[Kernel]) -> dict[str, str]:
    """Return a short name for each kernel instance.

    It has the tile, and the other fields that distinguish it from kernel instances of the same
    direction, role, head dimensions, data type and mode. Flags that are not set are left out.
    """

    def role(kernel: Kernel) -> tuple[str, str]:
        return kernel.direction, kernel.role

    found: dict[str, str] = {}
    for (_, name), rows in groupby(sorted(kernels, key=role), role):
        named = {kernel.name: kernel for kernel in rows if kernel.name}
        texts = {kernel.name: _texts(kernel) for kernel in named.values()}
        columns = {k.name: (k.hdim, k.dtype, k.mode) for k in named.values()}
        kept = _distinguishing(texts, columns)
        found |= {k: " ".join(filter(None, map(w.get, kept))) or name for k, w in texts.items()}
    return found


def _texts(kernel: Kernel) -> dict[str, str]:
    """Return a text for each field, the tile first; "" for a flag that is not set."""
    shape, _, warps = str(kernel.fields.get("tile", "")).partition("_")
    texts = {"tile": shape, "warps": warps}
    for field, value in sorted(kernel.fields.items()):
        if field in _COLUMNS or field == "tile":
            continue
        if value is True:
            texts[field] = field
        elif value in (False, None, "no"):
            texts[field] = ""
        else:
            texts[field] = value if isinstance(value, str) else f"{field}={value}"
    return texts


def _distinguishing(
    texts: Mapping[str, Mapping[str, str]], columns: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """Return fields that distinguish all names, after removing redundant ones greedily."""
    fields = list(dict.fromkeys(field for own in texts.values() for field in own))

    def count(some: Iterable[str]) -> int:
        some = list(some)
        return len({(columns[n], *(own.get(f, "") for f in some)) for n, own in texts.items()})

    kept, most = fields, count(fields)
    for field in reversed(fields[1:]):
        fewer = [other for other in kept if other != field]
        if count(fewer) == most:
            kept = fewer
    return kept
