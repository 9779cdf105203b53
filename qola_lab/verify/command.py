"""Options and output that the programs of verification share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gfxemu.launch import ARCHS
from qola_base.errors import ExitCode, Finding, QolaError
from qola_lab.verify.host import Built
from qola_lab.verify.libraries import add_libraries, places
from qola_lab.verify.outcome import Outcome, count, lines, to_json, to_junit
from qola_lab.verify.page import render
from qola_lab.verify.repository import VerifyError
from qola_lab.verify.run import VerifyRequest


def add_library_options(parser: argparse.ArgumentParser) -> None:
    """Add options for libraries, and for the problems of their kernels."""
    add_libraries(parser)
    parser.add_argument("--kernels", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)


def built_libraries(args: argparse.Namespace) -> list[Built]:
    """Return the libraries."""
    return [
        Built(module, **{name: Path(place) for name, place in own.items()})
        for module, own in places(args)
    ]


def _emulated_archs(args: argparse.Namespace, built: Built) -> list[str]:
    """Return the archs to try a library on; print those of the library that are not emulated.

    Raises:
        VerifyError: an arch of the arguments, or each of the library, is not emulated.
    """
    archs = list(args.arch or built.plan.archs)
    others = [arch for arch in archs if arch not in ARCHS]
    if others and (args.arch or others == archs):
        known = f"one of {', '.join(ARCHS)}"
        raise VerifyError(Finding(others[0], "an arch that is not emulated", known))
    if others:
        message = f"{built.planned.library} is not tried on {', '.join(others)}: not emulated"
        print(message, file=sys.stderr)
    return [arch for arch in archs if arch in ARCHS]


def verify_requests(args: argparse.Namespace, built: Built, **more: int) -> list[VerifyRequest]:
    """Return the requests for a library, one for each arch, with more fields of them."""
    return [
        VerifyRequest(arch, tuple(args.kernels), args.samples, args.seed, **more)
        for arch in _emulated_archs(args, built)
    ]


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add options for the output."""
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--html", type=Path)
    parser.add_argument("--junit", default=os.environ.get("XML_OUTPUT_FILE"))


def report_error(args: argparse.Namespace, error: QolaError) -> int:
    """Print an error, also as JSON if requested; return its exit code."""
    print(error, file=sys.stderr)
    if args.json:
        print(error.to_json())
    return error.exit_code


def report_outcomes(
    args: argparse.Namespace, name: str, facts: Sequence[str], outcomes: Sequence[Outcome]
) -> int:
    """Print and write outcomes; return the exit code, WRONG if a kernel failed or none was tried.

    Args:
        name: of the page.
        facts: how the kernels were tried, on the first line and below the page's title.

    Raises:
        VerifyError: the libraries have no such kernel.
    """
    if not outcomes:
        patterns = " ".join(args.kernels) or "the libraries"
        raise VerifyError(Finding(patterns, "no kernel", "a name of `qola list`, with * and ?"))
    found = sorted(outcomes, key=lambda outcome: (outcome.kernel, outcome.arch))
    text = to_json(found) if args.json else "\n".join(["; ".join(facts), *lines(found), ""])
    print(text, end="")
    if args.junit:
        Path(args.junit).write_text(to_junit(found), encoding="utf-8")
    if args.html:
        archs = ", ".join(sorted({outcome.arch for outcome in found}))
        args.html.write_text(render(name, [archs, *facts], found), encoding="utf-8")
    counts = count(found)
    return ExitCode.WRONG if counts["failed"] or not counts["passed"] else ExitCode.DONE
