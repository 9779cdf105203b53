"""Turns parsed options into requests. Separate from options.py, which every command imports."""

from __future__ import annotations

import argparse

from qola.build.bazel import BuildOptions
from qola.checkout.request import AiterOptions
from qola.cli.console import Surroundings
from qola.cli.options import paths_of
from qola.codegen.types import LEVELS, Level
from qola.plan.spec import BuildRequest, BuildSpec
from qola.prebuilt.options import PrebuiltOptions


def build_request(
    args: argparse.Namespace,
    around: Surroundings,
    *,
    require: Level = LEVELS[0],
    override_aiter_commit: bool = False,
) -> BuildRequest:
    """Return the request of `REQUEST`, with the values of options that few commands have."""
    paths = paths_of(args, around)
    return BuildRequest(
        paths["manifest_path"],
        BuildSpec(tuple(args.arch), args.mode, require),
        AiterOptions(
            paths["aiter_root"],
            paths["aiter_commit"],
            paths["aiter_remote"],
            paths["patches_dir"],
            args.skip_checkout,
            override_aiter_commit,
        ),
        paths["groups"],
    )


def build_options(args: argparse.Namespace) -> BuildOptions:
    """Return the options of `BUILD`: how Bazel builds."""
    more = tuple(args.bazel_arg)
    return BuildOptions(args.keep_going, args.jobs, args.verbose, more, args.quiet)


def prebuilt_options(
    args: argparse.Namespace, around: Surroundings, *, enabled: bool = True
) -> PrebuiltOptions:
    """Return the options of `PREBUILT`."""
    return PrebuiltOptions(
        urls=tuple(args.prebuilt),
        enabled=enabled,
        offline=args.offline,
        public_key=args.public_key,
        directory=around.directory,
    )
