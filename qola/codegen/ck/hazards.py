"""Finds problems that a dispatch rejects although it has kernels for them: hazards.

A hazard is a result of a manifest's variants. Faults of AITER are in qola/aiter/known_faults.py, of
kernels in qola/aiter/proven_faults.py.

A CK dispatch is an if-chain: arch, then dtype, then `else if` over head-dim buckets, then the
entries of a bucket. It never goes back: a problem that enters a bucket which lacks its class
(mode, mask, bias, ...) returns -1, even if a later bucket has a kernel for it. The hazards are
computed from the rows, without generating or compiling anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from qola.codegen.ck.receipts import show, takes
from qola.codegen.ck.rows import Row
from qola.codegen.types import Bucket, FieldValue
from qola.kernel.selection import EVERYTHING, REQUESTED, VariantFilter
from qola.manifest.toml import toml_value
from qola_base.errors import Finding

Problem = tuple[tuple[str, FieldValue], ...]
Keepers = Mapping[str, Sequence[VariantFilter]]
"""The filters that keep a row, by its key."""


@dataclass
class _Chain:
    """The buckets of one arch and dtype, in the order of the dispatch."""

    keepers: Keepers
    buckets: dict[Bucket, dict[Problem, list[Row]]] = field(default_factory=dict)

    def entering(self, size: Bucket) -> list[Bucket]:
        """Return the buckets whose condition takes a problem of `size`; the first one gets it."""
        return [b for b in self.buckets if size[0] <= b[0] and size[1] <= b[1]]

    def has(self, bucket: Bucket, problem: Problem, size: Bucket) -> bool:
        """Whether a kernel of the bucket runs such a problem at all sequence lengths."""
        return any(
            not row.conditional and takes(size, row.steps)
            for row in self.buckets[bucket].get(problem, ())
        )

    def labels(self, bucket: Bucket, problem: Problem | None = None) -> list[str]:
        """Return the variants that keep the bucket, or one of its problem classes."""
        groups = self.buckets[bucket]
        rows = groups[problem] if problem else [r for rows in groups.values() for r in rows]
        found = [w.place for row in rows for w in self.keepers[row.key] if w.index != EVERYTHING]
        return list(dict.fromkeys(found))

    def only_requested(self, bucket: Bucket) -> bool:
        rows = [row for rows in self.buckets[bucket].values() for row in rows]
        return all(w.index == REQUESTED for row in rows for w in self.keepers[row.key])


Chains = dict[tuple[str, str], _Chain]


def _chains(rows: Iterable[Row], keepers: Keepers) -> Chains:
    chains: Chains = {}
    for row in rows:
        chain = chains.setdefault((row.arch or "", str(row.fields["dtype"])), _Chain(keepers))
        chain.buckets.setdefault(row.bucket, {}).setdefault(row.problem, []).append(row)
    return chains


def find_hazards(
    direction: str,
    base: Sequence[Row],
    kept: Sequence[Row],
    keepers: Keepers,
    origin: str,
    unreachable: Mapping[str, Bucket],
) -> list[Finding]:
    """Return the hazards of the dispatch that holds `kept`.

    Hazards that the selection causes are errors, those of the base set warnings.

    Args:
        base: all rows of the used receipts, in chain order.
        origin: name of the base set in findings, such as ``receipt 600``.
        unreachable: by the key of each unreachable row of `kept`, the bucket that precedes it.
    """
    full, chosen = _chains(base, {}), _chains(kept, keepers)
    return [
        *_gaps(direction, full, chosen, origin),
        *_tiles(direction, full, chosen, origin),
        *_unreached(direction, kept, unreachable, origin),
    ]


class _Gap(NamedTuple):
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
                first = entering[0]
                later = next((b for b in entering[1:] if chain.has(b, problem, size)), None)
                if later is None:
                    continue
                runs = base.has(base.entering(size)[0], problem, size)
                gap = _Gap(
                    "error" if runs else "warning",
                    first,
                    later,
                    tuple(chain.labels(first)),
                    tuple(chain.labels(later, problem)),
                )
                places, missing, present = groups.setdefault(gap, ({}, {}, set()))
                places[f"{arch or 'any arch'} {dtype}"] = None
                missing[problem] = None
                present.update(chain.buckets[first])
    return [
        _gap_finding(direction, gap, ", ".join(places), _differences(missing, present), origin)
        for gap, (places, missing, present) in groups.items()
    ]


def _sizes(buckets: Iterable[Bucket]) -> list[Bucket]:
    """Return head dims that distinguish buckets: each limit, and the next one that needs padding.

    Multiples of 8 only: AITER pads or rejects any other before it calls CK.
    """
    sizes = (size for q, v in buckets for size in ((q, v), (q - 8, v - 8), (min(q, v), min(q, v))))
    return list(dict.fromkeys(size for size in sizes if min(size) > 0))


def _gap_finding(direction: str, gap: _Gap, where: str, lacking: str, origin: str) -> Finding:
    first, later = _size(gap.first), _size(gap.later)
    if gap.severity == "warning":
        return Finding(
            f"{direction} dispatch, hdim {first} ({where})",
            f"CK's {first} bucket has no {lacking}, and its chain never reaches the {later} "
            f"bucket, which has: such problems return -1 ({origin} has the same gap)",
            "kernels of every class in the bucket, which this CK does not have",
            severity="warning",
        )
    wanting, owning = ", ".join(gap.later_labels), ", ".join(gap.first_labels)
    hdim = toml_value(gap.first[0] if gap.first[0] == gap.first[1] else gap.first)
    return Finding(
        wanting,
        f"{direction}: {lacking} with hdim {later} but not {first}, where {owning} puts "
        f"other kernels ({where}): problems that fit {first} return -1 and never reach {later}",
        f"the same classes for hdim {first} as for {later}",
        f"add hdim {hdim} to {wanting}, or take it out of {owning}",
    )


def _differences(missing: Iterable[Problem], present: Iterable[Problem]) -> str:
    """Describe the difference between the missing problem classes and those present."""
    lacking = [dict(problem) for problem in missing]
    parts = []
    for name in lacking[0]:
        here = {dict(p)[name] for p in present}
        if values := dict.fromkeys(p[name] for p in lacking if p[name] not in here):
            parts.append(f"{name}={'|'.join(map(show, values))}")
    return " or ".join(parts) or " ".join(f"{k}={show(v)}" for k, v in lacking[0].items())


def _size(bucket: Bucket) -> str:
    return f"{bucket[0]}x{bucket[1]}"


def _tiles(direction: str, full: Chains, chosen: Chains, origin: str) -> list[Finding]:
    """Check the tiles that are picked by sequence length.

    The largest bm0 of a bucket takes every length ("fall back to largest tile"); a smaller one
    only a seqlen_q up to its own bm0.
    """
    findings = []
    for (arch, dtype), chain in chosen.items():
        for bucket, groups in chain.buckets.items():
            before, after = _largest(full[arch, dtype].buckets[bucket]), _largest(groups)
            widest, now = max(before.values()), max(after.values())
            place = f"{direction} dispatch, hdim {_size(bucket)} ({arch} {dtype})"
            if now < widest and not chain.only_requested(bucket):
                findings.append(
                    Finding(
                        place,
                        f"{_names(chain, bucket, origin)} leaves out the tile of {widest} rows: "
                        f"the one of {now} rows now takes every seqlen_q",
                        f"the tile of {widest} rows as the fallback, as {origin} has it",
                        severity="warning",
                    )
                )
            for problem, largest in after.items():
                if largest < now:
                    same = before[problem] < widest
                    which = " ".join(f"{k}={show(v)}" for k, v in problem)
                    findings.append(
                        Finding(
                            place if same else _names(chain, bucket, origin),
                            f"{which}: no tile above {largest} rows, so that a longer seqlen_q "
                            "returns -1" + (f" ({origin} has the same gap)" if same else ""),
                            f"a tile of {now} rows",
                            severity="warning" if same else "error",
                        )
                    )
    return findings


def _names(chain: _Chain, bucket: Bucket, origin: str) -> str:
    return ", ".join(chain.labels(bucket)) or origin


def _largest(groups: Mapping[Problem, Sequence[Row]]) -> dict[Problem, int]:
    return {problem: max(row.bm0 or 0 for row in rows) for problem, rows in groups.items()}


def _unreached(
    direction: str, kept: Iterable[Row], unreachable: Mapping[str, Bucket], origin: str
) -> list[Finding]:
    groups: dict[tuple[Bucket, Bucket], list[str]] = {}
    for row in kept:
        if row.key in unreachable:
            place = f"{row.arch or ''} {row.fields['dtype']}".strip()
            groups.setdefault((row.bucket, unreachable[row.key]), []).append(place)
    return [
        Finding(
            f"{direction} dispatch, hdim {_size(bucket)} ({', '.join(dict.fromkeys(places))})",
            f"{len(places)} entries stand behind "
            + ("others" if cover == bucket else f"the {_size(cover)} bucket")
            + f" that take their problems: they are unreachable ({origin} has it so)",
            "an entry for some problems before one for more",
            "leave keep_unreachable out of [build]",
            "warning",
        )
        for (bucket, cover), places in groups.items()
    ]
