"""The program of launch tests: ``source`` writes what calls a library, ``run`` is the test."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from qola.files import write_if_changed
from qola.launch.program import caller, program
from qola.launch.proof import prove
from qola.plan.model import Plan
from qola.rule_main import run_main


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the rules."""
    parser = argparse.ArgumentParser(prog="qola.launch", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    source = commands.add_parser("source", help="write the C++ of a program that calls a library")
    source.add_argument("--caller", action="store_true", help="a library; values come by name")
    source.add_argument("--output", required=True, type=Path, help="file to write")
    run = commands.add_parser("run", help="run it, and fail where an entry point launches nothing")
    run.add_argument("--program", required=True, type=Path, help="the program, built")
    run.add_argument("--runtime", required=True, type=Path, help="the fake HIP runtime")
    run.add_argument("--library", required=True, type=Path, help="the library")
    run.add_argument("--archs", required=True, nargs="+", help="those it has code for")
    for command in (source, run):
        command.add_argument("--plan", required=True, type=Path, help="plan.json")
        command.add_argument("--module", required=True, help="the library's, as the plan has it")
    args = parser.parse_args(argv)
    return run_main(lambda: (_run if args.command == "run" else _source)(args))


def _source(args: argparse.Namespace) -> None:
    plan = Plan.from_json(args.plan.read_text(encoding="utf-8"))
    write = caller if args.caller else program
    write_if_changed(args.output, write(plan.module(args.module)))


def _run(args: argparse.Namespace) -> None:
    plan = Plan.from_json(args.plan.read_text(encoding="utf-8"))
    library = args.library.absolute()
    proofs = prove(
        plan,
        plan.module(args.module),
        args.archs,
        args.program.absolute(),
        args.runtime.absolute(),
        [library.parent],
    )
    for proof in proofs:
        print("\n".join(proof.lines()))
    if not (proofs and all(proof.ran for proof in proofs)):
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
