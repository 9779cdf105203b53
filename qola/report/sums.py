"""Sums over a report: its kernels in groups, and the batches that took longest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from qola.report.data import Batch, Kernel, Report


@dataclass(frozen=True)
class Group:
    """Kernels of a direction, head dimension and role for an arch, in sums and extremes.

    Attributes:
        instances: how many kernel instances.
        seconds: sum of their shares, None where no log says it.
        sources: how many kernel instances came from where.
        vgprs, lds, waves: the most, the most and the fewest of a kernel.
        spilling: how many kernels spill registers.
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
    """Return the kernels of a report by direction, head dimension and role, each arch alone."""

    def key(kernel: Kernel) -> tuple[str, tuple[int, ...], str, str]:
        sizes = tuple(int(size) for size in kernel.hdim.split("x") if size)
        return kernel.direction, sizes, kernel.role, kernel.arch

    found = []
    for (direction, _, role, arch), rows in groupby(sorted(report.kernels, key=key), key):
        kernels = list(rows)
        # A name of its own for each kernel instance; one without counts as such.
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
    """Return the batches that took longest, the longest first."""
    timed = [batch for batch in report.batches if batch.seconds is not None]
    return sorted(timed, key=lambda batch: (-(batch.seconds or 0), batch.name))[:count]
