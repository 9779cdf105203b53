"""The list of commands and their parser. Imports no command, so that `qola --help` is quick."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from qola.cli.console import Surroundings
from qola.common.suggestions import nearest
from qola.common.version import docs_url
from qola_base.errors import ExitCode, Finding, QolaError, visible

JSON = "--json"

PLANNING = (ExitCode.AITER, ExitCode.CODEGEN, ExitCode.TOOLCHAIN, ExitCode.PLAN)
"""Exit codes of commands that plan a manifest, in addition to those of all commands."""


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        module: the module that adds the command to the parser; "" for `help`.
        summary: one line for the list of commands, without a full stop.
    """

    module: str
    summary: str


_BUILD, _INIT, _MACHINE = "qola.cli.build", "qola.cli.init", "qola.cli.machine"
_PLAN, _PREBUILT, _REPORT = "qola.cli.plan", "qola.cli.prebuilt", "qola.cli.report"
_EMULATE, _RUN, _TREES = "qola_lab.cli.emulate", "qola_lab.cli.run", "qola_lab.cli.trees"

COMMANDS: Mapping[str, Command] = {
    "plan": Command(_PLAN, "count the libraries and kernel instances that a manifest builds"),
    "list": Command(_PLAN, "list the kernel instances of a manifest, one per line"),
    "explain": Command(
        _PLAN, "explain why kernel instances are in or out; without a query, count them by rule"
    ),
    "compat": Command(_TREES, "check which directions and modules an AITER tree can build"),
    "modules": Command(_TREES, "list the modules of an AITER tree, and which can be built"),
    "build": Command(_BUILD, "build the libraries of a manifest"),
    "checkout": Command(_BUILD, "prepare a patched AITER tree without building"),
    "pack": Command(_BUILD, "compile kernels of lazy libraries and put them into one file"),
    "health": Command(
        _TREES, "compare the kernels of AITER trees: resources, occupancy, faults, verdicts"
    ),
    "verify": Command(
        _RUN, "build the libraries of a manifest, emulate their kernels, compare with float64"
    ),
    "dispatch": Command(_RUN, "find the kernel that a problem launches, or why none fits"),
    "emulate": Command(_EMULATE, "run a program that uses HIP on a machine without a GPU"),
    "report": Command(_REPORT, "write a page about built libraries: kernels, resources, sizes"),
    "inspect": Command(
        _REPORT, "list the device code of libraries, and check that one compiler made it"
    ),
    "fetch": Command(_PREBUILT, "install a prebuilt bundle of a manifest without building"),
    "publish": Command(_PREBUILT, "build the bundle of a manifest and upload it"),
    "keygen": Command(_PREBUILT, "make a key pair, PREFIX.key and PREFIX.pub, to sign bundles"),
    "init": Command(_INIT, "write a starter manifest with comments"),
    "doctor": Command(_MACHINE, "check this machine for the programs and libraries qola uses"),
    "hipcc": Command(_MACHINE, "print the path of the pinned hipcc, for CMake and make"),
    "cache": Command(_MACHINE, "show the size of qola's caches, and remove old entries"),
    "completion": Command(_MACHINE, "print a script that completes commands in a shell"),
    "help": Command("", "show the help of a command; without one, list the commands"),
}


class UsageError(QolaError, title="wrong usage", exit_code=ExitCode.USAGE):
    """A command line that argparse rejects, with argparse's text."""

    def __init__(self, message: str, parser: argparse.ArgumentParser) -> None:
        usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
        super().__init__(Finding("the command line", message, usage, f"{parser.prog} --help"))
        self._text = f"{parser.format_usage()}{parser.prog}: error: {message}"

    def __str__(self) -> str:
        """Return the usage and the error, with control characters escaped."""
        return visible(self._text, keep="\n")


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError, which --json can print like every other error."""

    def format_help(self) -> str:
        """Return the help, with the URL of its page."""
        page = docs_url(f"reference/cli.md#{self.prog.replace(' ', '-')}")
        return f"{super().format_help()}\ndocumentation: {page}\n"

    def error(self, message: str) -> NoReturn:
        """Raise the error."""
        raise UsageError(message, self)

    @property
    def options(self) -> Collection[str]:
        """The parser's options, in all spellings."""
        return self._option_string_actions.keys()

    def refuse_options(self, words: Sequence[str], *, similar: bool = False) -> None:
        """Raise an error for unknown options, with the nearest known ones.

        Args:
            similar: only for those that are similar to a known one.
        """
        near = [nearest(word.partition("=")[0], self.options) for word in words]
        if any(near) if similar else words:
            self.error(f"unknown option {' '.join(words)}{_advice(near)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest a choice in the error for a value that is not among an option's choices."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = nearest(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{error.message}{_advice([near])}") from None


def _advice(near: Sequence[str]) -> str:
    meant = " ".join(filter(None, near))
    return f"; did you mean {meant}?" if meant else ""


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace, Surroundings], int | None],
    codes: Sequence[ExitCode],
    *,
    words: str = "",
    epilog: str = "",
) -> argparse.ArgumentParser:
    """Add a command to the parser's subcommands, with the common options.

    Args:
        codes: exit codes in addition to those of all commands.
        words: positional arguments, for the usage.
    """
    summary = COMMANDS[name].summary
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog="\n\n".join(filter(None, [epilog, exit_codes(codes)])),
        usage=f"qola {name} {words} [OPTION...]" if words else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(parser=parser, run=run)
    parser.add_argument("-q", "--quiet", action="store_true", help="show only warnings and errors")
    return parser


def exit_codes(codes: Sequence[ExitCode]) -> str:
    """Return the text about a command's exit codes."""
    common = {ExitCode.DONE, ExitCode.ERROR, ExitCode.USAGE}
    shown = sorted(common.union(codes, {ExitCode.INTERRUPTED, ExitCode.TERMINATED}))
    return "\n".join(["exit codes:", *(f"  {int(code):<4} {code.meaning}" for code in shown)])
