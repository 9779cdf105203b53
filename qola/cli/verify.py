"""``qola verify``: runs a manifest's kernels without a GPU, and holds them against float64."""

from __future__ import annotations

import argparse
import os
import subprocess
from typing import Any

from qola.build.setup import choose_all
from qola.build.verifier import build_verifier
from qola.cli.context import Surroundings
from qola.cli.options import (
    BUILD,
    REQUEST,
    add_command,
    add_options,
    positive,
)
from qola.cli.requests import build_options, request_of_build
from qola.errors import ExitCode

_CODES = (
    *(ExitCode.AITER, ExitCode.CODEGEN, ExitCode.TOOLCHAIN, ExitCode.PLAN),
    *(ExitCode.NOT_BUILT, ExitCode.WRONG),
)


def add_commands(commands: Any) -> None:
    """Add verify to the parser's subcommands."""
    text = "build a manifest's libraries, emulate their kernels, and compare with float64"
    parser = add_command(
        commands,
        "verify",
        text,
        _verify,
        _CODES,
        epilog="No GPU is needed or used; docs/internals/emulation.md says what cannot be seen.",
    )
    add_options(parser, "manifest", required=True)
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
        *("-o", "--output"),
        metavar="FILE.json",
        help="also write all of it there: problems, largest errors, what was found",
    )
    parser.add_argument("--junit", metavar="FILE.xml", help="also write a test suite for CI there")
    parser.add_argument(
        "--html", metavar="FILE.html", help="also write a page for people there, in one file"
    )
    add_options(parser, *REQUEST[1:], *BUILD)


def _verify(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola verify``."""
    console, environ = around.console, around.environ
    chosen = choose_all(request_of_build(args, around), environ, console.progress)
    with console.working(plain=args.verbose) as progress:
        program, error = build_verifier(chosen, build_options(args), environ, progress)
    if program is None:
        console.line("FAILED: the libraries were not built")
        for line in error.splitlines():
            console.line(f"  {line}")
        return ExitCode.NOT_BUILT
    words = [str(program), f"--samples={args.samples}", f"--seed={args.seed}"]
    words += [f"--kernels={pattern}" for pattern in args.kernels]
    words += [f"--processes={args.jobs}"] if args.jobs else []
    places = {"json": args.output, "junit": args.junit, "html": args.html}
    directory = around.directory.absolute()
    words += [f"--{name}={directory / place}" for name, place in places.items() if place]
    quiet = subprocess.DEVNULL if args.quiet else None
    # Runfiles of a Bazel around this process are not the program's.
    inherited = {k: v for k, v in environ.items() if not k.startswith(("RUNFILES_", "TEST_"))}
    console.out.flush()
    variables = {"PATH": os.defpath, **inherited}
    ran = subprocess.run(words, env=variables, stdout=subprocess.PIPE, stderr=quiet, check=False)
    console.line(ran.stdout.decode(errors="replace").rstrip("\n"))
    return ran.returncode if ran.returncode >= 0 else ExitCode.ERROR
