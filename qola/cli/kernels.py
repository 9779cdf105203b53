"""``qola kernels``: of an installed lazy bundle by its own program, of a manifest by Bazel."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from qola.build.bazel import BuildOptions
from qola.build.kernel_selection import Selection, choose
from qola.build.pack import SUFFIX, build_pack, rows_by_module
from qola.cli.context import Surroundings
from qola.cli.options import EXIT_FAILED_MODULES, add_build_options, groups_of, request_of_build
from qola.cli.plan_options import add_plan_options, make_plan, request_of
from qola.errors import Finding, QolaError
from qola.manifest.archs import choose_modules
from qola.manifest.fields import BUILD_MODES

COMMAND = "kernels"

PROGRAM = "bin/qola-kernels"
"""The program of a lazy bundle."""

_LEVELS = 3
"""QOLA_ROOT is share/qola/<namespace> of a bundle: so many directories below it at most."""

_TEXT = "list, build, move and check kernels of lazy libraries"

_USAGE = (
    "qola kernels list|build|export|verify|clean|cache --bundle DIR [OPTION...] [NAME...]\n"
    "       qola kernels list|build --manifest FILE [OPTION...] [NAME...]"
)

_EPILOG = """\
commands:
  list      the kernels, and with a bundle where each is
  build     compile kernels: with a bundle into its cache or a pack, with a manifest by Bazel and
            its caches into a pack
  export, verify, clean, cache
            of a bundle only: kernels in its caches and packs

With a bundle all other options are those of its program; COMMAND --help tells them:
  qola kernels build --bundle DIR --help
  qola kernels build --manifest FILE --help
Without either, it is the bundle that the environment variable QOLA_ROOT is in."""

_SELECTION = """\
Selection: all that is named together; without any, list has all kernels. A line of a list names a
kernel, or a file of it (its source, a library, an entry of a cache), and perhaps an arch behind it;
# begins a comment."""

_LIST_EXIT_CODES = """
exit codes: 0 all that is selected is there; 1 a kernel is not, or an error of qola's own; 2 wrong
usage or an invalid manifest; 3 the AITER tree, 4 a generator, 6 the plan; 130 interrupted"""

_BUILD_EXIT_CODES = """
exit codes: 0 the pack is written; 7 a kernel did not compile; 1 there is no such kernel, found
before anything is built, or an error of qola's own; 2 wrong usage or an invalid manifest; 3 the
AITER tree or a patch; 4 a generator; 5 no Bazel or no ROCm; 6 the plan; 130 interrupted; 143
terminated. The pack is as it was unless it is written"""

_OF_BUNDLES = ("export", "verify", "clean", "cache")


class KernelsError(QolaError):
    """A command cannot be run: it has no bundle, or is not used as it is to be."""

    exit_code: ClassVar[int] = 2
    default_title: ClassVar[str] = "qola kernels cannot do that"


@dataclass(frozen=True)
class Words:
    """What follows ``qola kernels``.

    Attributes:
        bundle: value of --bundle, None for none.
        manifest: value of --manifest, None for none.
        rest: all else, unchanged.
    """

    bundle: str | None
    manifest: str | None
    rest: tuple[str, ...]


def split_words(words: Sequence[str]) -> Words:
    """Take --bundle and --manifest, wherever they stand before ``--``, out of a command line.

    Raises:
        KernelsError: one of them has no value, or both are there.
    """
    found: dict[str, str | None] = {"--bundle": None, "--manifest": None}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += [word, *left]
            break
        option, equals, value = word.partition("=")
        option = "--manifest" if word == "-m" else option
        if option not in found:
            rest.append(word)
        elif not equals and not left:
            raise KernelsError(Finding("the command line", f"{word} at its end", f"{word} PATH"))
        else:
            found[option] = value if equals else left.pop(0)
    bundle, manifest = found["--bundle"], found["--manifest"]
    if bundle is not None and manifest is not None:
        raise KernelsError(
            Finding(
                "the command line",
                "--bundle and --manifest",
                "one of them: kernels of an installed bundle, or those that a manifest says",
            )
        )
    return Words(bundle, manifest, tuple(rest))


def add_command(commands: Any) -> None:
    """Add ``kernels`` to what ``qola --help`` lists; `parse` parses it."""
    parser: argparse.ArgumentParser = commands.add_parser(
        COMMAND, help=_TEXT, usage=_USAGE, allow_abbrev=False
    )
    parser.set_defaults(parser=parser, words=[], quiet=False)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse what follows ``qola kernels``; leaves with 2 where it is wrong, as argparse does."""
    parser = _parser()
    try:
        found = split_words(words)
    except KernelsError as error:
        return argparse.Namespace(run=_raise, error=error, quiet=False)
    if found.manifest is None:
        return argparse.Namespace(run=_run_program, words=found, parser=parser, quiet=False)
    command, *rest = found.rest or ("--help",)
    if command in ("-h", "--help"):
        parser.parse_args([command])
    if command in _OF_BUNDLES:
        needed = _needs_bundle(command, found.manifest)
        return argparse.Namespace(run=_raise, error=needed, quiet=False)
    if command not in ("list", "build"):
        parser.error(f"expected a command, found {command}")
    of_command = _list_parser() if command == "list" else _build_parser()
    args, names = of_command.parse_known_args(rest)
    unknown = [word for word in names if word.startswith("-") and word != "-"]
    if unknown:
        of_command.error(f"unknown option {' '.join(unknown)}")
    args.words += [word for word in names if word != "--"]
    args.manifest = Path(found.manifest)
    args.parser = of_command
    return args


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"qola {COMMAND}",
        description=f"{_TEXT[0].upper()}{_TEXT[1:]}.",
        usage=_USAGE,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--bundle", metavar="DIR", help="a lazy bundle; what qola build --lazy installs is one"
    )
    parser.add_argument("-m", "--manifest", metavar="FILE", help="a manifest; no bundle is needed")
    return parser


def _command_parser(command: str, text: str, exit_codes: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"qola {COMMAND} {command}",
        description=text,
        usage=f"qola {COMMAND} {command} --manifest FILE [OPTION...] [NAME...]",
        epilog=_SELECTION + exit_codes,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("words", nargs="*", metavar="NAME", help="names of kernels, or their files")
    parser.add_argument(
        *("--list", "--blob-list", "--record"),
        dest="lists",
        action="append",
        default=[],
        metavar="FILE",
        help="a kernel a line; - for standard input; --record: what QOLA_RECORD wrote",
    )
    parser.add_argument(
        *("--name", "--blob"),
        dest="names",
        action="append",
        default=[],
        metavar="NAME",
        help="the same as NAME",
    )
    parser.add_argument("--all", action="store_true", help="all kernels of the manifest")
    return parser


def _list_parser() -> argparse.ArgumentParser:
    text = "Lists the kernels of a manifest's plan, a name and an arch a line; builds nothing."
    parser = _command_parser("list", text, _LIST_EXIT_CODES)
    add_plan_options(
        parser, aiter=("--aiter", "-a", "--aiter-root"), mode=("--build-mode", "--mode")
    )
    parser.add_argument(
        "--group", action="append", default=[], metavar="GROUP", help="only modules of this group"
    )
    parser.set_defaults(run=_list, name=None)
    return parser


def _build_parser() -> argparse.ArgumentParser:
    text = "Has Bazel compile kernels, with all its caches, and puts them into a pack."
    parser = _command_parser("build", text, _BUILD_EXIT_CODES)
    parser.add_argument(
        *("-o", "--output"),
        required=True,
        metavar=f"PACK{SUFFIX}",
        help="the pack; replaced as a whole",
    )
    add_build_options(parser)
    # The names that list has from qola plan.
    parser.add_argument(
        "--aiter", dest="aiter_root", type=Path, metavar="TREE", help="the same as --aiter-root"
    )
    parser.add_argument("--build-mode", dest="mode", choices=BUILD_MODES, help="the same as --mode")
    parser.set_defaults(run=_build, quiet=False)
    return parser


def _raise(args: argparse.Namespace, _around: Surroundings) -> int:
    raise args.error


def _needs_bundle(command: str, manifest: str) -> KernelsError:
    return KernelsError(
        Finding(
            "--manifest",
            f"{command}, of {manifest}",
            f"a lazy bundle: {command} is about the kernels that it has in caches and packs",
            f"qola {COMMAND} {command} --bundle DIR",
        )
    )


def _run_program(args: argparse.Namespace, around: Surroundings) -> int:
    """Run the bundle's program with what was not ours."""
    words: Words = args.words
    root = around.environ.get("QOLA_ROOT", "")
    if words.bundle is None and not root:
        if not words.rest or {"-h", "--help"} & {*words.rest}:
            args.parser.print_help(around.console.out)
            return 0
        raise KernelsError(
            Finding(
                "the command line",
                "no bundle and no manifest",
                "one of them, or QOLA_ROOT=DIR/share/qola/NAMESPACE in the environment",
                f"qola {COMMAND} {words.rest[0]} --bundle DIR, with what qola build --lazy or a "
                "qola_bundle made; list and build also with --manifest FILE",
            )
        )
    around.console.out.flush()
    return run(
        [str(find_program(words.bundle, root, around.directory)), *words.rest],
        around.directory,
        around.environ,
    )


def find_program(bundle: str | None, root: str, directory: Path) -> Path:
    """Return the program of a bundle.

    Args:
        bundle: the bundle, None for the one that `root` is in.
        root: value of QOLA_ROOT.
        directory: what relative paths are relative to.

    Raises:
        KernelsError: there is none.
    """
    if bundle is not None:
        place, given, expected = "--bundle", bundle, "the directory of a lazy bundle"
        places = [directory / bundle]
    else:
        place, given = "QOLA_ROOT", root
        expected = "share/qola/NAMESPACE of a lazy bundle"
        inside = Path(os.path.abspath(directory / root))
        places = [inside, *inside.parents][: _LEVELS + 1]
    for path in places:
        # As the path of a program: with a slash, or PATH would be asked.
        program = (path / PROGRAM).absolute()
        if program.is_file():
            return program
    raise KernelsError(
        Finding(
            place,
            f"{given}, without {PROGRAM}" if places[0].is_dir() else f"{given}: no such directory",
            expected,
            "qola build --lazy --output-dir DIR makes one",
        )
    )


def run(command: Sequence[str], directory: Path, environ: Mapping[str, str]) -> int:
    """Run a program in the place of this one: its input, output and exit code.

    Raises:
        KernelsError: it cannot be started.
        KeyboardInterrupt: after it has ended; so with any other exception a signal raises.
    """
    try:
        process = subprocess.Popen(command, cwd=directory, env=dict(environ))
    except OSError as error:
        raise KernelsError(
            Finding(command[0], error.strerror or str(error), "a program of this machine")
        ) from None
    try:
        code = process.wait()
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        process.send_signal(signal.SIGINT if interrupted else signal.SIGTERM)
        process.wait()
        raise
    # As a shell says that a signal ended it.
    return code if code >= 0 else 128 - code


def _selection(args: argparse.Namespace, around: Surroundings) -> Selection:
    """Return what is selected.

    Raises:
        SelectionError: a list cannot be read.
    """
    selection = Selection(everything=args.all)
    for name in (*args.words, *args.names):
        selection.add(name)
    for name in args.lists:
        selection.add_file(name, around.directory)
    if selection.leftovers:
        around.console.note(
            f"qola: {selection.leftovers} lines were names of temporary files, and passed over"
        )
    return selection


def _list(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola kernels list --manifest``."""
    console = around.console
    selection = _selection(args, around)
    if selection.empty:
        selection = replace(selection, everything=True)
    request = request_of(args.manifest, args, around)
    groups = groups_of(args, around)
    modules = {module.name for module in choose_modules(request.manifest, groups)}
    plan = make_plan(request, console)
    found = rows_by_module(
        {module.name: module.kernels for module in plan.modules if module.name in modules},
        [(kernel.name, kernel.archs) for kernel in plan.kernels],
    )
    chosen = choose((row for rows in found.values() for row in rows), selection)
    for name, arch in chosen.rows:
        console.line(f"{name} {arch}")
    for name in chosen.missing:
        console.note(f"qola: there is no kernel {name} in {request.manifest.file}")
    return 1 if chosen.missing else 0


def _build(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola kernels build --manifest``."""
    console = around.console
    if not args.output.endswith(SUFFIX):
        raise KernelsError(
            Finding("--output", args.output, f"a file whose name ends in {SUFFIX}"),
        )
    output = around.directory.absolute() / args.output
    _check_place(output, args.output)
    selection = _selection(args, around)
    if selection.empty:
        raise KernelsError(
            Finding(
                "the command line",
                "no kernel",
                "names of kernels, --list FILE or --record FILE with names, or --all",
                f"qola {COMMAND} list --manifest {args.manifest} lists them",
            ),
            "nothing to build",
        )
    options = BuildOptions(
        keep_going=args.keep_going,
        jobs=args.jobs,
        subcommands=args.verbose,
        more=tuple(args.bazel_arg),
    )
    result = build_pack(
        request_of_build(args, around),
        selection,
        output,
        options,
        around.environ,
        lambda text: console.note(f"qola: {text}"),
    )
    if result.error:
        console.line(f"FAILED: {args.output}: not written")
        for line in result.error.splitlines():
            console.line(f"  {line}")
        return EXIT_FAILED_MODULES
    console.line(f"{len(result.rows)} kernels written to {args.output}")
    return 0


def _check_place(output: Path, given: str) -> None:
    """Find out that a pack cannot be written before hours are spent on it."""
    above = next(path for path in output.parents if path.exists())
    if output.is_dir() or not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise KernelsError(
            Finding("--output", given, "a file in a directory that can be written to"),
        )
