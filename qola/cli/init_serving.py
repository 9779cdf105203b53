"""``qola init --for``: a manifest of the modules that AITER's own Python imports."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from qola.aiter.called_modules import called_modules
from qola.aiter.tree import read_tree
from qola.aiter.variant_names import variant_names
from qola.checkout.default_tree import find_tree
from qola.cli import laboratory
from qola.cli.console import Surroundings
from qola.cli.options import place_of
from qola.fetch.fetched import tree_answers
from qola.fetch.git import read_head
from qola.fetch.pins import pinned_id
from qola.manifest.archs import named_archs, split
from qola.manifest.constants import AITER
from qola.manifest.starter import DEFAULT_ARCHS
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
from qola_base.errors import Finding
from qola_base.progress import log

MODEL = "qola_lab.cli.init_model"
"""The laboratory's module that reads a model's configuration."""


def add_serving_options(parser: argparse.ArgumentParser) -> None:
    """Add --for."""
    parser.add_argument(
        "--for",
        dest="user",
        choices=(AITER, *SERVERS),
        help="all modules that AITER's own Python imports, or those that a server calls; modules "
        "that cannot be planned are comments with the reason",
    )


def conflicts(args: argparse.Namespace) -> Iterator[Finding]:
    """Yield a finding for each option that has no effect with or without --for."""
    if args.user and args.namespace:
        found = f"--namespace {args.namespace} and --for {args.user}"
        expected = "libraries of a namespace, or modules by AITER's names"
        yield Finding("the command line", found, expected, "leave out --namespace")
    if args.aiter_root and not (args.user or args.model):
        found = f"--aiter-root {args.aiter_root} without --for {AITER} or --model"
        expected = "a tree for one of the two"
        yield Finding("the command line", found, expected, "leave out --aiter-root")


def serving_text(
    args: argparse.Namespace, around: Surroundings, file: str, schema: str
) -> TomlText:
    """Return the manifest of --for, for the model of --model; plans each module of the tree.

    Args:
        file: the manifest's name, for the command in its first lines.
    """
    needs = laboratory.load(MODEL).needs_of_model(args, around) if args.model else None
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
