"""What the command line's options say of a plan, and the plan of it."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from qola.aiter.tree import read_tree
from qola.checkout.default_tree import find_tree
from qola.cli.console import Console
from qola.cli.context import Surroundings
from qola.fetch.pins import pinned_id, recorded_patches
from qola.manifest.archs import split
from qola.manifest.fields import BUILD_MODES, NATIVE, SUPPORTED_ARCHS
from qola.manifest.load import load
from qola.plan import planner
from qola.plan.model import Plan
from qola.plan.request import manifest_patches


def add_plan_options(
    parser: argparse.ArgumentParser,
    *,
    aiter: Sequence[str] = ("--aiter",),
    mode: Sequence[str] = ("--build-mode",),
) -> None:
    """Add the options that `request_of` reads, but for the manifest's name.

    Args:
        parser: the command's.
        aiter: names of the option for the AITER tree.
        mode: names of the option for the build mode.
    """
    parser.add_argument(
        *aiter,
        type=Path,
        metavar="TREE",
        help="AITER source tree (default under Bazel: @aiter)",
    )
    parser.add_argument(
        "--arch",
        action="append",
        default=[],
        metavar="ARCH",
        help=f"instead of the manifest's: {', '.join(SUPPORTED_ARCHS)}, {NATIVE}; repeated, or a "
        "list with ; or , in it",
    )
    parser.add_argument(
        *mode,
        choices=BUILD_MODES,
        help="instead of [build].mode; a module's own mode wins",
    )
    parser.add_argument(
        "--rocm-version", metavar="VERSION", help="check the manifest's rocm_versions against it"
    )
    parser.add_argument(
        "--override-aiter-commit",
        action="store_true",
        help="plan although the manifest names another AITER; a warning says so",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def request_of(manifest: Path, args: argparse.Namespace, around: Surroundings) -> planner.Request:
    """Return what to plan.

    Args:
        manifest: the manifest's file.
        args: aiter, arch, build_mode, name, override_aiter_commit and rocm_version.
        around: what the command line gets from the process.

    Raises:
        QolaError: the manifest is not valid, or there is no AITER tree.
    """
    loaded = load(around.directory / manifest, display=manifest.as_posix())
    aiter = None if args.aiter is None else around.directory / args.aiter
    tree = find_tree(aiter, around.environ)
    return planner.Request(
        name=args.name or manifest.stem,
        manifest=loaded,
        tree=read_tree(tree),
        archs=split(args.arch),
        default_archs=split([around.environ.get("GPU_ARCHS", "")]),
        mode=args.build_mode,
        rocm_version=args.rocm_version,
        aiter_id=pinned_id(tree),
        overridden=args.override_aiter_commit,
        aiter_patches=recorded_patches(tree),
        patches=manifest_patches(loaded, around.directory / manifest),
    )


def make_plan(request: planner.Request, console: Console) -> Plan:
    """Plan in a directory that is gone afterwards: the command line wants the plan alone."""
    with (
        tempfile.TemporaryDirectory(prefix="qola-") as directory,
        console.working() as progress,
    ):
        return planner.build_plan(request, Path(directory), progress=progress)
