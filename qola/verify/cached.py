"""The tools of qola_numeric_test, a step each, so that Bazel keeps outcomes by kernel.

`record` calls libraries and writes a case a kernel; `replay` tries one; `judge` is the test. A case
that is the same as before, whatever else changed in its library, is not tried again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from qola.errors import QolaError
from qola.verify import case, outcome
from qola.verify.replay import outcomes
from qola.verify.run import record_settled
from qola.verify.tell import add_files, add_modules, builds, tell, wishes


def main(argv: Sequence[str] | None = None) -> int:
    """Do one step; return the exit code; only `judge` has one for wrong kernels."""
    parser = argparse.ArgumentParser(
        prog="qola.verify.cached", allow_abbrev=False, fromfile_prefix_chars="@"
    )
    steps = parser.add_subparsers(required=True)
    recording = steps.add_parser("record", allow_abbrev=False)
    add_modules(recording)
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
    add_files(judging)
    judging.set_defaults(step=_judge)
    args = parser.parse_args(argv)
    try:
        return int(args.step(args))
    except QolaError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)


def _record(args: argparse.Namespace) -> int:
    files = {name: Path(file) for name, file in args.case}
    found: dict[Path, list[case.Case]] = {file: [] for file in [*files.values(), args.others]}
    for built in builds(args):
        for one in record_settled(built, wishes(args, built)):
            found[files.get(one.kernel, args.others)].append(one)
    for file, cases in found.items():
        file.write_text(case.to_json(cases), encoding="utf-8")
    return 0


def _replay(args: argparse.Namespace) -> int:
    cases = case.from_json(args.cases.read_text(encoding="utf-8"))
    args.output.write_text(outcome.to_json(outcomes(cases)), encoding="utf-8")
    return 0


def _judge(args: argparse.Namespace) -> int:
    texts = (file.read_text(encoding="utf-8") for file in args.outcomes)
    return tell(args, args.name, args.fact, [one for t in texts for one in outcome.from_json(t)])


if __name__ == "__main__":
    sys.exit(main())
