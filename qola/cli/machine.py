"""``qola doctor``, ``qola cache``, ``qola hipcc`` and ``qola completion``: about this machine."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from qola.build import housekeeping
from qola.build.bazel import GET_BAZEL, ask, find_bazel
from qola.build.compiler import hipcc
from qola.checkout.default_tree import kept_tree, runfile_tree
from qola.cli.commands import add_command
from qola.cli.console import Surroundings, align, size, table
from qola.cli.options import add_options, positive
from qola.common.ruleset import ruleset_root
from qola.common.version import __version__
from qola.manifest.archs import native_archs
from qola.prebuilt.key import ROCM_VARIABLE
from qola_base.cache import cache_directory, foreign, refuse_foreign
from qola_base.errors import ExitCode, Finding, QolaError, ToolchainError
from qola_base.progress import log

_SHELLS = ("bash", "zsh", "fish")


def add_commands(commands: Any) -> None:
    """Add doctor, cache, hipcc and completion to the parser's subcommands."""
    doctor = add_command(commands, "doctor", _doctor, (ExitCode.TOOLCHAIN,))
    add_options(doctor, "json", help="print JSON, errors too")
    cache = add_command(commands, "cache", _cache, ())
    cache.add_argument(
        "--prune",
        type=positive,
        metavar="DAYS",
        help="remove entries that were not used for DAYS days and can be made again",
    )
    add_options(cache, "json", help="print JSON, errors too")
    add_command(commands, "hipcc", _hipcc, (ExitCode.TOOLCHAIN,))
    epilog = 'bash: eval "$(qola completion bash)" in ~/.bashrc'
    completion = add_command(commands, "completion", _completion, (), epilog=epilog)
    completion.add_argument("shell", choices=_SHELLS, metavar="|".join(_SHELLS), help="the shell")


_ENSURE_PIP = f"{sys.executable} -m ensurepip"
_TO_FIX = " To fix: "  # how bazelw --doctor begins it


@dataclass(frozen=True)
class Check:
    """The check of a program or library that qola uses.

    Attributes:
        status: `absent` if only some commands need it, `missing` if builds need it.
        fix: how to install it, "" if unnecessary.
        details: output of a program.
    """

    name: str
    status: Literal["ok", "absent", "missing"]
    found: str
    fix: str = ""
    details: tuple[str, ...] = ()


def _doctor(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola doctor``."""
    found, console = list(checks(around.environ)), around.console
    if args.json:
        console.json([vars(check) for check in found])
    else:
        lines = align([(check.status, check.name, check.found) for check in found], 3)
        for line, check in zip(lines, found, strict=True):
            fix = (f"fix: {check.fix}",) if check.fix else ()
            for text in (line, *(f"           {more}" for more in (*check.details, *fix))):
                console.line(text)
    missing = any(check.status == "missing" for check in found)
    return ExitCode.TOOLCHAIN if missing else ExitCode.DONE


def checks(environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield the checks; only bazelw writes its cached answer."""
    yield Check("qola", "ok", f"{__version__}, Python {platform.python_version()}")
    yield _cache_check(environ)
    pip, use = importlib.util.find_spec("pip"), "fetches AITER's wheel where Bazel does not"
    yield Check("pip", "ok" if pip else "absent", use, "" if pip else _ENSURE_PIP)
    tree = runfile_tree(environ) or kept_tree(environ)
    if (tree / "aiter").is_dir():
        yield Check("AITER", "ok", str(tree))
    else:
        yield Check("AITER", "absent", "not fetched yet: the first qola plan does it")
    git = shutil.which("git", path=environ.get("PATH"))
    use = "fetches commits of AITER, applies patches"
    yield Check("git", "ok" if git else "absent", git or use, "" if git else "install git")
    try:
        yield Check("GPU", "ok", ", ".join(native_archs()))
    except ToolchainError as error:
        yield Check("GPU", "absent", "none that --arch native could mean", error.findings[0].fix)
    rocm = environ.get(ROCM_VARIABLE)
    pinned = "the one that qola pins, which Bazel fetches"
    yield Check("ROCm", "ok", f"{ROCM_VARIABLE}={rocm}" if rocm else pinned)
    yield _bazel(environ)


def _cache_check(environ: Mapping[str, str]) -> Check:
    directory = cache_directory(environ)
    if why := foreign(directory):
        return Check("cache", "missing", f"{why.place}: {why.found}", why.fix)
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        free = size(shutil.disk_usage(there).free)
        return Check("cache", "ok", f"{directory}, {free} free")
    fix = "QOLA_CACHE_HOME=<a directory that you can write to>"
    return Check("cache", "missing", f"{directory}: {there} cannot be written to", fix)


def _bazel(environ: Mapping[str, str]) -> Check:
    try:
        command = find_bazel(environ, ruleset_root())
        wrapper = Path(command[-1]).name == "bazelw"
        log.info("asking Bazel; this may take a minute")
        run = ask([*command, "--doctor" if wrapper else "--version"], environ)
    except ToolchainError as error:
        (finding, *_) = error.findings
        return Check("Bazel", "missing", f"{finding.place}: {finding.found}", finding.fix)
    if not wrapper:
        answer = f"{command[-1]}: {(run.stdout or run.stderr).strip().partition(chr(10))[0]}"
        if run.returncode == 0:
            return Check("Bazel", "ok", answer)
        return Check("Bazel", "missing", answer, GET_BAZEL)
    lines = run.stdout.splitlines()
    answer = next((line.split(None, 1)[1] for line in lines if line.startswith("answer ")), "")
    details = tuple(line for line in lines if not line.startswith("answer "))
    answer, _, fix = answer.partition(_TO_FIX)
    if run.returncode == 0:
        return Check("Bazel", "ok", answer, "", details)
    found = answer or run.stderr.strip() or f"exit code {run.returncode}"
    return Check("Bazel", "missing", found, fix or f"bash {command[-1]} --doctor", details)


def _cache(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola cache``."""
    directory, console = cache_directory(around.environ), around.console
    freed = 0
    if args.prune:
        # Another user's link there would lead to files of this one.
        refuse_foreign(directory)
        try:
            freed = housekeeping.prune(directory, args.prune)
        except OSError as error:
            place, why = str(error.filename or directory), error.strerror or str(error)
            expected = "a directory of your own, whose files you can remove"
            finding = Finding(place, why, expected, f"ls -ld {place} shows the owner")
            raise QolaError(finding, "the cache cannot be pruned") from None
    log.info("adding up")
    sizes = housekeeping.sizes(directory)
    total = sum(sizes.values())
    if args.json:
        found = {"directory": str(directory), "freed": freed, "total": total, "parts": sizes}
        console.json(found)
        return
    if args.prune:
        console.line(f"{size(freed)} freed")
    rows = [(name, size(count)) for name, count in sizes.items()]
    sums = ("total", size(total))
    console.line(table(str(directory), ("part", "size"), rows, sums, numbers=1))


def _hipcc(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola hipcc``."""
    around.console.line(str(hipcc(around.environ)))


def _completion(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola completion``."""
    shtab = importlib.import_module("shtab")
    for command in args.commands.values():
        for action in command._actions:
            # A manifest is a command's first word, too.
            if action.type is Path or action.dest == "words":
                directory = str(action.metavar).startswith("DIR")
                action.complete = shtab.DIRECTORY if directory else shtab.FILE
    around.console.line(shtab.complete(args.program, shell=args.shell))
