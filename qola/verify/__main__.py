"""The program of `qola verify`: tries kernels, and writes their outcomes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from qola.errors import QolaError
from qola.progress import show_progress
from qola.verify.replay import MAX_INSTRUCTIONS
from qola.verify.run import verify
from qola.verify.tell import add_files, add_modules, builds, tell, wishes


def main(argv: Sequence[str] | None = None) -> int:
    """Try kernels; return the exit code: that of a wrong kernel, or of none that was tried."""
    parser = argparse.ArgumentParser(prog="qola.verify", allow_abbrev=False)
    add_modules(parser)
    add_files(parser)
    parser.add_argument("--max-instructions", type=int, default=MAX_INSTRUCTIONS)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args(argv)
    with show_progress(sys.stderr):
        return _verify(args)


def _verify(args: argparse.Namespace) -> int:
    try:
        found = [
            outcome
            for built in builds(args)
            for request in wishes(args, built, args.processes)
            for outcome in verify(built, replace(request, max_instructions=args.max_instructions))
        ]
        plans = [built.plan for built in builds(args)]
        facts = [
            ", ".join(built.planned.library for built in builds(args)),
            f"{args.samples} problems for each kernel, seed {args.seed}",
            f"at most {args.max_instructions:,} instructions a launch (--max-instructions)",
            f"qola {plans[0].qola}",
        ]
        return tell(args, ", ".join(dict.fromkeys(p.name for p in plans)), facts, found)
    except QolaError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
