"""Prints how long a manifest takes from empty caches on how many remote workers.

    bench/python bench/simulate_workers.py --aiter TREE

Plans the manifest (by default everything: receipt 600 of both directions for both archs), takes the
cost of each compile from qola/inspect/costs.json and hands them to workers as Bazel would
(bench/workers.py). A worker is one core. Where defaults come from: docs/internals/scaling.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.workers import Network, Outcome, Task, bound, simulate, tasks_of
from qola.aiter.tree import read_tree
from qola.cli.console import Table, duration, size, to_text
from qola.folder import Folder
from qola.inspect.costs import load_costs
from qola.inspect.estimate import compiles
from qola.manifest.load import loads
from qola.plan.planner import build_plan
from qola.plan.request import Request
from qola.plan.resolve import resolve

EVERYTHING = Path(__file__).resolve().parent / "everything/everything.toml"
WORKERS = (1, 2, 8, 32, 128, 256, 512, 1024)
# What every compile reads, and the rest it reads; bench/action_inputs.py measured both.
SDK_BYTES, SOURCE_BYTES = 284e6, 4e3


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--aiter", type=Path, required=True, help="AITER source tree")
    parser.add_argument(
        "--manifest", type=Path, default=EVERYTHING, help="what to build (default: everything)"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS, help="how many")
    parser.add_argument(
        "--worker-rate", type=float, default=125e6, help="bytes/s of a worker (default: 1 Gbit/s)"
    )
    parser.add_argument(
        "--client-rate", type=float, default=12.5e6, help="bytes/s of the client (100 Mbit/s)"
    )
    parser.add_argument(
        "--client-seconds", type=float, default=0.02, help="the client's time per action"
    )
    parser.add_argument(
        "--link-rate", type=float, default=100e6, help="bytes of objects linked per second"
    )
    return parser.parse_args()


def row(tasks: Sequence[Task], found: Outcome) -> tuple[str, ...]:
    """Return a line of the table."""
    return (
        f"{found.workers:,}",
        duration(found.wall_seconds),
        f"{found.wall_seconds / bound(tasks, found.workers):.2f}",
        f"{found.use:.0%}",
        duration(found.fetch_seconds / found.workers),
        size(found.client_bytes),
    )


def main() -> None:
    """Plan, simulate and print."""
    args = parse_arguments()
    text = args.manifest.read_text(encoding="utf-8")
    costs = load_costs()
    request = Request("simulated", loads(text, file="manifest"), read_tree(args.aiter))
    plan = build_plan(resolve(request), Folder())
    found = compiles(plan, costs)
    tasks = tasks_of(
        found,
        shared=["sdk"],
        source_bytes=SOURCE_BYTES,
        link_rate=args.link_rate,
    )
    network = Network(args.worker_rate, args.client_rate, args.client_seconds)
    libraries = [task.name for task in tasks if task.after]
    rows = [
        row(tasks, simulate(tasks, workers, network, {"sdk": SDK_BYTES}, libraries))
        for workers in args.workers
    ]
    total = sum(task.seconds for task in tasks)
    columns = ("workers", "from empty caches", "of the bound", "used", "waits for bytes", "client")
    batches = sum(one.kernels > 0 for one in found)
    title = f"{len(plan.kernels):,} kernel instances in {batches:,} compiles"
    title += f", {duration(total)} of one core"
    print(to_text(Table(title, columns, rows, numbers=6)))
    print(f"costs: {costs.source}")


if __name__ == "__main__":
    main()
