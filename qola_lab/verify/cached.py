"""The tools of qola_numeric_test, a step each, so that Bazel keeps outcomes by kernel.

`record` calls libraries and writes a case a kernel; `replay` tries one; `judge` is the test. A case
that is the same as before, whatever else changed in its library, is not tried again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from qola_base.errors import QolaError
from qola_lab.verify.case import Case, read_json, write_json
from qola_lab.verify.command import (
    add_library_options,
    add_output_options,
    built_libraries,
    report_outcomes,
    verify_requests,
)
from qola_lab.verify.outcome import Outcome, share_trials
from qola_lab.verify.replay import outcomes
from qola_lab.verify.run import record_settled, sample_kernels


def main(argv: Sequence[str] | None = None) -> int:
    """Do one step; return the exit code; only `judge` has one for wrong kernels."""
    parser = argparse.ArgumentParser(
        prog="qola_lab.verify.cached", allow_abbrev=False, fromfile_prefix_chars="@"
    )
    steps = parser.add_subparsers(required=True)
    recording = steps.add_parser("record", allow_abbrev=False)
    add_library_options(recording)
    recording.add_argument("--case", action="append", nargs=2, default=[], metavar=("NAME", "FILE"))
    recording.add_argument("--others", required=True, type=Path, metavar="FILE")
    recording.set_defaults(step=_record)
    replaying = steps.add_parser("replay", allow_abbrev=False)
    replaying.add_argument("--cases", required=True, type=Path)
    replaying.add_argument("--output", required=True, type=Path)
    replaying.set_defaults(step=_replay)
    judging = steps.add_parser("judge", allow_abbrev=False)
    judging.add_argument("outcomes", nargs="+", type=Path)
    judging.add_argument("--name", required=True)
    judging.add_argument("--fact", action="append", default=[])
    judging.add_argument("--kernels", action="append", default=[])
    add_output_options(judging)
    judging.set_defaults(step=_judge)
    args = parser.parse_args(argv)
    try:
        return int(args.step(args))
    except QolaError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)


def _record(args: argparse.Namespace) -> int:
    files = {name: Path(file) for name, file in args.case}
    found: dict[Path, list[Case]] = {file: [] for file in [*files.values(), args.others]}
    for built in built_libraries(args):
        for request in verify_requests(args, built):
            for case in record_settled(built, request, sample_kernels(built, request)):
                found[files.get(case.kernel, args.others)].append(case)
    for file, cases in found.items():
        write_json(file, cases)
    return 0


def _replay(args: argparse.Namespace) -> int:
    write_json(args.output, list(outcomes(read_json(Case, args.cases))))
    return 0


def _judge(args: argparse.Namespace) -> int:
    found = share_trials(one for file in args.outcomes for one in read_json(Outcome, file))
    return report_outcomes(args, args.name, args.fact, found)


if __name__ == "__main__":
    sys.exit(main())
