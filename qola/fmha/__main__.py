"""The program of `qola dispatch`: which kernels problems are launched with, on no device at all."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from qola.errors import ExitCode, Finding, QolaError
from qola.fmha.agreement import Compared, compared
from qola.fmha.problem import ArraysError, Problem
from qola.fmha.sweep import read, sweep
from qola.launch.problems import MAIN_ROLE
from qola.verify.run import Built
from qola.verify.tell import add_libraries, archs_of, builds

SWEEP = "sweep"
"""The word for problems around what the kernels serve."""


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; return the exit code: that of a library that launches other kernels, or none."""
    parser = argparse.ArgumentParser(prog="qola.fmha", allow_abbrev=False)
    add_libraries(parser)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--problems")
    asked.add_argument("--places", action="store_true")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    if args.places:
        print(json.dumps({one.module: _places(one) for one in builds(args)}))
        return ExitCode.DONE
    try:
        found = [one for built in builds(args) for one in _of(built, args)]
        if not found:
            words = "no problem for a direction of the libraries"
            raise ArraysError(Finding(args.problems, words, "directions fwd, fwd_splitkv, bwd"))
    except QolaError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    if args.json:
        args.json.write_text("".join(f"{one.to_json()}\n" for one in found), encoding="utf-8")
    differing = [one for one in found if not one.agrees]
    shown = differing if args.problems == SWEEP else found
    for one in shown:
        print(f"{one.arch} {one.line()}")
    none = sum(not one.launched for one in found)
    print(f"{len(found)} problems: {len(differing)} differ, {none} have no kernel")
    return ExitCode.WRONG if differing or none == len(found) else ExitCode.DONE


def _places(built: Built) -> dict[str, str]:
    return {name: str(place) for name, place in vars(built).items() if name != "module"}


def _of(built: Built, args: argparse.Namespace) -> Iterator[Compared]:
    given = None if args.problems == SWEEP else _read(Path(args.problems))
    for arch in archs_of(args, built):
        kernels = [k for k in built.kernels if arch in k.archs]
        directions = {k.direction for k in kernels} & set(MAIN_ROLE)
        problems = list(sweep(kernels, args.count, args.seed)) if given is None else given
        own = [one for one in problems if one.direction in directions]
        if own:
            yield from compared(built, arch, own)


def _read(path: Path) -> list[Problem]:
    try:
        return read(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        words = error.strerror or str(error)
        raise ArraysError(Finding(str(path), words, "a file of problems")) from None


if __name__ == "__main__":
    sys.exit(main())
