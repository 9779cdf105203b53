"""The table of docs/reference/exit-codes.md: exit codes, and the commands that end with each."""

from __future__ import annotations

import re

from qola.cli.command_line import build_parser
from qola.errors import ExitCode
from tools.docs.cli import commands

_PLACE = re.compile(r"(?<=<!-- exit codes -->\n).*?(?=<!-- end -->)", re.DOTALL)


def markdown_table() -> str:
    """Return the exit codes, and which commands end with each."""
    helps = {name: command.epilog or "" for name, command in commands(build_parser()).items()}
    rows = ["| Code | Meaning | Commands |", "| --- | --- | --- |"]
    for code in ExitCode:
        names = [name for name, text in helps.items() if f"  {int(code):<4} " in text]
        shown = "all" if len(names) == len(helps) else ", ".join(f"`{name}`" for name in names)
        rows.append(f"| {int(code)} | {code.meaning} | {shown} |")
    return "\n".join(rows) + "\n"


def update(page: str) -> str:
    """Return the page with what is between ``<!-- exit codes -->`` and ``<!-- end -->`` renewed.

    Raises:
        ValueError: the page has no such place, or several.
    """
    page, times = _PLACE.subn(lambda _: markdown_table(), page)
    if times != 1:
        raise ValueError(f"the place of the table stands {times} times on the page, not once")
    return page
