"""The command line of bench/run."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import measure, ours, report, rows
from bench.errors import BenchError
from bench.workload import ARCH, WORKLOADS
from qola.errors import Finding, QolaError

_EPILOG = """\
Rows, each with "vs AITER with ninja" and "vs CK with CMake" after it; what they mean is in
docs/internals/performance.md:

"""


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    names = "\n".join(f"  {kind.name}" for kind in rows.KINDS)
    made = argparse.ArgumentParser(
        prog="bench/run",
        description="Build the same kernels with the same compiler by AITER's own flags and "
        "ninja, by CK's generate.py and CMake, and by this project, and print what each took. "
        "Wants an idle machine; on two cores 20 to 45 minutes.",
        epilog=_EPILOG + names,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    made.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    made.add_argument(
        "--from",
        type=Path,
        metavar="FILE",
        dest="source",
        help="print the table of a file that --json wrote; measure nothing",
    )
    made.add_argument(
        "--workload",
        choices=sorted(WORKLOADS),
        default="default",
        help="what to build, of bench/workloads; families: as many kernels of a kind as "
        "TransformerEngine has; quick: one small kernel, for trying this out",
    )
    made.add_argument(
        "--only", nargs="+", default=[], metavar="ROW", help="only rows whose names begin like this"
    )
    made.add_argument(
        "--keep", type=Path, metavar="DIR", help="work in this directory, and leave it as it is"
    )
    made.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="compiles at a time (all cores)"
    )
    return made


@contextmanager
def work_directory(keep: Path | None) -> Iterator[Path]:
    """Make the directory to work in; remove it at the end unless it is to be kept.

    Raises:
        BenchError: the directory to keep holds something.
    """
    if keep is None:
        directory = Path(tempfile.mkdtemp(prefix="qola-bench-"))
        try:
            yield directory
        finally:
            ours.remove(directory)
        return
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        finding = Finding(f"--keep {keep}", "a directory with files", "an empty or a new one")
        raise BenchError(finding)
    yield keep.resolve()


def machine() -> dict[str, Any]:
    """Return what the machine is like; nothing that names it."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    described = {
        "cores": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
    return {**described, "processor": found[1]} if found else described


def progress() -> Callable[[str], None]:
    """Return what prints a line to standard error, with the time since now."""
    start = time.monotonic()

    def say(line: str) -> None:
        passed = int(time.monotonic() - start)
        print(f"bench: [{passed // 60:02d}:{passed % 60:02d}] {line}", file=sys.stderr, flush=True)

    return say


def measured(args: argparse.Namespace) -> tuple[dict[str, Any], QolaError | None]:
    """Measure; return the JSON object, and the error after which the rest was not measured."""
    chosen = rows.choose(args.only)
    workload = WORKLOADS[args.workload]
    # What bench/bootstrap.py sets is for this process alone.
    own = ("PYTHONPATH", "PYTHONSAFEPATH", "QOLA_BENCH_PACKAGES")
    packages = Path(os.environ["QOLA_BENCH_PACKAGES"])
    environ = {key: value for key, value in os.environ.items() if key not in own}
    failed = None
    with work_directory(args.keep) as work:
        bench = measure.Bench(
            work, packages, workload, rows.steps(chosen), args.jobs, environ, progress()
        )
        try:
            bench.run()
        except QolaError as error:
            # Twenty minutes of measurements are not thrown away for the last of them.
            failed = error
    found = bench.results
    made = report.report(
        rows.rows(chosen, found.values),
        found.values,
        command=f"bench/run --workload {workload.name}",
        workload={
            "manifest": f"bench/workloads/{workload.name}.toml",
            "archs": [ARCH],
            "kernels": found.kernels,
            "kernels_with_variant": found.more,
        },
        machine=machine(),
        versions=found.versions,
        jobs=args.jobs,
        notes=[*found.notes, *(["Not complete: a step failed."] if failed else [])],
    )
    return made, failed


def read_report(file: Path) -> dict[str, Any]:
    """Return the JSON object of a file.

    Raises:
        BenchError: there is none in it.
    """
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(
            Finding(f"--from {file}", str(error), "a file that bench/run --json wrote")
        ) from error
    if found.get("schema") != report.SCHEMA_VERSION:
        expected = f'"schema": {report.SCHEMA_VERSION}'
        raise BenchError(Finding(f"--from {file}", f'"schema": {found.get("schema")}', expected))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return the exit code."""
    args = parser().parse_args(arguments)
    failed: QolaError | None = None
    try:
        if args.json and not args.json.parent.is_dir():
            raise BenchError(
                Finding(f"--json {args.json}", "no such directory", "a file in a directory")
            )
        if args.source:
            found = read_report(args.source)
        else:
            found, failed = measured(args)
    except QolaError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if found["rows"]:
        print(report.markdown(found) if args.markdown else report.text(found))
    if failed:
        print(failed, file=sys.stderr)
        return failed.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
