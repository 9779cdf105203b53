"""``qola init``: writes a starter manifest, of a model or of AITER, unless the file exists."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from qola.aiter.called_modules import called_modules, variant_names
from qola.aiter.tree import read_tree
from qola.checkout.default_tree import find_tree
from qola.cli import laboratory
from qola.cli.commands import PLANNING, add_command
from qola.cli.console import Surroundings
from qola.cli.options import DEFAULT_MANIFEST, PLANNED_TREE, add_options, place_of
from qola.fetch.fetched import tree_answers
from qola.fetch.git import read_head
from qola.fetch.pins import pinned_id
from qola.manifest import json_schema
from qola.manifest.archs import named_archs, split
from qola.manifest.constants import AITER, NATIVE, TESTED_ARCHS
from qola.manifest.load import loads
from qola.manifest.starter import (
    DEFAULT_ARCHS,
    DEFAULT_NAMESPACE,
    starter_manifest,
    starter_tables,
)
from qola.manifest.toml import TomlText
from qola.plan.modules import ModuleReport, module_reports
from qola.query.serving import (
    SERVERS,
    Calls,
    entries_of,
    filter_entries,
    read_server,
    serving_manifest,
    serving_tables,
)
from qola_base.errors import ExitCode, Finding, ManifestError, QolaError, visible
from qola_base.files import write_if_changed
from qola_base.progress import log
from qola_base.system_errors import disk_error

_MODEL = "qola_lab.cli.init_model"
"""The laboratory's module that reads a model's configuration."""

_STANDARD_OUTPUT = "-"
_OPTIONS = {"namespace": "--namespace", "architectures": "--arch"}


class InitError(QolaError, title="no manifest written", exit_code=ExitCode.USAGE):
    """The starter manifest cannot be written."""


def add_commands(commands: Any) -> None:
    """Add init to the parser's subcommands."""
    parser = add_command(commands, "init", _init, PLANNING, words="[FILE]")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE",
        help=f"file to write (default: {DEFAULT_MANIFEST}; {_STANDARD_OUTPUT}: standard output)",
    )
    parser.add_argument(
        "--namespace",
        metavar="NAME",
        help="C++ namespace below qola:: and prefix of the libraries' names "
        f"(default: {DEFAULT_NAMESPACE})",
    )
    archs = (
        f"such as {', '.join((*TESTED_ARCHS, NATIVE))}; repeatable, or a list with ; or , between"
    )
    add_options(parser, "archs", help=f"{archs} (default: {', '.join(DEFAULT_ARCHS)})")
    parser.add_argument(
        "--schema",
        action="store_true",
        help=f"also write {json_schema.FILE} next to it, for editors that support TOML schemas",
    )
    add_options(parser, "overwrite", help="replace existing files")
    parser.add_argument(
        "--for",
        dest="user",
        choices=(AITER, *SERVERS),
        help="all modules that AITER's own Python imports, or those that a server calls; modules "
        "that cannot be planned are comments with the reason",
    )
    parser.add_argument(
        "--model",
        type=Path,
        metavar="CONFIG.json",
        help="write the libraries that a model's attention needs, or with --for the modules and "
        "kernels that a server needs for it: its configuration in Hugging Face's format",
    )
    add_options(parser, "aiter_root", help=f"with --model, {PLANNED_TREE.partition(';')[0]}")


def _init(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola init``."""
    word, *rest = args.words or [DEFAULT_MANIFEST]
    wrong = [*_conflicts(args)]
    args.namespace = args.namespace or DEFAULT_NAMESPACE
    if rest:
        words = " ".join(args.words)
        wrong.append(Finding("the command line", words, "one file", f"qola init {word}"))
    if args.schema and word == _STANDARD_OUTPUT:
        wrong.append(Finding("--schema", "a manifest without a file", "a file"))
    if wrong:
        raise InitError(wrong)
    # Before anything is planned or looked for.
    starter = _starter(args, DEFAULT_MANIFEST if word == _STANDARD_OUTPUT else word)
    if word == _STANDARD_OUTPUT:
        text = _planned(args, around, DEFAULT_MANIFEST, report=False) or starter
        around.console.line(text.removesuffix("\n"))
        return
    files = {word: starter}
    if args.schema:
        files[(Path(word).parent / json_schema.FILE).as_posix()] = json_schema.schema_text()
    if not (around.directory / word).parent.is_dir():
        fix = f"mkdir -p {Path(word).parent}"
        raise InitError(Finding(word, "no such directory", "a directory that exists", fix))
    _refuse_present(files, around.directory, args.overwrite)
    files[word] = _planned(args, around, word) or starter
    _write(files, around.directory)
    around.console.line(f"{' and '.join(files)} written; next: qola plan {word}")


def _conflicts(args: argparse.Namespace) -> Iterator[Finding]:
    """Yield a finding for each option that has no effect with or without --for."""
    if args.user and args.namespace:
        found = f"--namespace {args.namespace} and --for {args.user}"
        expected = "libraries of a namespace, or modules by AITER's names"
        yield Finding("the command line", found, expected, "leave out --namespace")
    if args.aiter_root and not (args.user or args.model):
        found = f"--aiter-root {args.aiter_root} without --for {AITER} or --model"
        expected = "a tree for one of the two"
        yield Finding("the command line", found, expected, "leave out --aiter-root")


def _schema(args: argparse.Namespace) -> str:
    return f"./{json_schema.FILE}" if args.schema else ""


def _starter(args: argparse.Namespace, file: str) -> str:
    """Return a starter manifest with the values of the options."""
    archs = split(args.archs) or DEFAULT_ARCHS
    name = visible(Path(file).name)
    text = starter_manifest(args.namespace, archs, file=name, schema=_schema(args))
    return _checked(TomlText(text, starter_tables(args.namespace, archs)), file)


def _planned(
    args: argparse.Namespace, around: Surroundings, file: str, *, report: bool = True
) -> str:
    """Return the manifest of --model, --for or both, "" without these options."""
    schema = _schema(args)
    if args.model and not args.user:
        made: TomlText = laboratory.load(_MODEL).model_manifest(args, around, report=report)
        text = f"#:schema {schema}\n{made.text}" if schema else made.text
        return _checked(replace(made, text=text), file)
    if args.user:
        return _checked(_serving_text(args, around, visible(Path(file).name), schema), file)
    return ""


def _serving_text(
    args: argparse.Namespace, around: Surroundings, file: str, schema: str
) -> TomlText:
    """Return the manifest of --for, for the model of --model; plans each module of the tree.

    Args:
        file: the manifest's name, for the command in its first lines.
    """
    needs = laboratory.load(_MODEL).needs_of_model(args, around) if args.model else None
    archs = named_archs(split(args.archs) or DEFAULT_ARCHS)
    root = find_tree(place_of(args.aiter_root, around), around.environ)
    tree = read_tree(root)
    calls = None
    if args.user in SERVERS:
        server = read_server(args.user)
        calls = Calls(server, called_modules(tree, server.functions))
    with tree_answers(root, around.environ) as answers:
        reports = answers.find(
            ["modules", *archs], tuple[ModuleReport, ...], lambda: module_reports(tree, archs)
        )
    entries = entries_of(reports, calls, needs)
    names = variant_names(tree)
    if needs:
        entries = filter_entries(entries, tree, archs, needs)
        names = needs.served(names)
    if missing := [entry.report.name for entry in entries if entry.is_missed]:
        found = f"{len(missing)} modules are comments with the reason: {', '.join(missing)}"
        log.warning(found if len(missing) > 1 else f"{missing[0]} is a comment with the reason")
    head = read_head(root)
    if head.problem:
        log.warning(f"aiter_commit is left out, its commit is unknown: {head.problem}")
    identity = pinned_id(root) or head.commit
    own: dict[str, Any] = {"aiter_id": identity, "names": names, "needs": needs}
    text = serving_manifest(entries, archs, calls=calls, file=file, schema=schema, **own)
    return TomlText(text, serving_tables(entries, archs, **own))


def _checked(made: TomlText, file: str) -> str:
    """Return the text of a manifest, after it was read back.

    Raises:
        ManifestError: it is not valid; a finding names the option that caused it.
        InitError: it has other values than it shall have.
    """
    try:
        loads(made.text, file=file)
    except ManifestError as error:
        found = (
            replace(f, place=_OPTIONS.get(f.place.rpartition(".")[2], f.place))
            for f in error.findings
        )
        raise ManifestError(found, InitError.default_title) from None
    if not made.is_exact():
        wrong, expected = "a manifest that reads back with other values", "the chosen values only"
        fix = "do not use --model's or AITER's files, and report this as SECURITY.md describes"
        raise InitError(Finding(file, wrong, expected, fix))
    return made.text


def _refuse_present(files: dict[str, str], directory: Path, overwrite: bool) -> None:
    """Raise an error if one of the files exists and may not be replaced."""
    present = [name for name in files if (directory / name).exists()]
    if present and not overwrite:
        found, expected = "a file that is there already", "a new file"
        raise InitError(
            Finding(name, found, expected, f"qola init {shlex.quote(name)} --overwrite")
            for name in present
        )


def _write(files: dict[str, str], directory: Path) -> None:
    try:
        for name, text in files.items():
            write_if_changed(directory / name, text)
    except OSError as error:
        raise InitError(disk_error(error).findings) from None
