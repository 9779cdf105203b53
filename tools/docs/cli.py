"""Writes docs/reference/cli.md from the parsers of the commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

UPDATE = "./bazelw run //tools/docs:update"

_HEAD = f"""\
# Command line

Generated from the parsers of the commands by `{UPDATE}`; do not edit. The exit codes of each
command: [Exit codes](exit-codes.md).

```sh
qola COMMAND --help                         # pip install of a checkout or wheel
./bazelw run //:qola -- COMMAND --help      # in a clone
```
"""


def render(parser: argparse.ArgumentParser) -> str:
    """Return the page: the program's own options, then a section for each command.

    Raises:
        ValueError: an option has no help.
    """
    parts = [_HEAD, *_options(parser), _block(parser.epilog)]
    for name, command in commands(parser).items():
        parts += [f"## qola {name}\n", f"{command.description}\n", _block(_usage(name, command))]
        parts += [*_options(command), _block(command.epilog)]
    return "\n".join(filter(None, parts))


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command."""
    (found,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)


def _usage(name: str, parser: argparse.ArgumentParser) -> str:
    """Return the usage, independent of the version of Python, unlike argparse's own."""
    if parser.usage:
        return parser.usage
    words = [
        _names(action)[-1] if action.option_strings else str(action.metavar or action.dest)
        for action in parser._actions
        if action.required
    ]
    return " ".join(["qola", name, *words, "[OPTION...]"])


def _names(action: argparse.Action) -> list[str]:
    """Return the names of an option, each with its value."""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return list(action.option_strings)
    value = action.metavar or "|".join(action.choices or [action.dest.upper()])
    return [f"{name} {value}" for name in action.option_strings]


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows = []
    for action in parser._actions:
        if not action.option_strings or action.help == argparse.SUPPRESS or action.dest == "help":
            continue
        if not action.help:
            raise ValueError(f"{parser.prog}: {action.option_strings[0]} has no help")
        names = ", ".join(f"`{name}`" for name in _names(action))
        text = " ".join(parser._get_formatter()._expand_help(action).split())
        # Some versions of Python add this to every BooleanOptionalAction.
        cells = (names, text.removesuffix(" (default: None)"))
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    if rows:
        yield "\n".join(["| Option | Meaning |", "| --- | --- |", *rows]) + "\n"


def _block(text: str | None) -> str:
    """Return a block of text without exit codes, which have their own page."""
    kept = (text or "").partition("exit codes:")[0].rstrip()
    return f"```text\n{kept}\n```\n" if kept else ""
