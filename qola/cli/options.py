"""Options that several commands have, and what they ask for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from qola.build.setup import BuildRequest
from qola.checkout.request import DEFAULT_REMOTE
from qola.cli.context import Surroundings
from qola.manifest.archs import split
from qola.manifest.fields import BUILD_MODES
from qola.prebuilt.options import PrebuiltOptions

EXIT_FAILED_MODULES = 7
"""A module did not build, or the bundle of those that did; what was built is installed."""


def add_parser(commands: Any, name: str, text: str, epilog: str) -> argparse.ArgumentParser:
    """Add a command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(parser=parser, words=[], quiet=False)
    return parser


def add_manifest(parser: argparse.ArgumentParser) -> None:
    """Add the manifest."""
    parser.add_argument(
        "-m", "--manifest", type=Path, required=True, metavar="FILE", help="the manifest"
    )


def add_output_dir(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the output directory."""
    parser.add_argument(
        *("-o", "--output-dir"),
        type=Path,
        required=required,
        metavar="DIR",
        help="where to install lib/, include/, manifest.json and more",
    )


def add_forms(parser: argparse.ArgumentParser) -> None:
    """Add which kinds of libraries there are."""
    parser.add_argument(
        "--lazy",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="libraries that load each kernel when it is first called, with all that compiles it "
        "in share/qola/ and bin/ (default: $NVTE_CK_JIT, which is deprecated; else --no-lazy)",
    )
    parser.add_argument(
        "--static",
        action="store_true",
        help="also an archive of the attention modules, lib/libqola_NAMESPACE.a, for a program or "
        "library that has them inside",
    )


def add_prebuilt_options(parser: argparse.ArgumentParser) -> None:
    """Add where prebuilt bundles come from."""
    parser.add_argument(
        "--prebuilt",
        action="append",
        default=[],
        metavar="URL",
        help="URL or directory with prebuilt bundles, which are used before anything is built; "
        "repeatable (default: the manifest's [prebuilt].urls, $QOLA_PREBUILT_URL, "
        "$NVTE_AITER_PREBUILT_BASE_URL)",
    )
    parser.add_argument(
        "--public-key",
        default="",
        metavar="KEY",
        help="minisign's public key of who has to have signed them, or a file with it (default: "
        "the manifest's [prebuilt].public_key)",
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="look for them in directories and among earlier downloads only",
    )


def prebuilt_options(
    args: argparse.Namespace, around: Surroundings, *, enabled: bool = True
) -> PrebuiltOptions:
    """Return what the options that `add_prebuilt_options` adds say."""
    return PrebuiltOptions(
        urls=tuple(args.prebuilt),
        enabled=enabled,
        offline=args.offline,
        public_key=args.public_key,
        directory=around.directory,
    )


def add_build_options(parser: argparse.ArgumentParser) -> None:
    """Add what every command that builds with Bazel takes."""
    add_request_options(parser)
    parser.add_argument(
        "--keep-going",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="go on with other kernels and modules when one fails (default)",
    )
    parser.add_argument("-j", "--jobs", type=int, metavar="N", help="actions at a time")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every command")


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """Add what says which libraries are meant, besides the manifest."""
    _add_aiter(parser)
    parser.add_argument(
        "--skip-checkout",
        action="store_true",
        help="use the tree in --aiter-root as it is: no commit, no patches",
    )
    parser.add_argument(
        "--arch",
        action="append",
        default=[],
        metavar="ARCH",
        help="instead of the manifest's; may be repeated, or a list with ; between; native is "
        "this machine's GPU (default: the manifest's, $GPU_ARCHS, native)",
    )
    parser.add_argument(
        "--mode",
        choices=BUILD_MODES,
        help="instead of [build].mode; a module's own mode wins (default: pybind)",
    )
    parser.add_argument(
        "--bazel-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="a further argument of bazel build, such as --bazel-arg=--config=remote; repeatable",
    )


def _add_aiter(parser: argparse.ArgumentParser) -> None:
    """Add what both commands say about AITER."""
    parser.add_argument(
        *("-a", "--aiter-root"),
        type=Path,
        metavar="DIR",
        help="the AITER tree; made if it is not there",
    )
    parser.add_argument(
        "--aiter-commit",
        metavar="COMMIT",
        help="commit, tag or branch, instead of the manifest's [qola].aiter_commit "
        "(default: the wheel that qola pins)",
    )
    parser.add_argument(
        "--aiter-remote",
        default=DEFAULT_REMOTE,
        metavar="URL",
        help="what git fetches a commit from (default: %(default)s)",
    )
    parser.add_argument(
        "--patches-dir",
        type=Path,
        metavar="DIR",
        help="patches for AITER, instead of the manifest's [qola].patches_dir; an empty folder "
        "for none",
    )
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="GROUP",
        help="only modules of this group; may be repeated, or a list with ; between (default: "
        "$QOLA_BUILD_GROUPS, all)",
    )


def _paths(args: argparse.Namespace, around: Surroundings) -> dict[str, Any]:
    """Return the arguments both functions have, with paths that do not depend on the directory."""
    return {
        "manifest_path": _place(args.manifest, around),
        "aiter_root": _place(args.aiter_root, around),
        "aiter_commit": args.aiter_commit,
        "aiter_remote": args.aiter_remote,
        "patches_dir": _place(args.patches_dir, around),
        "groups": groups_of(args, around),
    }


def _place(path: Path | None, around: Surroundings) -> Path | None:
    return None if path is None else around.directory / path


def groups_of(args: argparse.Namespace, around: Surroundings) -> tuple[str, ...]:
    """Return the groups of modules that are asked for, () for all."""
    return split(args.group or [around.environ.get("QOLA_BUILD_GROUPS", "")])


def request_of_build(args: argparse.Namespace, around: Surroundings) -> BuildRequest:
    """Return what the options that `add_request_options` adds ask for."""
    return BuildRequest(
        **_paths(args, around),
        archs=args.arch,
        build_mode=args.mode,
        skip_checkout=args.skip_checkout,
    )
