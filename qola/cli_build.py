"""The command line's qola build and qola checkout: ROCm/QoLA's options, and a few more."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import qola
from qola.archs import split
from qola.build_setup import BuildRequest
from qola.choices import DEFAULT_REMOTE
from qola.console import Console
from qola.install import BuildResult, ModuleRecord
from qola.prebuilt.options import PrebuiltOptions
from qola.schema import BUILD_MODES

EXIT_FAILED_MODULES = 7
"""A module did not build, or the bundle of those that did; what was built is installed."""

BUILD_EXIT_CODES = """\
exit codes: 0 all modules built; 7 one or more, or their bundle, did not, the others are installed;
otherwise nothing was installed: 1 an error of qola's own; 2 wrong usage or an invalid manifest;
3 the AITER tree or a patch; 4 a generator; 5 no Bazel, no ROCm or no GPU; 6 the plan;
10 a prebuilt bundle with a wrong digest, signature or content; 130 interrupted; 143 terminated"""

_CHECKOUT_EXIT_CODES = """\
exit codes: 0 done; 1 an error of qola's own; 2 wrong usage or an invalid manifest; 3 the AITER
tree: it could not be fetched, or a patch does not fit; 130 interrupted; 143 terminated"""


class Around(Protocol):
    """What the command line gets from the process (qola.cli.Surroundings)."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment."""

    @property
    def directory(self) -> Path:
        """What relative paths are relative to."""

    @property
    def console(self) -> Console:
        """Where to print."""


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
    parser.add_argument(
        "--allow-redirect",
        action="append",
        default=[],
        metavar="HOST",
        help="host that a server with prebuilt bundles may redirect to; http://HOST also without "
        "encryption; repeatable",
    )


def prebuilt_options(
    args: argparse.Namespace, around: Around, *, enabled: bool = True
) -> PrebuiltOptions:
    """Return what the options that `add_prebuilt_options` adds say."""
    return PrebuiltOptions(
        urls=tuple(args.prebuilt),
        enabled=enabled,
        offline=args.offline,
        public_key=args.public_key,
        redirects=tuple(args.allow_redirect),
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


def _paths(args: argparse.Namespace, around: Around) -> dict[str, Any]:
    """Return the arguments both functions have, with paths that do not depend on the directory."""
    return {
        "manifest_path": _place(args.manifest, around),
        "aiter_root": _place(args.aiter_root, around),
        "aiter_commit": args.aiter_commit,
        "aiter_remote": args.aiter_remote,
        "patches_dir": _place(args.patches_dir, around),
        "groups": groups_of(args, around),
    }


def _place(path: Path | None, around: Around) -> Path | None:
    return None if path is None else around.directory / path


def groups_of(args: argparse.Namespace, around: Around) -> tuple[str, ...]:
    """Return the groups of modules that are asked for, () for all."""
    return split(args.group or [around.environ.get("QOLA_BUILD_GROUPS", "")])


def request_of_build(args: argparse.Namespace, around: Around) -> BuildRequest:
    """Return what the options that `add_request_options` adds ask for."""
    return BuildRequest(
        **_paths(args, around),
        archs=args.arch,
        build_mode=args.mode,
        skip_checkout=args.skip_checkout,
    )


def _build(args: argparse.Namespace, around: Around) -> int:
    """``qola build``."""
    console = around.console
    result = qola.build_kernels(
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


def _checkout(args: argparse.Namespace, around: Around) -> int:
    """``qola checkout``."""
    console = around.console
    path = qola.checkout_aiter(
        **_paths(args, around),
        environ=around.environ,
        progress=lambda text: console.note(f"qola: {text}"),
    )
    console.line(f"AITER ready at {path}")
    return 0
