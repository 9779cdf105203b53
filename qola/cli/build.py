"""The command line's qola build and qola checkout: ROCm/QoLA's options, and a few more."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from qola import api
from qola.build.install import BuildResult, ModuleRecord
from qola.cli.console import Console
from qola.cli.context import Surroundings
from qola.cli.options import (
    EXIT_FAILED_MODULES,
    _add_aiter,
    _paths,
    add_build_options,
    add_forms,
    add_manifest,
    add_output_dir,
    add_parser,
    add_prebuilt_options,
    prebuilt_options,
)

BUILD_EXIT_CODES = """\
exit codes: 0 all modules built; 7 one or more, or their bundle, did not, the others are installed;
otherwise nothing was installed: 1 an error of qola's own; 2 wrong usage or an invalid manifest;
3 the AITER tree or a patch; 4 a generator; 5 no Bazel, no ROCm or no GPU; 6 the plan;
10 a prebuilt bundle with a wrong digest, signature or content; 130 interrupted; 143 terminated"""

_CHECKOUT_EXIT_CODES = """\
exit codes: 0 done; 1 an error of qola's own; 2 wrong usage or an invalid manifest; 3 the AITER
tree: it could not be fetched, or a patch does not fit; 130 interrupted; 143 terminated"""


def add_commands(commands: Any) -> None:
    """Add build and checkout to the parser's subcommands."""
    build = add_parser(commands, "build", "build a manifest's libraries", BUILD_EXIT_CODES)
    add_manifest(build)
    add_output_dir(build)
    add_build_options(build)
    add_forms(build)
    build.add_argument(
        "--no-prebuilt",
        dest="use_prebuilt",
        action="store_false",
        help="build, whatever prebuilt bundles there are",
    )
    add_prebuilt_options(build)
    build.set_defaults(run=_build)
    checkout = add_parser(
        commands, "checkout", "prepare a patched AITER tree, and nothing else", _CHECKOUT_EXIT_CODES
    )
    checkout.add_argument(
        *("-m", "--manifest"),
        type=Path,
        metavar="FILE",
        help="manifest whose [qola] aiter_commit and patches_dir apply",
    )
    _add_aiter(checkout)
    checkout.set_defaults(run=_checkout)


def _build(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola build``."""
    console = around.console
    result = api.build_kernels(
        **_paths(args, around),
        output_dir=around.directory / args.output_dir,
        archs=args.arch,
        verbose=args.verbose,
        build_mode=args.mode,
        skip_checkout=args.skip_checkout,
        keep_going=args.keep_going,
        jobs=args.jobs,
        bazel_args=args.bazel_arg,
        lazy=args.lazy,
        static=args.static,
        prebuilt=prebuilt_options(args, around, enabled=args.use_prebuilt),
        environ=around.environ,
        progress=lambda text: console.note(f"qola: {text}"),
    )
    print_result(result, console)
    if result["bundle_error"]:
        console.note(
            f"qola: the bundle was not made; libraries are installed\n{result['bundle_error']}"
        )
    return EXIT_FAILED_MODULES if result["summary"]["failed"] or result["bundle_error"] else 0


def print_result(result: BuildResult, console: Console) -> None:
    """Print a line per module, what failed of each, and the count, as ROCm/QoLA words it."""
    for module in result["modules"]:
        console.line(_line(module, "fetched" if "prebuilt" in result else "built"))
    summary = result["summary"]
    console.line(
        f"Build complete: {summary['success']}/{summary['total']} succeeded, "
        f"{summary['failed']} failed."
    )
    for module in result["modules"]:
        if not module["success"]:
            first, *rest = module["error"].splitlines()
            console.line(f"  FAILED: {module['md_name']}: {first}")
            for line in rest:
                console.line(f"    {line}")


def _line(module: ModuleRecord, done: str) -> str:
    state = "failed"
    if module["size"] is not None:
        state = f"{done}, {module['size'] / 1e6:.1f} MB"
    return f"{module['md_name']}: {state}, {module['duration_s']:.0f} s"


def _checkout(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola checkout``."""
    console = around.console
    path = api.checkout_aiter(
        **_paths(args, around),
        environ=around.environ,
        progress=lambda text: console.note(f"qola: {text}"),
    )
    console.line(f"AITER ready at {path}")
    return 0
