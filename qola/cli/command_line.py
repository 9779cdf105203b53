"""The command line: parses, and hands over to the module of the command."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from qola.cli import build, compat, init, plan, prebuilt
from qola.cli.console import Console
from qola.cli.context import Surroundings
from qola.cli.options import exit_codes
from qola.errors import ExitCode, QolaError
from qola.ruleset import cmake_dir
from qola.version import __version__


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="qola",
        description="AMD GPU attention libraries from a manifest: what it builds, why; builds it.",
        epilog=exit_codes(list(ExitCode)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"qola {__version__}")
    parser.add_argument(
        "--cmake-dir",
        action=_PrintCmakeDir,
        nargs=0,
        help="print the directory of qola.cmake, for CMake's include, and exit",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (plan, compat, build, prebuilt, init):
        module.add_commands(commands)
    return parser


class _PrintCmakeDir(argparse.Action):
    """Prints the directory as it is; argparse's own actions wrap long texts."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(cmake_dir())
        parser.exit()


def main(
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    directory: Path | None = None,
) -> int:
    """Run the command line, by default with the process's arguments; return the exit code.

    Relative paths are relative to `directory`, by default where the user is: bazel run changes the
    directory, and says in BUILD_WORKING_DIRECTORY where it was started.
    """
    environ = os.environ if environ is None else environ
    if directory is None:
        directory = Path(environ.get("BUILD_WORKING_DIRECTORY") or ".")
    args = _parse(sys.argv[1:] if argv is None else argv)
    console = Console(sys.stdout, sys.stderr, args.quiet)
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        code: int | None = args.run(args, Surroundings(environ, directory, console))
        sys.stdout.flush()
    except QolaError as error:
        console.note(str(error))
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.PIPE
    except KeyboardInterrupt:
        console.note("qola: interrupted")
        return ExitCode.INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    return code or ExitCode.DONE


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse, with options anywhere: argparse alone takes words up to the first option only."""
    args, rest = build_parser().parse_known_args(words)
    unknown = [word for word in rest if word.startswith("-") and word != "-"]
    if unknown:
        args.parser.error(f"unknown option {' '.join(unknown)}")
    if rest and not hasattr(args, "words"):
        args.parser.error(f"unknown word {' '.join(rest)}")
    if rest:
        args.words += rest
    return args


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Leave by way of every `with`, so that temporary directories are removed."""
    sys.exit(ExitCode.TERMINATED)
