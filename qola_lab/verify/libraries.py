"""Command line options for libraries. Imports only the standard library."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_libraries(parser: argparse.ArgumentParser) -> None:
    """Add options for libraries, and for the archs to try them on."""
    parser.add_argument(
        "--module",
        action="append",
        nargs=4,
        required=True,
        metavar=("NAME", "LIBRARY", "CALLER", "PLAN"),
    )
    parser.add_argument("--runtime", required=True, type=Path)
    parser.add_argument("--arch", action="append", default=[])


def places(args: argparse.Namespace) -> list[tuple[str, dict[str, str]]]:
    """Return the module of each library, and the other fields of its `verify.host.Built`."""
    return [
        (
            name,
            {
                "repository": str(Path(plan).parent),
                "library": library,
                "caller": caller,
                "runtime": str(args.runtime),
            },
        )
        for name, library, caller, plan in args.module
    ]
