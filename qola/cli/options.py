"""The options of all commands, each defined once, and the requests that they make."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qola.build.bazel import BuildOptions
from qola.checkout.request import DEFAULT_REMOTE, AiterOptions
from qola.cli.commands import JSON
from qola.cli.console import Surroundings
from qola.codegen.types import LEVELS
from qola.common.layout import OWN_PATCHES, patches_folder
from qola.common.version import docs_url
from qola.manifest.archs import split
from qola.manifest.constants import BUILD_MODES, NATIVE, TESTED_ARCHS
from qola.manifest.load import Manifest, load
from qola.plan.spec import BuildRequest, BuildSpec, Forms
from qola.prebuilt.options import PrebuiltOptions
from qola_base.errors import ExitCode, Finding, QolaError

DEFAULT_MANIFEST = "qola.toml"
"""The file that `qola init` writes unless another is named."""


class NoManifestError(QolaError, title="no manifest is named", exit_code=ExitCode.USAGE):
    """A command that needs a manifest was called without one."""


def positive(text: str) -> int:
    """Parse a positive number below 2^31."""
    value = int(text)
    if not 0 < value < 1 << 31:
        raise ValueError
    return value


positive.__name__ = "number above 0"  # what argparse calls it


_Option = tuple[tuple[str, ...], dict[str, Any]]


REQUIRE = (
    "required level of each direction of CK: filtered (variants select kernels) "
    "or linked (each call of the dispatch has its kernel)"
)


def _option(*names: str, **settings: Any) -> _Option:
    return names, settings


def _flag(*names: str, **settings: Any) -> _Option:
    return names, {"action": "store_true", **settings}


def _list(*names: str, **settings: Any) -> _Option:
    return names, {"action": "append", "default": [], **settings}


def _choice(*names: str, **settings: Any) -> _Option:
    return names, {"action": argparse.BooleanOptionalAction, **settings}


_OPTIONS: Mapping[str, _Option] = {
    "manifest": _option(
        *("-m", "--manifest"),
        type=Path,
        metavar="FILE",
        help="the manifest, instead of the first argument",
    ),
    "output_dir": _option(
        *("-o", "--output-dir"),
        type=Path,
        metavar="DIR",
        help="where to install lib/, include/, manifest.json and more "
        "(default: out/ and the manifest's namespace)",
    ),
    "aiter_root": _option(
        *("-a", "--aiter-root"),
        type=Path,
        metavar="DIR",
        help="the AITER tree; commands that build or check out create it if it is missing",
    ),
    "aiter_commit": _option(
        "--aiter-commit",
        metavar="COMMIT",
        help="commit, tag or branch, instead of the manifest's [qola].aiter_commit "
        "(default: the wheel that qola pins)",
    ),
    "aiter_remote": _option(
        "--aiter-remote",
        default=DEFAULT_REMOTE,
        metavar="URL",
        help="remote from which git fetches a commit (default: %(default)s)",
    ),
    "patches_dir": _option(
        "--patches-dir",
        type=Path,
        metavar="DIR",
        help="patches for AITER, instead of the manifest's [qola].patches_dir; "
        f"{OWN_PATCHES} for qola's own, an empty folder for none",
    ),
    "skip_checkout": _flag(
        "--skip-checkout", help="use the tree in --aiter-root unchanged: no commit, no patches"
    ),
    "groups": _list(
        "--group",
        metavar="GROUP",
        help="only modules of this group; repeatable, or a list with ; or , between (default: "
        "$QOLA_BUILD_GROUPS, all)",
    ),
    "archs": _list(
        "--arch",
        metavar="ARCH",
        help=f"such as {' or '.join(TESTED_ARCHS)}, or {NATIVE}, this machine's GPU; repeatable, "
        f"or a list with ; or , between (default: the manifest's, $GPU_ARCHS, {NATIVE})",
    ),
    "mode": _option(
        "--mode",
        choices=BUILD_MODES,
        help="instead of [build].mode; a module's own mode wins (default: pybind)",
    ),
    "lazy": _choice(
        "--lazy",
        help="libraries that load each kernel when it is first called, with the sources and "
        "program to compile it in share/qola/ and bin/ (default: $NVTE_CK_JIT of "
        "TransformerEngine, else --no-lazy)",
    ),
    "static": _flag(
        "--static",
        help="also an archive of the attention modules, lib/libqola_NAMESPACE.a, to link into a "
        "program or library",
    ),
    "bazel_arg": _list(
        "--bazel-arg",
        metavar="ARG",
        help="a further argument of bazel build, such as --bazel-arg=--config=remote; repeatable",
    ),
    "keep_going": _choice(
        "--keep-going",
        default=True,
        help="continue with other kernels and modules when one fails (default)",
    ),
    "jobs": _option("-j", "--jobs", type=positive, metavar="N", help="parallel actions"),
    "verbose": _flag("-v", "--verbose", help="show every command"),
    "prebuilt": _list(
        "--prebuilt",
        metavar="URL",
        help="URL or directory of prebuilt bundles, tried before a build; "
        "repeatable (default: the manifest's [prebuilt].urls, $QOLA_PREBUILT_URL, "
        "$NVTE_AITER_PREBUILT_BASE_URL)",
    ),
    "public_key": _option(
        "--public-key",
        default="",
        metavar="KEY",
        help="public key of minisign for their signatures, or a file with it (default: "
        "the manifest's [prebuilt].public_key)",
    ),
    "offline": _flag("--offline", help="use only directories and earlier downloads"),
    "require": _option(
        "--require",
        choices=LEVELS[1:],
        default=LEVELS[0],
        help=REQUIRE,
    ),
    "kernels": _list(
        "--kernels",
        metavar="PATTERN",
        help="only kernels of such names, with * and ?; repeatable",
    ),
    "samples": _option(
        "--samples",
        type=positive,
        default=3,
        metavar="N",
        help="problems for each kernel (default: %(default)s)",
    ),
    "output": _option(
        *("-o", "--output"),
        metavar="FILE.html",
        help="also write a page for people there, in one file",
    ),
    "list": _list(
        "--list",
        metavar="FILE",
        help="list of kernels, one per line, each optionally with an arch, as from QOLA_RECORD; - "
        "for standard input; repeatable",
    ),
    "seed": _option(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the problems: the same for the same seed (default: %(default)s)",
    ),
    "overwrite": _flag("--overwrite", help="replace existing files"),
    "json": _flag(JSON, help=f"print JSON, errors too ({docs_url('reference/plan.md')})"),
}


DEFAULT_TREE = "the AITER tree (default: the pinned one, fetched once and kept in the cache)"
PLANNED_TREE = (
    "the AITER tree (default: that of the commit, else the pinned one, fetched once and cached); "
    "used unchanged, unless --aiter-commit or --patches-dir is given: then qola checkout makes it"
)

AITER = ("aiter_root", "aiter_commit", "aiter_remote", "patches_dir", "groups")
REQUEST = (*AITER, "skip_checkout", "archs", "mode", "bazel_arg")
"""Options that select the libraries of a manifest, see `build_request`."""

FORMS = ("lazy", "static")
PREBUILT = ("prebuilt", "public_key", "offline")
BUILD = ("keep_going", "jobs", "verbose")


def add_options(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Add options of the table, with changes for the command."""
    for name in names:
        flags, settings = _OPTIONS[name]
        parser.add_argument(*flags, dest=name, **settings | changes)


def add_manifest(
    parser: argparse.ArgumentParser, *, needed: bool = True, more: tuple[str, str] | None = None
) -> None:
    """Add the manifest: as a positional argument, or as -m/--manifest like ROCm/QoLA.

    Args:
        needed: the first positional argument is the manifest, and required. Otherwise an argument
            that ends in .toml is the manifest.
        more: metavar and help of positional arguments that can be more than the manifest.
    """
    metavar, text = more or ("MANIFEST", "a TOML file")
    parser.add_argument("words", nargs="*", metavar=metavar, help=text)
    add_options(parser, "manifest")
    parser.set_defaults(
        take_manifest=_take_manifest, needs_manifest=needed, takes_words=more is not None
    )


def _take_manifest(args: argparse.Namespace, directory: Path) -> None:
    """Move the manifest from the positional arguments to `args.manifest`.

    Raises:
        NoManifestError: a required manifest is missing.
        UsageError: there are too many positional arguments.
    """
    if args.manifest is None:
        fits = [word for word in args.words if args.needs_manifest or word.endswith(".toml")]
        if fits:
            args.words.remove(fits[0])
            args.manifest = Path(fits[0])
    if args.manifest is None and args.needs_manifest:
        command, fix = args.parser.prog, f"qola init && qola plan {DEFAULT_MANIFEST}"
        if (directory / DEFAULT_MANIFEST).is_file():
            fix = f"{command} {DEFAULT_MANIFEST}"
        expected = f"a TOML file: {command} FILE"
        raise NoManifestError(Finding("the command line", "no manifest", expected, fix))
    if args.words and not args.takes_words:
        args.parser.error(f"unknown word {' '.join(args.words)}")


def output_place(
    args: argparse.Namespace, around: Surroundings, manifest: Manifest | None = None
) -> Path:
    """Return the output directory: as given, else out/ and the namespace of the manifest.

    Args:
        manifest: None to read it here.
    """
    named: Path | None = getattr(args, "output_dir", None)
    if named:
        return named
    file = around.directory / args.manifest
    manifest = manifest or load(file, display=args.manifest.as_posix())
    return Path("out", manifest.namespace or args.manifest.stem)


def place_of(path: Path | None, around: Surroundings) -> Path | None:
    """Return an argument's path in the directory of the command, None for None."""
    return None if path is None else around.directory / path


def aiter_options(args: argparse.Namespace, around: Surroundings) -> AiterOptions:
    """Return the options of `AITER`, with absolute paths."""
    patches = args.patches_dir
    return AiterOptions(
        root=place_of(args.aiter_root, around),
        commit=args.aiter_commit,
        remote=args.aiter_remote,
        patches_dir=patches and patches_folder(patches, around.directory),
        skip_checkout=getattr(args, "skip_checkout", False),
        override=getattr(args, "override_aiter_commit", False),
    )


def groups_of(args: argparse.Namespace, around: Surroundings) -> tuple[str, ...]:
    """Return the groups of --group, else of $QOLA_BUILD_GROUPS."""
    return split(args.groups or [around.environ.get("QOLA_BUILD_GROUPS", "")])


def build_request(
    args: argparse.Namespace, around: Surroundings, forms: Forms | None = None
) -> BuildRequest:
    """Return the request of the options `REQUEST`, `require` and `override_aiter_commit`."""
    return BuildRequest(
        around.directory / args.manifest,
        BuildSpec(split(args.archs), args.mode, getattr(args, "require", LEVELS[0])),
        aiter_options(args, around),
        groups_of(args, around),
        forms or Forms(),
    )


def build_options(args: argparse.Namespace) -> BuildOptions:
    """Return the options of `BUILD`: how Bazel builds."""
    return BuildOptions(args.keep_going, args.jobs, args.verbose, tuple(args.bazel_arg), args.quiet)


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
