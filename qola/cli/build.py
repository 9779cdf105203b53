"""``qola build``, ``qola checkout`` and ``qola pack``: ROCm/QoLA's options, and a few more."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from qola import api
from qola.build.forms import ChoiceError
from qola.build.install import BuildResult, ModuleRecord
from qola.build.pack import SUFFIX, build_pack, read_list
from qola.build.setup import resolve_build
from qola.cli.commands import add_command
from qola.cli.console import Console, Surroundings, size
from qola.cli.options import (
    AITER,
    BUILD,
    FORMS,
    PREBUILT,
    REQUEST,
    add_manifest,
    add_options,
    build_options,
    build_request,
    output_place,
    paths_of,
    prebuilt_options,
)
from qola.errors import ExitCode, Finding
from qola.layout import WHEELS
from qola.manifest.load import load
from qola.progress import log

_PLANNING = (ExitCode.AITER, ExitCode.CODEGEN, ExitCode.TOOLCHAIN, ExitCode.PLAN)
_STANDARD_INPUT = "-"

RESULT_AS_JSON = "print the content of manifest.json, or the error, as JSON"


def add_commands(commands: Any) -> None:
    """Add build, checkout and pack to the parser's subcommands."""
    codes = (*_PLANNING, ExitCode.NOT_BUILT)
    build = add_command(commands, "build", _build, (*codes, ExitCode.PREBUILT), words="MANIFEST")
    add_manifest(build)
    add_options(build, "output_dir", *REQUEST, *BUILD, *FORMS, "require")
    build.add_argument(
        "--wheel",
        default="",
        metavar="VERSION",
        help="also a Python wheel of the attention and Triton libraries with this version, "
        f"{WHEELS}/qola_MANIFEST-VERSION-py3-none-PLATFORM.whl",
    )
    build.add_argument(
        "--no-prebuilt",
        dest="use_prebuilt",
        action="store_false",
        help="build without trying prebuilt bundles",
    )
    add_options(build, *PREBUILT)
    add_options(build, "json", help=RESULT_AS_JSON)
    epilog = "The commit and patches are those of the manifest, unless options name others."
    checkout = add_command(
        *(commands, "checkout", _checkout, (ExitCode.AITER,)),
        words="[MANIFEST]",
        epilog=epilog,
    )
    add_manifest(checkout, needed=False)
    add_options(checkout, *AITER)
    words = "MANIFEST [NAME...|--list FILE|--all]"
    pack = add_command(commands, "pack", _pack, codes, words=words)
    pack.add_argument(
        "words", nargs="*", metavar=words, help="the manifest, then kernels, each NAME or NAME:ARCH"
    )
    add_manifest(pack, more=True)
    pack.add_argument(
        *("-o", "--output"),
        metavar=f"FILE{SUFFIX}",
        help="the pack, replaced when all kernels are compiled "
        f"(default: out/ and the manifest's namespace, with {SUFFIX})",
    )
    add_options(pack, "list")
    pack.add_argument("--all", action="store_true", help="all kernels of the manifest")
    add_options(pack, *REQUEST, *BUILD)


def _build(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola build``."""
    console = around.console
    place = args.output_dir or output_place(args, _namespace(args, around))
    if args.output_dir is None:
        log.info(f"{args.manifest}: to be installed in {place}")
    result = api.build_kernels(
        **paths_of(args, around),
        output_dir=around.directory / place,
        archs=args.arch,
        verbose=args.verbose,
        build_mode=args.mode,
        skip_checkout=args.skip_checkout,
        keep_going=args.keep_going,
        jobs=args.jobs,
        bazel_args=args.bazel_arg,
        lazy=args.lazy,
        static=args.static,
        wheel=args.wheel,
        require=args.require,
        prebuilt=prebuilt_options(args, around, enabled=args.use_prebuilt),
        quiet=args.quiet,
        environ=around.environ,
    )
    print_result(result, console, as_json=args.json)
    if "wheel" in result and not args.json:
        console.line(result["wheel"])
    if result["bundle_error"]:
        missing = "the bundle or its wheel" if args.wheel else "the bundle"
        console.note(
            f"qola: {missing} was not made; libraries are installed\n{result['bundle_error']}"
        )
    complete = not result["summary"]["failed"] and not result["bundle_error"]
    return ExitCode.DONE if complete else ExitCode.NOT_BUILT


def _namespace(args: argparse.Namespace, around: Surroundings) -> str:
    """Return the namespace of the manifest.

    Raises:
        ManifestError: it is not valid.
    """
    manifest: Path = args.manifest
    return load(around.directory / manifest, display=manifest.as_posix()).namespace


def print_result(result: BuildResult, console: Console, *, as_json: bool) -> None:
    """Print a line per module, what failed of each, and the count, as ROCm/QoLA words it."""
    if print_modules(result, console, as_json=as_json):
        return
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


def print_modules(result: BuildResult, console: Console, *, as_json: bool) -> bool:
    """Print a line per module; with `as_json` all there is, and return True."""
    if as_json:
        console.line(json.dumps(result, indent=2, sort_keys=True))
        return True
    for module in result["modules"]:
        console.line(_line(module, "fetched" if "prebuilt" in result else "built"))
    return False


def _line(module: ModuleRecord, done: str) -> str:
    state = "failed"
    if module["size"] is not None:
        state = f"{done}, {module['size'] / 1e6:.1f} MB"
    return f"{module['md_name']}: {state}, {module['duration_s']:.0f} s"


def _checkout(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola checkout``."""
    path = api.checkout_aiter(**paths_of(args, around), environ=around.environ)
    around.console.line(f"AITER ready at {path}")
    return ExitCode.DONE


def _pack(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola pack``."""
    console = around.console
    place = args.output or f"{output_place(args, _namespace(args, around))}{SUFFIX}"
    output = around.directory.absolute() / place
    _check_place(output, place)
    kernels = _kernels(args, around)
    chosen = resolve_build(build_request(args, around), around.environ)
    error = build_pack(chosen, kernels, output, build_options(args), around.environ)
    if error:
        console.line(f"FAILED: {place}: not written")
        for line in error.splitlines():
            console.line(f"  {line}")
        return ExitCode.NOT_BUILT
    console.line(f"{place}: {size(output.stat().st_size)}")
    return ExitCode.DONE


def _kernels(args: argparse.Namespace, around: Surroundings) -> list[str]:
    """Return the requested kernels, [] for all.

    Raises:
        ChoiceError: a list cannot be read, or the request is empty or contradictory.
    """
    kernels = list(args.words)
    for name in args.list:
        try:
            standard_input = name == _STANDARD_INPUT
            text = sys.stdin.read() if standard_input else (around.directory / name).read_text()
        except (OSError, UnicodeError) as error:
            raise ChoiceError(Finding(name, str(error), "a list of kernels, one a line")) from None
        kernels += read_list(text, name)
    if args.all == bool(kernels):
        raise ChoiceError(
            Finding(
                "the command line",
                "kernels, and --all" if kernels else "no kernel",
                "names of kernels, --list FILE with names, or --all",
                f"qola list {args.manifest}",
            ),
            "the kernels to pack are not clear",
        )
    return kernels


def _check_place(output: Path, given: str) -> None:
    """Check the place of the pack before hours of compiling."""
    if output.suffix != SUFFIX:
        raise ChoiceError(Finding("--output", given, f"a file whose name ends in {SUFFIX}"))
    above = next(path for path in output.parents if path.exists())
    if output.is_dir() or not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise ChoiceError(
            Finding("--output", given, "a file in a directory that can be written to")
        )
