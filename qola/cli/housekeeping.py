"""``qola cache``."""

from __future__ import annotations

import argparse
import json
from typing import Any, ClassVar

from qola.build import housekeeping
from qola.cache import cache_directory, refuse_foreign
from qola.cli.console import Surroundings, Table, size
from qola.cli.options import add_command, add_options, positive
from qola.errors import Finding, QolaError
from qola.progress import log


class CacheError(QolaError):
    """Something in the cache cannot be read or removed."""

    default_title: ClassVar[str] = "the cache cannot be pruned"


def add_commands(commands: Any) -> None:
    """Add cache to the parser's subcommands."""
    parser = add_command(commands, "cache", _cache, ())
    parser.add_argument(
        "--prune",
        type=positive,
        metavar="DAYS",
        help="remove what is made anew when it is needed and was not used for so many days",
    )
    add_options(parser, "json", help="print JSON, errors too")


def _cache(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola cache``."""
    directory, console = cache_directory(around.environ), around.console
    freed = 0
    if args.prune:
        # Another user's link there would lead to files of this one.
        refuse_foreign(directory)
        try:
            freed = housekeeping.prune(directory, args.prune)
        except OSError as error:
            finding = Finding(
                str(error.filename or directory),
                error.strerror or str(error),
                "a directory of your own, whose files you can remove",
                f"ls -ld {error.filename or directory} says whose it is",
            )
            raise CacheError(finding) from None
    log.info("adding up")
    parts = housekeeping.parts(directory)
    total = sum(part.size for part in parts)
    if args.json:
        words = {"directory": str(directory), "freed": freed, "total": total}
        sizes = {part.name: part.size for part in parts}
        console.line(json.dumps(words | {"parts": sizes}, indent=2, sort_keys=True))
        return
    if args.prune:
        console.line(f"{size(freed)} freed")
    rows = [(part.name, size(part.size)) for part in parts]
    console.table(Table(str(directory), ("part", "size"), rows, ("total", size(total)), 1))
