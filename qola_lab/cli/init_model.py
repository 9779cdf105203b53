"""``qola init --model``: the manifest of a model, from its configuration."""

from __future__ import annotations

import argparse
import importlib
import shlex
from pathlib import Path
from typing import Any

from qola.checkout.request import AiterOptions
from qola.cli.console import Surroundings
from qola.cli.options import place_of
from qola.common.extras import needs
from qola.common.suggestions import similar_file
from qola.manifest.archs import named_archs, split
from qola.manifest.starter import DEFAULT_ARCHS, DEFAULT_NAMESPACE
from qola.manifest.toml import TomlText
from qola.plan.spec import BuildRequest, BuildSpec
from qola.query.serving import ModelNeeds
from qola_base.errors import Finding
from qola_base.files import UnfitFileError, bounded_bytes


def model_manifest(
    args: argparse.Namespace, around: Surroundings, *, report: bool = True
) -> TomlText:
    """Return the manifest of --model.

    Args:
        report: print which kernel serves which layer; the manifest has it as comments, too.

    Raises:
        QolaError: the configuration is not valid, or the tree has no kernel for it.
    """
    coverage, reports = map(_import, ("coverage", "report"))
    model = _read_model(args, around)
    file = args.model.as_posix()
    archs = split(args.archs) or DEFAULT_ARCHS
    build = BuildRequest(
        Path(), BuildSpec(named_archs(archs)), AiterOptions(place_of(args.aiter_root, around))
    )
    found = coverage.find_coverage(model, build, args.namespace, around.environ)
    if report:
        for line in reports.report_lines(found):
            around.console.line(line)
    command = ["qola", "init", *args.words, "--model", file, *(f"--arch={arch}" for arch in archs)]
    if args.namespace != DEFAULT_NAMESPACE:
        command.append(f"--namespace={args.namespace}")
    if args.aiter_root:
        command.append(f"--aiter-root={args.aiter_root}")
    return TomlText(reports.manifest_text(found, shlex.join(command)), found.tables)


def needs_of_model(args: argparse.Namespace, around: Surroundings) -> ModelNeeds:
    """Return the modules and kernels of AITER that --model needs.

    Raises:
        QolaError: the configuration is not valid.
    """
    needs: ModelNeeds = _import("serving").model_needs(_read_model(args, around), args.user)
    return needs


def _read_model(args: argparse.Namespace, around: Surroundings) -> Any:
    config, file = _import("config"), args.model.as_posix()
    try:
        text = bounded_bytes(around.directory / args.model, config.MAX_BYTES)
    except (OSError, UnfitFileError) as error:
        words = getattr(error, "strerror", None) or str(error)
        fix = similar_file(around.directory / args.model)
        raise config.ModelError(Finding(file, words, "a readable config.json", fix)) from None
    return config.parse_model(text, file)


def _import(name: str) -> Any:
    """Import a module of qola_lab.models, which needs NumPy."""
    with needs("verify", "qola init --model"):
        return importlib.import_module(f"qola_lab.models.{name}")
