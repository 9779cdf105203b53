"""``qola verify``: runs a manifest's libraries without a GPU."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from qola.build.bazel import beside, find_bazel
from qola.build.setup import resolve_build
from qola.build.verifier import build_program
from qola.cli.console import Surroundings
from qola.cli.options import (
    BUILD,
    REQUEST,
    add_command,
    add_manifest,
    add_options,
    positive,
)
from qola.cli.requests import build_options, build_request
from qola.errors import ExitCode
from qola.progress import flush_progress
from qola.ruleset import ruleset_root

CODES = (
    *(ExitCode.AITER, ExitCode.CODEGEN, ExitCode.TOOLCHAIN, ExitCode.PLAN),
    *(ExitCode.NOT_BUILT, ExitCode.WRONG),
)


def add_commands(commands: Any) -> None:
    """Add verify to the parser's subcommands."""
    parser = add_command(
        commands,
        "verify",
        _verify,
        CODES,
        words="MANIFEST",
        epilog="No GPU is needed or used; docs/internals/emulation.md says what cannot be seen.",
    )
    add_manifest(parser)
    parser.add_argument(
        "--kernels",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only kernels of such names, with * and ?; repeatable",
    )
    parser.add_argument(
        "--samples",
        type=positive,
        default=3,
        metavar="N",
        help="problems for each kernel (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the problems: the same for the same seed (default: %(default)s)",
    )
    parser.add_argument(
        "--max-instructions",
        type=positive,
        metavar="N",
        help="limit for a launch, which then counts as endless (default: 100 million)",
    )
    parser.add_argument(
        *("-o", "--output"),
        metavar="FILE.json",
        help="also write all of it there: problems, largest errors, what was found",
    )
    parser.add_argument("--junit", metavar="FILE.xml", help="also write a test suite for CI there")
    parser.add_argument(
        "--html", metavar="FILE.html", help="also write a page for people there, in one file"
    )
    add_options(parser, *REQUEST, *BUILD)


def _verify(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola verify``."""
    words = [f"--samples={args.samples}", f"--seed={args.seed}"]
    words += [f"--max-instructions={n}"] if (n := args.max_instructions) else []
    words += [f"--kernels={pattern}" for pattern in args.kernels]
    words += [f"--processes={args.jobs}"] if args.jobs else []
    places = {"json": args.output, "junit": args.junit, "html": args.html}
    return run_program("verify", words + placed(around, places), args, around)


def placed(around: Surroundings, places: Mapping[str, str | None]) -> list[str]:
    """Return options with files, wherever the program runs."""
    directory = around.directory.absolute()
    return [f"--{name}={directory / place}" for name, place in places.items() if place]


def run_program(
    name: str, words: Sequence[str], args: argparse.Namespace, around: Surroundings
) -> int:
    """Build a program for a manifest's libraries and run it; return its exit code."""
    console, environ = around.console, around.environ
    chosen = resolve_build(build_request(args, around), environ)
    program, error = build_program(name, chosen, build_options(args), environ)
    if program is None:
        console.line("FAILED: the libraries were not built")
        for line in error.splitlines():
            console.line(f"  {line}")
        return ExitCode.NOT_BUILT
    quiet = subprocess.DEVNULL if args.quiet else None
    # Runfiles of a Bazel around this process are not the program's.
    inherited = {k: v for k, v in environ.items() if not k.startswith(("RUNFILES_", "TEST_"))}
    flush_progress()
    console.out.flush()
    ruleset = ruleset_root()
    command = [*beside(find_bazel(environ, ruleset), ruleset), str(program), *words]
    variables = {"PATH": os.defpath, **inherited}
    ran = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=quiet, check=False)
    console.line(ran.stdout.decode(errors="replace").rstrip("\n"))
    return ran.returncode if ran.returncode >= 0 else ExitCode.ERROR
