"""``qola hipcc``."""

from __future__ import annotations

import argparse
from typing import Any

from qola.build.compiler import hipcc
from qola.cli.console import Surroundings
from qola.cli.options import add_command
from qola.errors import ExitCode


def add_commands(commands: Any) -> None:
    """Add hipcc to the parser's subcommands."""
    add_command(commands, "hipcc", _hipcc, (ExitCode.TOOLCHAIN,))


def _hipcc(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola hipcc``."""
    around.console.line(str(hipcc(around.environ)))
