"""Measures what batches save: the same kernel instances in compiles of different sizes.

    bench/python bench/measure_batches.py --aiter TREE

For each size, plans manifests/te.toml with that [build] batch, compiles the largest batch of one
family, and prints seconds of one core and bytes for each kernel instance, and the compiler's
memory: the tables of docs/internals/batches.md. Takes half an hour.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure_costs import ROOT, Bench, find_compiler
from qola.cli.console import Table, to_text
from qola.plan.model import KernelInstance, Plan

SIZES = (1, 4, 8, 16, 32)
FAMILIES = (
    ("fwd", {"dtype": "bf16", "hdim_q": 128, "hdim_v": 128, "pipeline": "qr_async"}),
    ("dq_dk_dv", {"dtype": "bf16", "hdim_q": 128, "tile": "b16x128x128"}),
)


@dataclass(frozen=True)
class Measured:
    """What one compile took, in seconds of one core and bytes."""

    kernels: int
    cpu_seconds: float
    linked_bytes: float
    peak_bytes: float

    def row(self, first: Measured) -> tuple[str, ...]:
        """Return a line of the table, beside the compile of one kernel instance."""
        each = self.cpu_seconds / self.kernels
        return (
            str(self.kernels),
            f"{each:.1f} s",
            f"{first.cpu_seconds / each:.1f}",
            f"{self.linked_bytes / self.kernels / 1000:.1f} kB",
            f"{self.peak_bytes / 1e9:.1f} GB",
        )


def of_family(kernel: KernelInstance, role: str, fields: dict[str, object]) -> bool:
    """Say whether a kernel instance is of a family; a tile is known by how it begins."""
    alike = (str(kernel.fields.get(k, "")).startswith(str(v)) for k, v in fields.items())
    return kernel.role == role and all(alike)


def largest(plan: Plan, role: str, fields: dict[str, object]) -> tuple[str, KernelInstance, int]:
    """Return the source of the largest compile of a family, one of its kernels and their number."""
    found = [
        (len(batch.kernels), batch.file, plan.kernels[batch.kernels[0]])
        for batch in plan.batches
        if all(of_family(plan.kernels[index], role, fields) for index in batch.kernels)
    ]
    alone = [(1, k.source, k) for k in plan.kernels if of_family(k, role, fields)]
    count, file, kernel = max([*found, *alone], key=lambda one: one[:2])
    return file, kernel, count


def measure(bench: Bench, plans: Sequence[Plan]) -> Iterator[tuple[str, list[Measured]]]:
    """Yield the compiles of each family."""
    for role, fields in FAMILIES:
        rows = []
        for plan in plans:
            file, kernel, count = largest(plan, role, fields)
            copts = plan.module(kernel.module).copts
            cost = bench.compile(plan, file, kernel.direction, copts, host=False)
            rows.append(
                Measured(count, cost["cpu_seconds"], cost["linked_bytes"], bench.peak_bytes)
            )
        yield role, rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--aiter", type=Path, required=True, help="AITER source tree")
    args = parser.parse_args()
    manifest = (ROOT / "manifests/te.toml").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(find_compiler("hipcc"), args.aiter.resolve(), Path(directory))
        plans = [
            bench.plan(f"{size}", manifest.replace("[build]", f"[build]\nbatch = {size}"))
            for size in SIZES
        ]
        for role, rows in measure(bench, plans):
            lines = [row.row(rows[0]) for row in rows]
            columns = ("kernels", "each", "against one", "linked, each", "compiler, at most")
            print(to_text(Table(f"{role}, one compile", columns, lines, numbers=5)), flush=True)


if __name__ == "__main__":
    os.environ.pop("ROCM_PATH", None)
    main()
