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

from qola.cli import init as cli_init
from qola.cli import kernels as cli_kernels
from qola.cli import plan as cli_plan
from qola.cli import prebuilt as cli_prebuilt
from qola.cli.build import add_commands
from qola.cli.console import Console
from qola.cli.context import Surroundings
from qola.errors import QolaError
from qola.ruleset import cmake_dir
from qola.version import __version__

EXIT_UNEXPECTED, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_PIPE, EXIT_TERMINATED = 1, 2, 130, 141, 143

_EXIT_CODES = """\
exit codes: 0 done; 1 an error of qola's own; 2 wrong usage, an invalid manifest, or a query that
finds nothing; 3 the AITER tree, 4 a generator, 6 the plan: what is wrong is on standard error;
qola build has more: qola build --help"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="qola",
        description="AMD GPU attention libraries from a manifest: what it builds, why; builds it.",
        epilog=_EXIT_CODES,
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
    cli_plan.add_commands(commands)
    add_commands(commands)
    cli_prebuilt.add_commands(commands)
    cli_kernels.add_command(commands)
    cli_init.add_command(commands)
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
    """Run the command line.

    Args:
        argv: its arguments; those of the process by default.
        environ: the environment; that of the process by default.
        directory: what relative paths are relative to. By default where the user is: bazel run
            changes the directory, and says in BUILD_WORKING_DIRECTORY where it was started.

    Returns:
        The exit code.
    """
    environ = os.environ if environ is None else environ
    if directory is None:
        directory = Path(environ.get("BUILD_WORKING_DIRECTORY") or ".")
    args = _parse(argv)
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
        return EXIT_PIPE
    except KeyboardInterrupt:
        console.note("qola: interrupted")
        return EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    return code or 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse, with options anywhere: argparse alone takes words up to the first option only."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == [cli_kernels.COMMAND]:
        # With a bundle, they are another program's.
        return cli_kernels.parse(words[1:])
    args, rest = build_parser().parse_known_args(words)
    unknown = [word for word in rest if word.startswith("-") and word != "-"]
    if unknown:
        args.parser.error(f"unknown option {' '.join(unknown)}")
    args.words += rest
    return args


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Leave by way of every `with`, so that temporary directories are removed."""
    sys.exit(EXIT_TERMINATED)


if __name__ == "__main__":
    # As ROCm/QoLA's CMake functions call it: python -m qola.cli.command_line.
    sys.exit(main())
