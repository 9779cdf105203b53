"""The program of kernel_numeric_test and of `qola verify`: tries kernels, and writes what came."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from qola.emulate.code_object import ARCHS
from qola.errors import ExitCode, Finding, QolaError
from qola.verify.outcome import Outcome, count, lines, to_json, to_junit
from qola.verify.page import render
from qola.verify.run import Built, VerifyError, Wish, verify


def main(argv: Sequence[str] | None = None) -> int:
    """Try kernels; return the exit code: that of a wrong kernel, or of none that was tried."""
    args = _parser().parse_args(argv)
    builds = _builds(args)
    try:
        outcomes = _outcomes(args, builds)
    except QolaError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    print("\n".join(lines(outcomes)))
    if args.json:
        Path(args.json).write_text(to_json(outcomes), encoding="utf-8")
    if args.junit:
        Path(args.junit).write_text(to_junit(outcomes, "qola.verify"), encoding="utf-8")
    if args.html:
        Path(args.html).write_text(_page(args, builds, outcomes), encoding="utf-8")
    counts = count(outcomes)
    return ExitCode.WRONG if counts["failed"] or not counts["passed"] else ExitCode.DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="qola.verify", allow_abbrev=False)
    parser.add_argument(
        "--module",
        action="append",
        nargs=4,
        required=True,
        metavar=("NAME", "LIBRARY", "CALLER", "PLAN"),
    )
    parser.add_argument("--runtime", required=True, type=Path)
    parser.add_argument("--kernels", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--arch", action="append", default=[])
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json")
    parser.add_argument("--html")
    parser.add_argument("--junit", default=os.environ.get("XML_OUTPUT_FILE"))
    return parser


def _builds(args: argparse.Namespace) -> list[Built]:
    return [
        Built(name, Path(library), Path(caller), args.runtime, Path(plan).parent)
        for name, library, caller, plan in args.module
    ]


def _page(args: argparse.Namespace, builds: Sequence[Built], outcomes: Sequence[Outcome]) -> str:
    plans = [built.plan for built in builds]
    facts = [
        ", ".join(sorted({outcome.arch for outcome in outcomes})),
        ", ".join(built.planned.library for built in builds),
        f"{args.samples} problems for each kernel, seed {args.seed}",
        f"qola {plans[0].qola}",
    ]
    return render(", ".join(dict.fromkeys(plan.name for plan in plans)), facts, outcomes)


def _outcomes(args: argparse.Namespace, builds: Sequence[Built]) -> list[Outcome]:
    found: list[Outcome] = []
    for built in builds:
        for arch in args.arch or built.plan.archs:
            if arch not in ARCHS.values():
                known = f"one of {', '.join(sorted(ARCHS.values()))}"
                raise VerifyError(Finding(arch, "an arch that is not emulated", known))
            wish = Wish(
                arch,
                tuple(args.kernels),
                samples=args.samples,
                seed=args.seed,
                processes=args.processes,
            )
            found += verify(built, wish, _note)
    if not found:
        patterns = " ".join(args.kernels) or "the libraries"
        raise VerifyError(Finding(patterns, "no kernel", "a name of `qola list`, with * and ?"))
    return sorted(found, key=lambda outcome: (outcome.kernel, outcome.arch))


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
