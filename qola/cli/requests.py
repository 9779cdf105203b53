"""What options say to who builds and fetches: apart from options, whom every command imports."""

from __future__ import annotations

import argparse

from qola.build.bazel import BuildOptions
from qola.build.setup import BuildRequest
from qola.cli.context import Surroundings
from qola.cli.options import paths_of
from qola.prebuilt.options import PrebuiltOptions


def request_of_build(args: argparse.Namespace, around: Surroundings) -> BuildRequest:
    """Return what `REQUEST` asks for."""
    return BuildRequest(
        **paths_of(args, around),
        archs=args.arch,
        build_mode=args.mode,
        skip_checkout=args.skip_checkout,
    )


def build_options(args: argparse.Namespace) -> BuildOptions:
    """Return what `BUILD` says of how Bazel builds."""
    more = tuple(args.bazel_arg)
    return BuildOptions(args.keep_going, args.jobs, args.verbose, more, args.quiet)


def prebuilt_options(
    args: argparse.Namespace, around: Surroundings, *, enabled: bool = True
) -> PrebuiltOptions:
    """Return what `PREBUILT` says."""
    return PrebuiltOptions(
        urls=tuple(args.prebuilt),
        enabled=enabled,
        offline=args.offline,
        public_key=args.public_key,
        directory=around.directory,
    )
