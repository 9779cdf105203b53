"""Compares the launches of libraries with their parsed dispatch, for problems of a user."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from qola.aiter.attention import MAIN_ROLE
from qola.attention import AttentionProblem, ProblemError, parse_lines
from qola.errors import ExitCode, Finding, QolaError
from qola.files import UnfitFileError, bounded_bytes
from qola.fmha.agreement import Compared, compared
from qola.fmha.sweep import sweep
from qola.verify.tell import archs_of, builds

_MAX_BYTES = 64 << 20
SWEEP = "sweep"
"""Stands for problems near those that the kernels serve."""


def compare_all(args: argparse.Namespace) -> int:
    """Compare; return the exit code: that of a library that launches other kernels, or none."""
    try:
        found = _all(args)
    except QolaError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    differing = sum(one.agrees is False for one in found)
    none = sum(not one.launched for one in found)
    if args.json:
        print("\n".join(one.to_json() for one in found))
    else:
        _tell(found, everything=args.problems != SWEEP)
        neither = sum(one.agrees is None for one in found)
        more = f", {neither} are not compared" if neither else ""
        print(f"{len(found)} problems: {differing} differ, {none} have no kernel{more}")
    return ExitCode.WRONG if differing or none == len(found) else ExitCode.DONE


def _tell(found: Sequence[Compared], *, everything: bool) -> None:
    """Print the results of all problems, or of differing ones."""
    for one in found:
        if everything or one.agrees is False:
            print(f"{one.arch} {one.line()}")
    for words, of in _reasons(found):
        for (arch, direction, reason), count in of.items():
            print(f"{arch} {direction}: {count} problems {words}: {reason}")


def _reasons(found: Sequence[Compared]) -> Iterator[tuple[str, Counter[tuple[str, str, str]]]]:
    """Yield the comparisons that were not possible, with counts by reason."""
    for words, neither, reason in (
        ("not compared", True, "unread"),
        ("compared with find only", False, "unread"),
        ("compared with select only", False, "unasked"),
    ):
        of = [one for one in found if (one.agrees is None) == neither and getattr(one, reason)]
        yield words, Counter((one.arch, one.problem.direction, getattr(one, reason)) for one in of)


def _all(args: argparse.Namespace) -> list[Compared]:
    """Return the results of all problems, including those of directions without a library.

    Raises:
        QolaError: the file has no problems, or none for a library; a library ended the process.
    """
    given = None if args.problems == SWEEP else read_problems(Path(args.problems))
    found: list[Compared] = []
    served: dict[str, set[str]] = {}
    for built in builds(args):
        for arch in archs_of(args, built):
            kernels = [k for k in built.kernels if arch in k.archs]
            directions = {k.direction for k in kernels} & set(MAIN_ROLE)
            served.setdefault(arch, set()).update(directions)
            swept = sweep(kernels, args.count, args.seed) if given is None else given
            if own := [one for one in swept if one.direction in directions]:
                found += compared(built, arch, own)
    if not found:
        known = ", ".join(sorted(set().union(*served.values()))) or "none"
        words = "no problem for a direction of the libraries"
        raise ProblemError(Finding(args.problems, words, f"one of {known}"))
    for arch, directions in served.items():
        words = "no library has kernels of the direction for the arch"
        found += [
            Compared(one, arch, (), (), (), unread=words, unasked=words)
            for one in given or ()
            if one.direction not in directions
        ]
    return found


def read_problems(path: Path) -> list[AttentionProblem]:
    """Return the problems of a file.

    Raises:
        ProblemError: it cannot be read, or has lines that are not problems.
    """
    try:
        return parse_lines(bounded_bytes(path, _MAX_BYTES).decode("utf-8"), str(path))
    except (OSError, UnfitFileError, UnicodeDecodeError) as error:
        words = (isinstance(error, OSError) and error.strerror) or str(error)
        raise ProblemError(Finding(str(path), words, "a file of problems")) from None
