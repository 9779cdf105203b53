"""``qola init``: writes a starter manifest where there is none yet."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from qola.errors import Finding, ManifestError, QolaError
from qola.manifest import json_schema as manifest_jsonschema
from qola.manifest.fields import NATIVE, SUPPORTED_ARCHS
from qola.manifest.load import loads
from qola.manifest.starter import DEFAULT_ARCHS, DEFAULT_NAMESPACE, starter_manifest
from qola.manifest.values import either

if TYPE_CHECKING:
    from qola.cli.context import Surroundings

STANDARD_OUTPUT = "-"
_OPTIONS = {"namespace": "--namespace", "architectures": "--arch"}


class InitError(QolaError):
    """The starter manifest cannot be written."""

    exit_code: ClassVar[int] = 2
    default_title: ClassVar[str] = "no manifest written"


def add_command(commands: Any) -> None:
    """Add ``init`` to the command line.

    Args:
        commands: what argparse's add_subparsers returned.
    """
    text = "write a commented starter manifest"
    parser: argparse.ArgumentParser = commands.add_parser(
        "init",
        help=text,
        description=f"{text[0].upper()}{text[1:]}: a small one that plans, and every other key.",
        usage="qola init [FILE] [OPTION...]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE",
        help=f"where (default: qola.toml; {STANDARD_OUTPUT}: standard output)",
    )
    parser.add_argument(
        "--namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help="C++ namespace below qola:: and prefix of the libraries' names "
        f"(default: {DEFAULT_NAMESPACE})",
    )
    parser.add_argument(
        "--arch",
        action="append",
        default=[],
        metavar="ARCH",
        help=f"{', '.join((*SUPPORTED_ARCHS, NATIVE))}; may be repeated "
        f"(default: {', '.join(DEFAULT_ARCHS)})",
    )
    parser.add_argument(
        "--schema",
        action="store_true",
        help=f"also write {manifest_jsonschema.FILE} beside it, for editors that know TOML schemas",
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that are there")
    parser.set_defaults(parser=parser, run=run, quiet=False)


def run(args: argparse.Namespace, around: Surroundings) -> None:
    """Write the manifest, or print it.

    Raises:
        InitError: a file is there already or cannot be written, or the words make no sense.
        ManifestError: a namespace or an arch that a manifest may not have.
    """
    word = _only_word(args.words)
    schema = f"./{manifest_jsonschema.FILE}" if args.schema else ""
    if word == STANDARD_OUTPUT:
        if schema:
            raise InitError(
                Finding(
                    "--schema", "a manifest without a file", "a file, to write the schema beside"
                )
            )
        around.console.out.write(_checked_text(args, "qola.toml", schema))
        return
    target = around.directory / word
    files = {word: _checked_text(args, word, schema)}
    if schema:
        files[(Path(word).parent / manifest_jsonschema.FILE).as_posix()] = (
            manifest_jsonschema.to_json()
        )
    if not target.parent.is_dir():
        raise InitError(
            Finding(
                word,
                "no such directory",
                "a directory that exists",
                f"mkdir -p {Path(word).parent}",
            )
        )
    _write({around.directory / name: text for name, text in files.items()}, files, args.force)
    around.console.line(f"{' and '.join(files)} written; next: qola plan {word}")


def _only_word(words: list[str]) -> str:
    if len(words) > 1:
        raise InitError(
            Finding("the command line", " ".join(words), "one file", f"qola init {words[0]}")
        )
    return words[0] if words else "qola.toml"


def _checked_text(args: argparse.Namespace, file: str, schema: str) -> str:
    """Return the manifest's text once the manifest itself accepts what the options put into it."""
    archs = tuple(a for text in args.arch for a in text.split(",")) or DEFAULT_ARCHS
    text = starter_manifest(args.namespace, archs, file=Path(file).name, schema=schema)
    try:
        loads(text, file=file)
    except ManifestError as error:
        raise ManifestError(
            (replace(f, place=_option(f.place)) for f in error.findings), InitError.default_title
        ) from None
    unsupported = [arch for arch in archs if arch not in (*SUPPORTED_ARCHS, NATIVE)]
    if unsupported:
        raise InitError(
            Finding(
                _OPTIONS["architectures"],
                ", ".join(unsupported),
                f"archs a plan can be made for: {either((*SUPPORTED_ARCHS, NATIVE))}",
            )
        )
    return text


def _option(place: str) -> str:
    """Return the option that put there what a finding about the text finds."""
    return _OPTIONS.get(place.rpartition(".")[2], place)


def _write(texts: dict[Path, str], names: Iterable[str], force: bool) -> None:
    """Write all files, or none where one is there already."""
    there = [name for path, name in zip(texts, names, strict=True) if path.exists()]
    if there and not force:
        raise InitError(
            [
                Finding(name, "a file that is there already", "a new file", "add --force")
                for name in there
            ]
        )
    for path, text in texts.items():
        _write_one(path, text)


def _write_one(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        expected = "a file that can be written"
        raise InitError(Finding(path.name, error.strerror or str(error), expected)) from None
