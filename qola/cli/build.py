"""``qola build``, ``qola checkout`` and ``qola pack``: ROCm/QoLA's options, and a few more."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

from qola import api
from qola.build.forms import ChoiceError
from qola.build.install import BuildResult
from qola.build.pack import SUFFIX, build_pack, read_list
from qola.build.setup import resolve_build
from qola.cli import options
from qola.cli.commands import PLANNING, add_command
from qola.cli.console import Console, Surroundings, size
from qola.common.layout import WHEELS
from qola.plan.spec import Forms
from qola_base.errors import ExitCode, Finding
from qola_base.progress import log

_CODES = (*PLANNING, ExitCode.NOT_BUILT)
RESULT_AS_JSON = "print the content of manifest.json, or the error, as JSON"


def add_commands(commands: Any) -> None:
    """Add build, checkout and pack to the parser's subcommands."""
    build = add_command(commands, "build", _build, (*_CODES, ExitCode.PREBUILT), words="MANIFEST")
    options.add_manifest(build)
    options.add_options(build, "output_dir", *options.REQUEST, *options.BUILD, *options.FORMS)
    unused = "; prebuilt bundles are not used"
    options.add_options(build, "require", help=f"{options.REQUIRE}{unused}")
    build.add_argument(
        "--wheel",
        default="",
        metavar="VERSION",
        help="also a Python wheel of the attention and Triton libraries, or of all modules in mode "
        f"aiter, with this version, {WHEELS}/qola_MANIFEST-VERSION-PYTHON-PLATFORM.whl{unused}",
    )
    build.add_argument(
        "--jax",
        action="store_true",
        help="with --wheel: the wheel also contains attention for JAX, qola_MANIFEST.jax",
    )
    build.add_argument(
        "--split",
        action="store_true",
        help="libraries without device code, and a pack of it for each arch next to each, "
        f"lib/LIBRARY-ARCH.qpack; with --wheel a wheel for each arch, too{unused}",
    )
    build.add_argument(
        "--no-prebuilt",
        dest="use_prebuilt",
        action="store_false",
        help="build without trying prebuilt bundles",
    )
    options.add_options(build, *options.PREBUILT)
    options.add_options(build, "json", help=RESULT_AS_JSON)
    epilog = "The commit and patches are those of the manifest, unless options name others."
    checkout = add_command(
        *(commands, "checkout", _checkout, (ExitCode.AITER,)), words="[MANIFEST]", epilog=epilog
    )
    options.add_manifest(checkout, needed=False)
    options.add_options(checkout, *options.AITER)
    words = "MANIFEST [NAME...|--list FILE|--all]"
    pack = add_command(commands, "pack", _pack, _CODES, words=words)
    more = (words, "the manifest, then kernels, each NAME or NAME:ARCH")
    options.add_manifest(pack, more=more)
    place = (
        "the pack, replaced when all kernels are compiled "
        f"(default: out/ and the manifest's namespace, with {SUFFIX})"
    )
    options.add_options(pack, "output", metavar=f"FILE{SUFFIX}", help=place)
    options.add_options(pack, "list")
    pack.add_argument("--all", action="store_true", help="all kernels of the manifest")
    options.add_options(pack, *options.REQUEST, *options.BUILD)


def _build(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola build``."""
    console = around.console
    place = options.output_place(args, around)
    if args.output_dir is None:
        log.info(f"{args.manifest}: to be installed in {place}")
    forms = Forms(args.lazy, args.static, args.split, args.wheel, args.jax)
    result = api.build_kernels(
        options.build_request(args, around, forms),
        around.directory / place,
        options.build_options(args),
        options.prebuilt_options(args, around, enabled=args.use_prebuilt),
        environ=around.environ,
    )
    if args.json:
        console.json(result)
    else:
        print_modules(result, console)
        _print_summary(result, console)
        if "wheel" in result:
            for wheel in (result["wheel"], *result.get("arch_wheels", ())):
                console.line(wheel)
    if result["bundle_error"]:
        missing = "the bundle or its wheel" if args.wheel else "the bundle"
        console.note(
            f"qola: {missing} was not made; libraries that were built are installed\n"
            f"{result['bundle_error']}"
        )
    complete = not result["summary"]["failed"] and not result["bundle_error"]
    return ExitCode.DONE if complete else ExitCode.NOT_BUILT


def print_modules(result: BuildResult, console: Console) -> None:
    """Print a line per module."""
    done = "fetched" if "prebuilt" in result else "built"
    for module in result["modules"]:
        state = "failed" if module["size"] is None else f"{done}, {module['size'] / 1e6:.1f} MB"
        console.line(f"{module['md_name']}: {state}, {module['duration_s']:.0f} s")


def _print_summary(result: BuildResult, console: Console) -> None:
    """Print the count and the errors of failed modules, as ROCm/QoLA words it."""
    summary = result["summary"]
    console.line(
        f"Build complete: {summary['success']}/{summary['total']} succeeded, "
        f"{summary['failed']} failed."
    )
    for module in result["modules"]:
        if not module["success"]:
            error = indent(module["error"], " " * 4).lstrip()
            console.line(f"  FAILED: {module['md_name']}: {error}")


def _checkout(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola checkout``."""
    path = api.checkout_aiter(
        args.manifest and around.directory / args.manifest,
        options.aiter_options(args, around),
        options.groups_of(args, around),
        environ=around.environ,
    )
    around.console.line(f"AITER ready at {path}")
    return ExitCode.DONE


def _pack(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola pack``."""
    console = around.console
    place = args.output or f"{options.output_place(args, around)}{SUFFIX}"
    output = around.directory.absolute() / place
    _check_place(output, place)
    kernels = _kernels(args, around)
    chosen = resolve_build(options.build_request(args, around), around.environ)
    error = build_pack(chosen, kernels, output, options.build_options(args), around.environ)
    if error:
        console.line(f"FAILED: {place}: not written\n{indent(error, '  ')}")
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
            file = around.directory / name
            text = sys.stdin.read() if name == "-" else file.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise ChoiceError(Finding(name, str(error), "a list of kernels, one a line")) from None
        kernels += read_list(text, name)
    if args.all == bool(kernels):
        found = "kernels, and --all" if kernels else "no kernel"
        expected = "names of kernels, --list FILE with names, or --all"
        finding = Finding("the command line", found, expected, f"qola list {args.manifest}")
        raise ChoiceError(finding, "the kernels to pack are not clear")
    return kernels


def _check_place(output: Path, given: str) -> None:
    """Check the place of the pack before hours of compiling."""
    above = next(path for path in output.parents if path.exists())
    writable = above.is_dir() and os.access(above, os.W_OK | os.X_OK)
    if output.suffix != SUFFIX:
        expected = f"a file whose name ends in {SUFFIX}"
    elif output.is_dir() or not writable:
        expected = "a file in a directory that can be written to"
    else:
        return
    raise ChoiceError(Finding("--output", given, expected))
