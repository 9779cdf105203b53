"""Simulates how long a manifest takes to build from empty caches, by number of remote workers.

    bench/python bench/simulate_workers.py --aiter TREE

Plans the manifest (default: every kernel of receipt 600), takes the cost of each compile from
qola/query/costs.json, and schedules the compiles like Bazel. A worker is one core, and caches the
compiler. docs/internals/scaling.md has the formula and the sources of the defaults.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.aiter.tree import read_tree
from qola.cli.console import Table, duration, size, to_text
from qola.common.folder import Folder
from qola.manifest.load import loads
from qola.plan.planner import build_plan
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola.query.estimate import ALL, Compile, compiles, load_costs

EVERYTHING = Path(__file__).resolve().parent / "workloads/everything.toml"
WORKERS = (1, 2, 8, 32, 128, 256, 512, 1024)
# Inputs of all compiles, and further inputs of one; measured by bench/action_inputs.py.
SDK_BYTES, SOURCE_BYTES = 284e6, 4e3


@dataclass(frozen=True)
class Network:
    """Transfer rates.

    Attributes:
        worker_rate: bytes per second between the store and one worker.
        client_rate: bytes per second between the client and the store.
        client_seconds: time of the client to send one action; it sends one at a time.
        link_rate: bytes of objects that a linker reads per second.
    """

    worker_rate: float
    client_rate: float
    client_seconds: float
    link_rate: float


@dataclass(frozen=True)
class Outcome:
    """Result of a simulation, in seconds and bytes.

    Attributes:
        wall_seconds: from the client's first byte to its last.
        busy_seconds: core time of compiles and links.
        fetch_seconds: time that workers waited for bytes.
        client_bytes: bytes that the client uploads and downloads.
    """

    workers: int
    wall_seconds: float
    busy_seconds: float
    fetch_seconds: float
    client_bytes: float


def bound(listed: Sequence[Compile], workers: int, network: Network) -> float:
    """Return the lower bound of every schedule, without transfers.

    It is the larger of the work per worker and the longest compile with its link.
    """
    links = {m: sum(c.cost.object_bytes for c in own) for m, own in _by_module(listed).items()}
    work = sum(c.cost.cpu_seconds for c in listed) + sum(links.values()) / network.link_rate
    longest = (c.cost.cpu_seconds + links[c.module] / network.link_rate for c in listed)
    return max(work / workers, *longest)


def simulate(listed: Sequence[Compile], workers: int, network: Network) -> Outcome:
    """Schedule compiles, then one link per library: a free worker takes the next action."""
    sent = SDK_BYTES + SOURCE_BYTES * len(listed)
    idle = [sent / network.client_rate] * workers
    offered, busy, fetched = idle[0], 0.0, 0.0
    fresh = workers
    ends: dict[str, float] = {}

    def run(seconds: float, moved: float, not_before: float = 0.0) -> float:
        nonlocal offered, busy, fetched, fresh
        if fresh:  # a worker's first action fetches the compiler
            fresh, moved = fresh - 1, moved + SDK_BYTES
        offered = max(offered, idle[0], not_before) + network.client_seconds
        transfer = moved / network.worker_rate
        end = offered + transfer + seconds
        heapq.heapreplace(idle, end)
        busy, fetched = busy + seconds, fetched + transfer
        return end

    modules = _by_module(listed)
    for module, own in modules.items():
        # A library names its own sources before its kernel instances.
        for one in sorted(own, key=lambda c: c.direction != ALL):
            end = run(one.cost.cpu_seconds, SOURCE_BYTES + one.cost.object_bytes)
            ends[module] = max(ends.get(module, 0.0), end)
    received = 0.0
    for module, own in modules.items():
        objects = sum(one.cost.object_bytes for one in own)
        library = sum(one.cost.linked_bytes for one in own)
        ends[module] = run(objects / network.link_rate, objects + library, ends[module])
        received += library
    wall = max(ends.values()) + received / network.client_rate
    return Outcome(workers, wall, busy, fetched, sent + received)


def _by_module(listed: Sequence[Compile]) -> dict[str, list[Compile]]:
    modules: dict[str, list[Compile]] = {}
    for one in listed:
        modules.setdefault(one.module, []).append(one)
    return modules


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--aiter", type=Path, required=True, help="AITER source tree")
    parser.add_argument(
        "--manifest", type=Path, default=EVERYTHING, help="manifest to build (default: everything)"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS, help="worker counts")
    for name, default, text in (
        ("worker-rate", 125e6, "bytes/s of a worker (default: 1 Gbit/s)"),
        ("client-rate", 12.5e6, "bytes/s of the client (default: 100 Mbit/s)"),
        ("client-seconds", 0.02, "time of the client per action (default: 0.02)"),
        ("link-rate", 100e6, "bytes of objects linked per second (default: 100 MB/s)"),
    ):
        parser.add_argument(f"--{name}", type=float, default=default, help=text)
    return parser.parse_args()


def main() -> None:
    """Plan, simulate and print a table."""
    args = _parse_arguments()
    costs = load_costs()
    manifest = loads(args.manifest.read_text(encoding="utf-8"), file=str(args.manifest))
    plan = build_plan(resolve(Request("simulated", manifest, read_tree(args.aiter))), Folder())
    listed = list(compiles(plan, costs))
    network = Network(args.worker_rate, args.client_rate, args.client_seconds, args.link_rate)
    rows = []
    for workers in args.workers:
        found = simulate(listed, workers, network)
        rows.append(
            (
                f"{workers:,}",
                duration(found.wall_seconds),
                f"{found.wall_seconds / bound(listed, workers, network):.2f}",
                f"{found.busy_seconds / (found.wall_seconds * workers):.0%}",
                duration(found.fetch_seconds / workers),
                size(found.client_bytes),
            )
        )
    columns = ("workers", "from empty caches", "of the bound", "used", "waits for bytes", "client")
    batches = sum(one.kernels > 0 for one in listed)
    title = f"{len(plan.kernels):,} kernel instances in {batches:,} compiles"
    print(to_text(Table(title, columns, rows, numbers=6)))
    print(f"costs: {costs.source}")


if __name__ == "__main__":
    main()
