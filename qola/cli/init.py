"""``qola init``: writes a starter manifest where there is none yet."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from qola.cli.commands import add_command
from qola.cli.console import Surroundings
from qola.cli.options import DEFAULT_MANIFEST, add_options
from qola.errors import ExitCode, Finding, ManifestError, QolaError, visible
from qola.files import disk_error, write_if_changed
from qola.manifest import json_schema
from qola.manifest.archs import split
from qola.manifest.constants import NATIVE, TESTED_ARCHS
from qola.manifest.load import loads
from qola.manifest.starter import DEFAULT_ARCHS, DEFAULT_NAMESPACE, starter_manifest

STANDARD_OUTPUT = "-"
_OPTIONS = {"namespace": "--namespace", "architectures": "--arch"}


class InitError(QolaError):
    """The starter manifest cannot be written."""

    exit_code: ClassVar[int] = ExitCode.USAGE
    default_title: ClassVar[str] = "no manifest written"


def add_commands(commands: Any) -> None:
    """Add init to the parser's subcommands."""
    parser = add_command(commands, "init", run, (), words="[FILE]")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE",
        help=f"file to write (default: {DEFAULT_MANIFEST}; {STANDARD_OUTPUT}: standard output)",
    )
    parser.add_argument(
        "--namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help="C++ namespace below qola:: and prefix of the libraries' names "
        f"(default: {DEFAULT_NAMESPACE})",
    )
    archs = (
        f"such as {', '.join((*TESTED_ARCHS, NATIVE))}; repeatable, or a list with ; or , between"
    )
    add_options(parser, "arch", help=f"{archs} (default: {', '.join(DEFAULT_ARCHS)})")
    parser.add_argument(
        "--schema",
        action="store_true",
        help=f"also write {json_schema.FILE} next to it, for editors that support TOML schemas",
    )
    add_options(parser, "overwrite", help="replace existing files")


def run(args: argparse.Namespace, around: Surroundings) -> None:
    """Write the manifest, or print it.

    Raises:
        InitError: a file is there already or cannot be written, or the words make no sense.
        ManifestError: a namespace or an arch that a manifest may not have.
    """
    word = _only_word(args.words)
    schema = f"./{json_schema.FILE}" if args.schema else ""
    if word == STANDARD_OUTPUT:
        if schema:
            raise InitError(
                Finding(
                    "--schema", "a manifest without a file", "a file, to write the schema beside"
                )
            )
        around.console.out.write(_checked_text(args, DEFAULT_MANIFEST, schema))
        return
    target = around.directory / word
    files = {word: _checked_text(args, word, schema)}
    if schema:
        files[(Path(word).parent / json_schema.FILE).as_posix()] = json_schema.schema_text()
    if not target.parent.is_dir():
        raise InitError(
            Finding(
                word,
                "no such directory",
                "a directory that exists",
                f"mkdir -p {Path(word).parent}",
            )
        )
    _write({around.directory / name: text for name, text in files.items()}, files, args.overwrite)
    around.console.line(f"{' and '.join(files)} written; next: qola plan {word}")


def _only_word(words: list[str]) -> str:
    if len(words) > 1:
        raise InitError(
            Finding("the command line", " ".join(words), "one file", f"qola init {words[0]}")
        )
    return words[0] if words else DEFAULT_MANIFEST


def _checked_text(args: argparse.Namespace, file: str, schema: str) -> str:
    """Return the manifest's text once the manifest itself accepts what the options put into it."""
    archs = split(args.arch) or DEFAULT_ARCHS
    text = starter_manifest(args.namespace, archs, file=visible(Path(file).name), schema=schema)
    try:
        loads(text, file=file)
    except ManifestError as error:
        raise ManifestError(
            (replace(f, place=_option(f.place)) for f in error.findings), InitError.default_title
        ) from None
    return text


def _option(place: str) -> str:
    """Return the option that put there what a finding about the text finds."""
    return _OPTIONS.get(place.rpartition(".")[2], place)


def _write(texts: dict[Path, str], names: Iterable[str], overwrite: bool) -> None:
    """Write all files, or none where one is there already."""
    there = [name for path, name in zip(texts, names, strict=True) if path.exists()]
    if there and not overwrite:
        raise InitError(
            [
                Finding(name, "a file that is there already", "a new file", _again(name))
                for name in there
            ]
        )
    for path, text in texts.items():
        _write_one(path, text)


def _again(name: str) -> str:
    return f"qola init {shlex.quote(name)} --overwrite"


def _write_one(path: Path, text: str) -> None:
    try:
        write_if_changed(path, text)
    except OSError as error:
        raise InitError(disk_error(error).findings) from None
