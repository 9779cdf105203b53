"""The report of bench/run, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from bench.rows import CONTENDERS, Row, unit_of
from qola.cli.console import align

SCHEMA_VERSION = 2
_HEAD = ("Row", "Ours", "Theirs", "Theirs / ours", "Spread", "")


def report(
    table: Sequence[Row],
    measured: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    command: str,
    workload: Mapping[str, Any],
    machine: Mapping[str, Any],
    versions: Mapping[str, str],
    jobs: int,
    notes: Sequence[str],
) -> dict[str, Any]:
    """Return the JSON object.

    Args:
        command: the command line without file names.
        workload: name of the manifest, archs, and counts of its kernels by direction.
        jobs: number of concurrent compiles on each side.
    """
    return {
        "schema": SCHEMA_VERSION,
        "command": command,
        "ratios": {row.name: round(row.ratio, 3) for row in table},
        "rows": [
            {
                "name": row.name,
                "against": CONTENDERS[row.contender],
                "ours": median(row.ours),
                "theirs": median(row.theirs),
                "unit": row.kind.unit,
                "ratio": round(row.ratio, 3),
                "least": round(row.ratios[0], 3),
                "most": round(row.ratios[-1], 3),
                "verdict": row.verdict,
            }
            for row in table
        ],
        "measured": {
            side: {
                name: {"values": list(found), "unit": unit_of(name)}
                for name, found in sorted(values.items())
            }
            for side, values in sorted(measured.items())
        },
        "workload": dict(workload),
        "machine": dict(machine),
        "versions": dict(versions),
        "jobs": jobs,
        "notes": list(notes),
    }


def quantity(value: float, unit: str) -> str:
    """Format a measurement."""
    if unit == "s":
        for small, scale in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
            if value * scale < 1000:
                return f"{value * scale:.3g} {small}"
        return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"
    return f"{value / 1e6:,.1f} MB" if value >= 1e7 else f"{value / 1e3:,.1f} kB"


def _cells(found: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for row in found["rows"]:
        yield (
            row["name"],
            quantity(row["ours"], row["unit"]),
            quantity(row["theirs"], row["unit"]),
            f"{row['ratio']:.2f}",
            f"{row['least']:.2f} to {row['most']:.2f}" if row["least"] < row["most"] else "",
            row["verdict"],
        )


def circumstances(found: Mapping[str, Any]) -> str:
    """Describe machine, kernels and versions in three lines."""
    machine, workload = found["machine"], found["workload"]
    kernels = ", ".join(f"{n} {d}" for d, n in sorted(workload["kernels"].items()))
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return (
        f"{machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB of memory, "
        f"{found['jobs']} jobs.\n"
        f"Kernels: {kernels} ({', '.join(workload['archs'])}); manifest {workload['manifest']}.\n"
        f"{versions}."
    )


def text(found: Mapping[str, Any]) -> str:
    """Return the table for a terminal, from the JSON object."""
    lines = [_HEAD, *_cells(found)]
    numbers = align([line[:-1] for line in lines], text_columns=1)
    # Verdicts are aligned to the left.
    table = [f"{row}  {line[-1]}".rstrip() for row, line in zip(numbers, lines, strict=True)]
    return "\n".join([*table, "", circumstances(found), *(f"- {n}" for n in found["notes"])])


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table for docs/internals/performance.md, from the JSON object."""
    lines = [_HEAD, ("---", "---:", "---:", "---:", "---:", "---"), *_cells(found)]
    table = ["| " + " | ".join(line).rstrip() + " |" for line in lines]
    notes = ["", *(f"- {note}" for note in found["notes"])] if found["notes"] else []
    return "\n".join([f"    {found['command']}", "", circumstances(found), "", *table, *notes])
