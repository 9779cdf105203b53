"""Finds problems that a dispatch rejects although it has kernels for them.

A CK dispatch is an if-chain: arch, then dtype, then `else if` over head-dim buckets, then the
entries of a bucket. It never goes back: a problem that enters a bucket which lacks its class
(mode, mask, bias, ...) returns -1, even if a later bucket has a kernel for it. The hazards are
computed from the rows, without generating or compiling anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from qola.codegen.ck.predicates import show, takes
from qola.codegen.types import Bucket, FieldValue
from qola.errors import Finding
from qola.manifest.toml import toml_value

Problem = tuple[tuple[str, FieldValue], ...]


@dataclass(frozen=True)
class DispatchRow:
    """The part of a dispatch entry that hazards depend on.

    Attributes:
        arch: CK's name of the architecture, "" if the dispatch does not test it.
        labels: the variants that keep the entry; () in a base set.
        key: `Row.key`.
        requested: only a requested kernel keeps it.
    """

    arch: str
    dtype: str
    bucket: Bucket
    problem: Problem
    steps: Bucket
    bm0: int | None = None
    conditional: bool = False
    labels: tuple[str, ...] = ()
    key: str = ""
    requested: bool = False


@dataclass
class _Chain:
    """The buckets of one arch and dtype, in the order of the dispatch."""

    buckets: dict[Bucket, dict[Problem, list[DispatchRow]]] = field(default_factory=dict)

    def add(self, row: DispatchRow) -> None:
        self.buckets.setdefault(row.bucket, {}).setdefault(row.problem, []).append(row)

    def entering(self, size: Bucket) -> list[Bucket]:
        """Return the buckets whose condition takes a problem of `size`; the first one gets it."""
        return [b for b in self.buckets if size[0] <= b[0] and size[1] <= b[1]]

    def has(self, bucket: Bucket, problem: Problem, size: Bucket) -> bool:
        """Whether a kernel of the bucket runs such a problem at all sequence lengths."""
        return any(
            not row.conditional and takes(size, row.steps)
            for row in self.buckets[bucket].get(problem, ())
        )

    def runs(self, problem: Problem, size: Bucket) -> bool:
        """Whether the chain finds a kernel for the problem."""
        entering = self.entering(size)
        return bool(entering) and self.has(entering[0], problem, size)

    def labels(self, bucket: Bucket, problem: Problem | None = None) -> list[str]:
        """Return the variants that keep the bucket, or one of its problem classes."""
        groups = self.buckets[bucket]
        rows = groups[problem] if problem else [r for rows in groups.values() for r in rows]
        return list(dict.fromkeys(label for row in rows for label in row.labels))


Chains = dict[tuple[str, str], _Chain]


def _chains(rows: Iterable[DispatchRow]) -> Chains:
    chains: Chains = {}
    for row in rows:
        chains.setdefault((row.arch, row.dtype), _Chain()).add(row)
    return chains


def find_hazards(
    direction: str,
    base: Sequence[DispatchRow],
    kept: Sequence[DispatchRow],
    origin: str,
    unreachable: Mapping[str, Bucket],
) -> list[Finding]:
    """Return the hazards of the dispatch that holds `kept`.

    Args:
        base: all rows of the used receipts, in chain order.
        kept: the generated rows, in chain order, with their variants' labels.
        origin: name of the base set in findings, such as ``receipt 600``.
        unreachable: by the key of each unreachable row of `kept`, the bucket that precedes it.

    Returns:
        Errors for hazards that the selection causes, warnings for those of the base set.
    """
    full, chosen = _chains(base), _chains(kept)
    return [
        *_gaps(direction, full, chosen, origin),
        *_tiles(direction, full, chosen, origin),
        *_unreached(direction, kept, unreachable, origin),
    ]


@dataclass(frozen=True)
class _Gap:
    """Problems of a size that enter bucket `first`, and that only bucket `later` could run."""

    severity: str
    first: Bucket
    later: Bucket
    first_labels: tuple[str, ...]
    later_labels: tuple[str, ...]


def _gaps(direction: str, full: Chains, chosen: Chains, origin: str) -> list[Finding]:
    groups: dict[_Gap, tuple[dict[str, None], dict[Problem, None], set[Problem]]] = {}
    for (arch, dtype), chain in chosen.items():
        base = full[arch, dtype]
        problems = dict.fromkeys(p for groups_ in chain.buckets.values() for p in groups_)
        for size in _sizes(base.buckets):
            entering = chain.entering(size)
            for problem in problems:
                if not entering or chain.has(entering[0], problem, size):
                    continue
                later = next((b for b in entering[1:] if chain.has(b, problem, size)), None)
                if later is None:
                    continue
                gap = _Gap(
                    "error" if base.runs(problem, size) else "warning",
                    entering[0],
                    later,
                    tuple(chain.labels(entering[0])),
                    tuple(chain.labels(later, problem)),
                )
                places, missing, present = groups.setdefault(gap, ({}, {}, set()))
                places[f"{arch or 'any arch'} {dtype}"] = None
                missing[problem] = None
                present.update(chain.buckets[entering[0]])
    return [
        _gap_finding(direction, gap, list(places), list(missing), present, origin)
        for gap, (places, missing, present) in groups.items()
    ]


def _sizes(buckets: Iterable[Bucket]) -> list[Bucket]:
    """Return head dims that distinguish buckets: each limit, and the next one that needs padding.

    Multiples of 8 only: AITER pads or rejects any other before it calls CK.
    """
    sizes: dict[Bucket, None] = {}
    for q, v in buckets:
        for size in ((q, v), (q - 8, v - 8), (min(q, v), min(q, v))):
            if min(size) > 0:
                sizes[size] = None
    return list(sizes)


def _gap_finding(
    direction: str,
    gap: _Gap,
    places: list[str],
    missing: list[Problem],
    present: set[Problem],
    origin: str,
) -> Finding:
    first, later, where = _size(gap.first), _size(gap.later), ", ".join(places)
    lacking = _differences(missing, present)
    if gap.severity == "warning":
        return Finding(
            place=f"{direction} dispatch, hdim {first} ({where})",
            found=f"CK's {first} bucket has no {lacking}, and its chain never reaches the {later} "
            f"bucket, which has: such problems return -1 ({origin} has the same gap)",
            expected="kernels of every class in the bucket, which this CK does not have",
            severity="warning",
        )
    wanting, owning = ", ".join(gap.later_labels), ", ".join(gap.first_labels)
    return Finding(
        place=wanting,
        found=f"{direction}: {lacking} with hdim {later} but not {first}, where {owning} puts "
        f"other kernels ({where}): problems that fit {first} return -1 and never reach {later}",
        expected=f"the same classes for hdim {first} as for {later}",
        fix=f"add hdim {_toml(gap.first)} to {wanting}, or take it out of {owning}",
    )


def _differences(missing: list[Problem], present: set[Problem]) -> str:
    """Describe the difference between the missing problem classes and those present."""
    parts = []
    for name in dict(missing[0]):
        here = {dict(p)[name] for p in present}
        values = list(dict.fromkeys(v for p in missing if (v := dict(p)[name]) not in here))
        if values:
            parts.append(f"{name}={'|'.join(map(show, values))}")
    return " or ".join(parts) or " ".join(f"{k}={show(v)}" for k, v in missing[0])


def _size(bucket: Bucket) -> str:
    return f"{bucket[0]}x{bucket[1]}"


def _toml(bucket: Bucket) -> str:
    return toml_value(bucket[0] if bucket[0] == bucket[1] else bucket)


def _tiles(direction: str, full: Chains, chosen: Chains, origin: str) -> list[Finding]:
    """Check the tiles that are picked by sequence length.

    The largest bm0 of a bucket takes every length ("fall back to largest tile"); a smaller one
    only a seqlen_q up to its own bm0.
    """
    findings = []
    for (arch, dtype), chain in chosen.items():
        for bucket, groups in chain.buckets.items():
            before = _largest(full[arch, dtype].buckets[bucket])
            after = _largest(groups)
            place = f"{direction} dispatch, hdim {_size(bucket)} ({arch} {dtype})"
            labels = ", ".join(chain.labels(bucket)) or origin
            only_requested = all(row.requested for rows in groups.values() for row in rows)
            if max(after.values()) < max(before.values()) and not only_requested:
                findings.append(
                    Finding(
                        place=place,
                        found=f"{labels} leaves out the tile of {max(before.values())} rows: the "
                        f"one of {max(after.values())} rows now takes every seqlen_q",
                        expected=f"the tile of {max(before.values())} rows as the fallback, "
                        f"as {origin} has it",
                        severity="warning",
                    )
                )
            for problem, largest in after.items():
                if largest < max(after.values()):
                    same = before[problem] < max(before.values())
                    which = " ".join(f"{k}={show(v)}" for k, v in problem)
                    findings.append(
                        Finding(
                            place=place if same else labels,
                            found=f"{which}: no tile above {largest} rows, so that a longer "
                            "seqlen_q returns -1"
                            + (f" ({origin} has the same gap)" if same else ""),
                            expected=f"a tile of {max(after.values())} rows",
                            severity="warning" if same else "error",
                        )
                    )
    return findings


def _largest(groups: dict[Problem, list[DispatchRow]]) -> dict[Problem, int]:
    return {problem: max(row.bm0 or 0 for row in rows) for problem, rows in groups.items()}


def _unreached(
    direction: str, kept: Iterable[DispatchRow], unreachable: Mapping[str, Bucket], origin: str
) -> list[Finding]:
    """Report unreachable rows that a manifest keeps."""
    groups: dict[tuple[Bucket, Bucket], tuple[dict[str, None], int]] = {}
    for row in kept:
        if row.key in unreachable:
            places, count = groups.get((row.bucket, unreachable[row.key]), ({}, 0))
            place = f"{row.arch} {row.dtype}".strip()
            groups[row.bucket, unreachable[row.key]] = ({**places, place: None}, count + 1)
    return [
        Finding(
            place=f"{direction} dispatch, hdim {_size(bucket)} ({', '.join(places)})",
            found=f"{count} entries stand behind "
            + ("others" if cover == bucket else f"the {_size(cover)} bucket")
            + f" that take their problems: they are unreachable ({origin} has it so)",
            expected="an entry for some problems before one for more",
            fix="leave keep_unreachable out of [build]",
            severity="warning",
        )
        for (bucket, cover), (places, count) in groups.items()
    ]
