"""The command line of bench/run."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import measure, ours, report
from bench.processes import BenchError
from bench.setting import Setting, processor
from bench.workload import ARCH, WORKLOADS
from qola_base.errors import Finding, QolaError

_EPILOG = """\
Rows, each with the suffix "vs AITER with ninja" or "vs CK with CMake". Their meaning is explained
in docs/internals/performance.md:

"""


def _parser() -> argparse.ArgumentParser:
    names = "\n".join(f"  {kind.name}" for kind in report.KINDS)
    parser = argparse.ArgumentParser(
        prog="bench/run",
        description="Build the same kernels with the same compiler with AITER's own flags and "
        "ninja, with CK's generate.py and CMake, and with this project, and compare time, memory "
        "and size. Needs an idle machine, except for CPU times and sizes; takes 25 to 70 minutes "
        "on two cores. Ctrl-C prints the rows of completed rounds.",
        epilog=_EPILOG + names,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument(
        "--from",
        type=Path,
        metavar="FILE",
        dest="source",
        help="print the table of a file written by --json, without measuring",
    )
    parser.add_argument(
        "--workload",
        choices=sorted(WORKLOADS),
        default="families",
        help="manifest in bench/workloads to build: families (default), as many kernels per family "
        "as TransformerEngine has; modules, of AITER's Python; quick, one small kernel as a check",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="ROW",
        help="measure only rows whose names begin with ROW; of the workload modules, build only "
        "the modules that they name",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        metavar="N",
        help="rounds in which the sides alternate (default: 5); 1 on a busy machine",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="work in this directory, and keep it"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="concurrent compiles (default: all cores)",
    )
    return parser


@contextmanager
def _work_directory(keep: Path | None) -> Iterator[Path]:
    """Create the directory to work in; remove it at the end unless `keep` names it.

    Raises:
        BenchError: `keep` is not empty.
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


def _machine() -> dict[str, Any]:
    """Return cores, memory and processor of this machine, without its name."""
    return {
        "cores": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "processor": processor(),
    }


def _progress() -> Callable[[str], None]:
    """Return a function that prints a line to standard error, with the elapsed time."""
    start = time.monotonic()

    def say(line: str) -> None:
        passed = int(time.monotonic() - start)
        print(f"bench: [{passed // 60:02d}:{passed % 60:02d}] {line}", file=sys.stderr, flush=True)

    return say


def _measure(
    args: argparse.Namespace,
) -> tuple[dict[str, Any], QolaError | KeyboardInterrupt | None]:
    """Measure; return the report, and the exception that ended the measurement early."""
    workload = WORKLOADS[args.workload]
    if workload.modules:
        # CK's CMake files build no module of AITER's, and there is no further variant.
        kinds = report.kinds({module: module for module in workload.modules})
        kinds = tuple(kind for kind in kinds if kind.ours != "change_seconds")
        chosen = report.choose(args.only, kinds, ["aiter"])
        workload = workload.only({kind.part for kind, _ in chosen})
    else:
        chosen = report.choose(args.only)
    # Set by bench/python for this process only.
    own = ("PYTHONPATH", "QOLA_BENCH_PACKAGES")
    packages = Path(os.environ["QOLA_BENCH_PACKAGES"])
    environ = {key: value for key, value in os.environ.items() if key not in own}
    failed: QolaError | KeyboardInterrupt | None = None
    with _work_directory(args.keep) as work:
        setting = Setting(work, args.jobs, environ)
        steps = report.steps(chosen)
        bench = measure.Bench(setting, packages, workload, steps, args.rounds, _progress())
        try:
            bench.run()
        except (QolaError, KeyboardInterrupt) as error:
            # Report the measurements before the failure.
            failed = error
    found = bench.results
    reported = {
        **report.figures(report.rows(chosen, found.values), found.values),
        "command": f"bench/run --workload {workload.name}",
        "workload": {
            "manifest": f"bench/workloads/{workload.name}.toml",
            "archs": [ARCH],
            "kernels": found.kernels,
        },
        "machine": _machine(),
        "versions": found.versions,
        "jobs": args.jobs,
        "notes": [*found.notes, *(["Incomplete: failed or interrupted."] if failed else [])],
    }
    return reported, failed


def _read_report(file: Path) -> dict[str, Any]:
    """Read a report.

    Raises:
        BenchError: the file is not a report of bench/run.
    """
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(
            Finding(f"--from {file}", str(error), "a file written by bench/run --json")
        ) from error
    if found.get("schema") != report.SCHEMA_VERSION:
        expected = f'"schema": {report.SCHEMA_VERSION}'
        raise BenchError(Finding(f"--from {file}", f'"schema": {found.get("schema")}', expected))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    args = _parser().parse_args(arguments)
    failed: QolaError | KeyboardInterrupt | None = None
    try:
        if args.json and not args.json.parent.is_dir():
            raise BenchError(
                Finding(f"--json {args.json}", "no such directory", "a file in a directory")
            )
        if args.source:
            found = _read_report(args.source)
        else:
            found, failed = _measure(args)
    except QolaError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if found["rows"]:
        print(report.markdown(found))
    if isinstance(failed, QolaError):
        print(failed, file=sys.stderr)
        return failed.exit_code
    return 130 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
