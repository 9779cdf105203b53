"""Parses the command line and runs the command's module."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TextIO

from qola.cli import laboratory
from qola.cli.commands import COMMANDS, JSON, Parser, add_command, exit_codes
from qola.cli.console import Console, Surroundings
from qola.common.extras import MissingPackagesError
from qola.common.ruleset import CMAKE_DIR
from qola.common.suggestions import nearest
from qola.common.version import __version__
from qola_base.errors import ExitCode, QolaError
from qola_base.progress import show_progress
from qola_base.rule_main import ended_by_signals
from qola_base.system_errors import system_error

_DESCRIPTION = "AMD GPU attention libraries from a TOML manifest: plan, build, check, package."


def build_parser(command: str | None = "") -> Parser:
    """Return the parser.

    Args:
        command: the only command to add, "" for all that are installed. With None the parser
            lists the commands and imports no command's module.
    """
    parser = Parser(
        prog="qola",
        description=_DESCRIPTION,
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
    if command is None:
        for name, about in COMMANDS.items():
            commands.add_parser(name, help=about.summary)
    else:
        known = [COMMANDS[command]] if command in COMMANDS else COMMANDS.values()
        for module in dict.fromkeys(one.module for one in known if one.module):
            # Without the laboratory, the help and completions have the core's commands.
            with nullcontext() if command else suppress(laboratory.NoLaboratoryError):
                laboratory.load(module).add_commands(commands)
        help_parser = add_command(commands, "help", _help, (), words="[COMMAND]")
        help_parser.add_argument("words", nargs="*", metavar="COMMAND", help="a command")
    parser.set_defaults(program=parser, commands=commands.choices)
    return parser


def _help(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola help``."""
    for word in args.words:
        _check_command(word, args.program)
    for word in args.words or [None]:
        program = build_parser(word)
        parser = program.get_default("commands")[word] if word else program
        around.console.out.write(parser.format_help())


def _check_command(word: str, parser: argparse.ArgumentParser) -> None:
    """End with a usage error unless there is such a command."""
    if word not in COMMANDS:
        meant = nearest(word, COMMANDS)
        advice = f"did you mean {meant}?" if meant else "qola help lists the commands"
        parser.error(f"unknown command {word}; {advice}")


class _PrintCmakeDir(argparse.Action):
    """Prints the directory as it is; argparse's own actions wrap long texts."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(CMAKE_DIR)
        parser.exit()


def main(
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    directory: Path | None = None,
) -> int:
    """Run the command line, by default with the process's arguments; return the exit code.

    Paths are relative to `directory`, by default the user's: bazel run changes the directory, and
    sets BUILD_WORKING_DIRECTORY to the one in which it was started.
    """
    environ = os.environ if environ is None else environ
    if directory is None:
        directory = Path(environ.get("BUILD_WORKING_DIRECTORY") or ".")
    words = sys.argv[1:] if argv is None else argv
    sys.stdout, sys.stderr = _writable(sys.stdout), _writable(sys.stderr)
    console = Console(sys.stdout, sys.stderr)
    try:
        with ended_by_signals():
            code = _run(words, Surroundings(environ, directory, console))
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed it.
        _drop_output()
        return ExitCode.PIPE
    except (OSError, MemoryError, RuntimeError) as error:
        if (known := system_error(error)) is None:
            raise
        _drop_output()
        return _print_error(known, words, console)
    except KeyboardInterrupt:
        console.note("qola: interrupted")
        return ExitCode.INTERRUPTED
    return code


def _writable(stream: TextIO | None) -> TextIO:
    """Return a stream for any text; /dev/null if the process was started without one."""
    if stream is None:
        return open(os.devnull, "w")
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        # Names of files may have bytes that are not in the encoding.
        stream.reconfigure(errors="backslashreplace")
    return stream


def _run(words: Sequence[str], around: Surroundings) -> int:
    """Run a command, and print errors that a user can correct."""
    try:
        if not words:
            # Like pip and cargo: no arguments are not an error.
            around.console.out.write(build_parser(None).format_help())
            return ExitCode.DONE
        args = _parse(words, around.directory)
        with show_progress(around.console.err, quiet=args.quiet):
            code: int | None = args.run(args, around)
    except (laboratory.NoLaboratoryError, MissingPackagesError) as error:
        # In Bazel another program has them.
        done = laboratory.run_with_bazel(words, around.environ)
        return _print_error(error, words, around.console) if done is None else done
    except QolaError as error:
        return _print_error(error, words, around.console)
    return code or ExitCode.DONE


def _print_error(error: QolaError, words: Sequence[str], console: Console) -> int:
    """Print an error, also as JSON if requested; return its exit code."""
    console.note(str(error))
    if JSON in words:
        # Standard output may be the cause of the error.
        with suppress(OSError):
            console.line(error.to_json())
    return error.exit_code


def _drop_output() -> None:
    """Replace a broken standard output, so that Python does not report it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(words: Sequence[str], directory: Path) -> argparse.Namespace:
    """Parse with options anywhere: argparse accepts positional arguments only before options."""
    # The program's own options have no values, so the first word is the command.
    command = next((word for word in words if not word.startswith("-")), None)
    if command and command not in COMMANDS:
        _check_command(command, build_parser(None))
    parser = build_parser("" if command == "completion" else command)
    if command is None:
        # argparse would only report that the command is missing.
        parser.refuse_options([word for word in words if word not in parser.options], similar=True)
    args, rest = parser.parse_known_args(words)
    args.parser.refuse_options([word for word in rest if word.startswith("-") and word != "-"])
    if rest and not hasattr(args, "words"):
        args.parser.error(f"unknown word {' '.join(rest)}")
    if rest:
        args.words += rest
    args.command_line = shlex.join(("qola", *words))
    if "take_manifest" in args:
        args.take_manifest(args, directory)
    return args
