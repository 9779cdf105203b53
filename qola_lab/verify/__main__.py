"""The program of `qola verify`: tries kernels, and writes their outcomes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from qola.common.processes import available_cores
from qola_base.errors import QolaError
from qola_base.files import write_if_changed
from qola_base.progress import show_progress
from qola_lab.verify.command import (
    add_library_options,
    add_output_options,
    built_libraries,
    report_error,
    report_outcomes,
    verify_requests,
)
from qola_lab.verify.outcome import to_verdicts
from qola_lab.verify.replay import MAX_INSTRUCTIONS
from qola_lab.verify.run import verify
from qola_lab.verify.store import VerdictStore

#: Default limit of problems: how many times --samples.
_ROUNDS = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Try kernels; return the exit code: that of a wrong kernel, or of none that was tried."""
    parser = argparse.ArgumentParser(prog="qola_lab.verify", allow_abbrev=False)
    add_library_options(parser)
    add_output_options(parser)
    parser.add_argument("--verdicts", type=Path)
    parser.add_argument("--max-samples", type=int, default=0)
    parser.add_argument("--max-instructions", type=int, default=MAX_INSTRUCTIONS)
    parser.add_argument("--processes", type=int, default=available_cores())
    args = parser.parse_args(argv)
    with show_progress(sys.stderr):
        return _verify(args)


def _verify(args: argparse.Namespace) -> int:
    libraries = built_libraries(args)
    store = VerdictStore(os.environ)
    most = args.max_samples or _ROUNDS * args.samples
    how = {
        "max_samples": most,
        "max_instructions": args.max_instructions,
        "processes": args.processes,
    }
    try:
        found = [
            outcome
            for built in libraries
            for request in verify_requests(args, built, **how)
            for outcome in verify(built, request, store)
        ]
        facts = [
            ", ".join(built.planned.library for built in libraries),
            f"{args.samples} problems for each kernel, seed {args.seed}",
            f"at most {most} where code has not run (--max-samples)",
            f"at most {args.max_instructions:,} instructions a launch (--max-instructions)",
            f"qola {libraries[0].plan.qola}",
        ]
        if args.verdicts and found:
            plan = libraries[0].plan
            depends = {
                "aiter": plan.aiter.id,
                "problems": f"{args.samples} for each kernel, seed {args.seed}",
                "sources": store.sources[:16],
            }
            write_if_changed(args.verdicts, to_verdicts(depends, found))
        name = ", ".join(dict.fromkeys(built.plan.name for built in libraries))
        return report_outcomes(args, name, facts, found)
    except QolaError as error:
        return report_error(args, error)


if __name__ == "__main__":
    sys.exit(main())
