"""The command line.

in: arguments; out: text and an exit code.
"""

from qola.cli.command_line import main

__all__ = ["main"]
