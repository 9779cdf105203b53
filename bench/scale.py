"""Measures what a manifest with every kernel instance costs to plan and to analyse.

    ./bazelw --in-tree python3 bench/scale.py

Builds nothing: bench/everything is planned and analysed by a Bazel in a new output base, with what
is fetched from the network fetched before. Wants an idle machine with 2 cores, where it takes three
minutes. The exit code is 1 when a limit is exceeded.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EVERYTHING = ROOT / "bench" / "everything"
FETCHED_BEFORE = (
    "@aiter//:AITER.json",
    "@qola_pip_runtime//:requirements.txt",
    "@qola_rocm//:rocm.json",
)
"""What comes from the network or looks at the machine."""


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        unit: s, MB or nothing.
        limit: what it may be at most; None without a limit.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def kept(self) -> bool:
        """Whether the figure is within its limit."""
        return self.limit is None or self.value <= self.limit


class Server:
    """A Bazel with an output base of its own for a copy of bench/everything."""

    def __init__(self, directory: Path) -> None:
        self._command = ["bazel", f"--output_base={directory / 'output_base'}"]
        self._work = directory
        self.workspace = directory / "workspace"
        shutil.copytree(EVERYTHING, self.workspace)
        module = self.workspace / "MODULE.bazel"
        text = module.read_text(encoding="utf-8").replace('path = "../.."', f'path = "{ROOT}"')
        module.write_text(text, encoding="utf-8")

    def run(self, command: str, *args: str) -> tuple[float, str]:
        """Run a command; return its wall time and what it prints.

        Raises:
            SystemExit: the command failed; with its last words.
        """
        start = time.monotonic()
        argv = [*self._command, command, *args]
        done = subprocess.run(argv, cwd=self.workspace, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(argv)}\n{done.stderr[-4000:]}")
        return time.monotonic() - start, done.stdout

    def analyse(self) -> tuple[float, Mapping[str, Any]]:
        """Analyse all targets; return wall time and Bazel's own metrics."""
        events = self._work / "events.json"
        wall, _ = self.run(
            "build", "--nobuild", "--disk_cache=", f"--build_event_json_file={events}", "//..."
        )
        metrics = next(
            event["buildMetrics"]
            for event in map(json.loads, events.read_text(encoding="utf-8").splitlines())
            if "buildMetrics" in event
        )
        return wall, metrics

    def peak_megabytes(self) -> float:
        """Largest resident size the server has had, in MB."""
        pid = self.run("info", "server_pid")[1].strip()
        status = Path("/proc", pid, "status").read_text(encoding="utf-8")
        lines = dict(line.split(":", 1) for line in status.splitlines())
        return int(lines["VmHWM"].split()[0]) / 1000

    def heap_megabytes(self) -> float:
        """Size of what the server keeps, after a garbage collection, in MB."""
        return float(self.run("info", "used-heap-size-after-gc")[1].strip().removesuffix("MB"))

    def planner(self) -> tuple[float, float]:
        """Plan as `qola plan` does; return wall time and peak memory in MB."""
        (record,) = self._work.glob("output_base/external/*[~+]aiter/AITER.json")
        argv = [sys.executable, "-B", "-m", "qola", "plan", "--json", "-a", str(record.parent)]
        argv += ["--manifest", str(EVERYTHING / "everything.toml")]
        # What Bazel's own planning imports, from where Bazel fetched it.
        (site,) = self._work.glob("output_base/external/*[~+]qola_pip_runtime/site")
        env = {**os.environ, "PYTHONPATH": str(site)}
        start = time.monotonic()
        subprocess.run(argv, cwd=ROOT, env=env, check=True, capture_output=True)
        wall = time.monotonic() - start
        # The largest process so far; Bazel's client, the only other, is small.
        return wall, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000

    def plan(self) -> Mapping[str, Any]:
        """Return plan.json."""
        (file,) = self._work.glob("output_base/external/*[~+]qola_everything/plan.json")
        plan: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return plan

    def close(self) -> None:
        """End the server and remove its output base, parts of which are read-only."""
        self.run("clean", "--expunge")


def measure(server: Server) -> list[Row]:
    """Return the figures."""
    server.run("query", " + ".join(FETCHED_BEFORE))
    alone, alone_peak = server.planner()
    planned, _ = server.run("query", "@qola_everything//:plan.json")
    # Writes the kernel instances' packages, which a later analysis finds.
    first, _ = server.analyse()
    server.run("shutdown")
    cold, metrics = server.analyse()
    return [
        Row("Kernel instances in the plan", len(server.plan()["kernels"]), ""),
        Row("Plan alone: qola plan", alone, "s", 30),
        Row("Plan alone, largest process", alone_peak, "MB", 4000),
        Row("Plan as a repository of Bazel", planned, "s", 30),
        Row("First analysis, with writing the packages of kernel instances", first, "s"),
        Row("Cold analysis: a new server, all fetched and planned", cold, "s", 60),
        Row("Analysis again, nothing changed", min(server.analyse()[0] for _ in range(3)), "s", 2),
        Row("Targets", int(metrics["targetMetrics"]["targetsConfigured"]), ""),
        Row("Actions", int(metrics["actionSummary"]["actionsCreated"]), ""),
        Row("Peak memory of the server, resident", server.peak_megabytes(), "MB", 4000),
        Row("Heap the server keeps", server.heap_megabytes(), "MB"),
    ]


def table(rows: Sequence[Row]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| What | Figure | Limit |", "| --- | --- | --- |"]
    for row in rows:
        value = f"{row.value:,.1f} s" if row.unit == "s" else f"{row.value:,.0f} {row.unit}".strip()
        limit = f"{row.limit:,.0f} {row.unit}" if row.limit is not None else ""
        over = "" if row.kept else " (exceeded)"
        lines.append(f"| {row.name} | {value}{over} | {limit} |")
    return "\n".join(lines)


def main() -> int:
    """Measure and print; returns the exit code."""
    directory = Path(tempfile.mkdtemp(prefix="qola-scale-"))
    server = Server(directory)
    try:
        rows = measure(server)
    finally:
        server.close()
        shutil.rmtree(directory, ignore_errors=True)
    print(table(rows))
    load = os.getloadavg()[0]
    print(f"\n{os.cpu_count()} cores; load average at the end {load:.1f}")
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
