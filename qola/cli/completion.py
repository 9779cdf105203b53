"""``qola completion``: completes commands, options and files in a shell."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from qola.cli.console import Surroundings
from qola.cli.options import add_command

_SHELLS = ("bash", "zsh", "fish")


def add_commands(commands: Any) -> None:
    """Add completion to the parser's subcommands."""
    epilog = 'bash: eval "$(qola completion bash)" in ~/.bashrc'
    parser = add_command(commands, "completion", _completion, (), epilog=epilog)
    parser.add_argument("shell", choices=_SHELLS, metavar="|".join(_SHELLS), help="the shell")


def _completion(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola completion``."""
    # Imported here alone: no other command needs it.
    shtab = importlib.import_module("shtab")
    for command in args.commands.values():
        for action in command._actions:
            # A manifest is a command's first word, too.
            if action.type is Path or action.dest == "words":
                directory = str(action.metavar).startswith("DIR")
                action.complete = shtab.DIRECTORY if directory else shtab.FILE
    around.console.line(shtab.complete(args.program, shell=args.shell))
