"""``qola doctor``: what is there and what is missing on this machine, with what helps."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from qola.build.bazel import GET_BAZEL, ask, find_bazel
from qola.cache import cache_directory, foreign
from qola.checkout.default_tree import kept_tree, runfile_tree
from qola.cli.console import Console, Surroundings, align, size
from qola.cli.options import add_command, add_options
from qola.errors import ExitCode, ToolchainError
from qola.manifest.archs import native_archs
from qola.prebuilt.identity import ROCM_VARIABLE
from qola.progress import log
from qola.ruleset import ruleset_root
from qola.version import __version__

_BAZELW = "bazelw"
_TO_FIX = " To fix: "  # how bazelw --doctor begins it


@dataclass(frozen=True)
class Check:
    """One thing that qola uses.

    Attributes:
        status: `absent` is what only some commands want, `missing` what building wants.
        fix: what brings it, "" where nothing has to.
        details: lines of a program that was asked.
    """

    name: str
    status: Literal["ok", "absent", "missing"]
    found: str
    fix: str = ""
    details: tuple[str, ...] = ()


def add_commands(commands: Any) -> None:
    """Add doctor to the parser's subcommands."""
    parser = add_command(commands, "doctor", _doctor, (ExitCode.TOOLCHAIN,))
    add_options(parser, "json", help="print JSON, errors too")


def _doctor(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola doctor``."""
    found = list(checks(around.environ))
    if args.json:
        around.console.line(json.dumps([vars(check) for check in found], indent=2))
    else:
        _print(found, around.console)
    missing = any(check.status == "missing" for check in found)
    return ExitCode.TOOLCHAIN if missing else ExitCode.DONE


def _print(found: list[Check], console: Console) -> None:
    lines = align([(check.status, check.name, check.found) for check in found], 3)
    for line, check in zip(lines, found, strict=True):
        console.line(line)
        for detail in check.details:
            console.line(f"           {detail}")
        if check.fix:
            console.line(f"           fix: {check.fix}")


def checks(environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield what was found; nothing is changed, but that bazelw remembers its answer."""
    yield Check("qola", "ok", f"{__version__}, Python {platform.python_version()}")
    yield _cache(environ)
    if importlib.util.find_spec("pip"):
        yield Check("pip", "ok", "fetches AITER's wheel where Bazel does not")
    else:
        fix = f"{sys.executable} -m ensurepip"
        yield Check("pip", "absent", "it fetches AITER's wheel where Bazel does not", fix)
    yield _aiter(environ)
    if git := shutil.which("git", path=environ.get("PATH")):
        yield Check("git", "ok", git)
    else:
        yield Check("git", "absent", "it fetches a commit of AITER (--aiter-commit)", "install git")
    try:
        yield Check("GPU", "ok", ", ".join(native_archs()))
    except ToolchainError as error:
        yield Check("GPU", "absent", "none that --arch native could mean", error.findings[0].fix)
    named = environ.get(ROCM_VARIABLE, "")
    pinned = "the one that qola pins, which Bazel fetches"
    yield Check("ROCm", "ok", f"{ROCM_VARIABLE}={named}" if named else pinned)
    yield _bazel(environ)


def _cache(environ: Mapping[str, str]) -> Check:
    directory = cache_directory(environ)
    if why := foreign(directory):
        return Check("cache", "missing", f"{why.place}: {why.found}", why.fix)
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        free = size(shutil.disk_usage(there).free)
        return Check("cache", "ok", f"{directory}, {free} free")
    fix = "QOLA_CACHE_HOME=<a directory that you can write to>"
    return Check("cache", "missing", f"{directory}: {there} cannot be written to", fix)


def _aiter(environ: Mapping[str, str]) -> Check:
    tree = runfile_tree(environ) or kept_tree(environ)
    if (tree / "aiter").is_dir():
        return Check("AITER", "ok", str(tree))
    return Check("AITER", "absent", "not fetched yet: the first qola plan does it")


def _bazel(environ: Mapping[str, str]) -> Check:
    try:
        command = find_bazel(environ, ruleset_root())
        wrapper = Path(command[-1]).name == _BAZELW
        log.info("asking Bazel; this may take a minute")
        run = ask([*command, "--doctor" if wrapper else "--version"], environ)
    except ToolchainError as error:
        (finding, *_) = error.findings
        return Check("Bazel", "missing", f"{finding.place}: {finding.found}", finding.fix)
    lines = run.stdout.splitlines()
    if not wrapper:
        said = (run.stdout or run.stderr).strip().partition("\n")[0]
        if run.returncode == 0:
            return Check("Bazel", "ok", f"{command[-1]}: {said}")
        return Check("Bazel", "missing", f"{command[-1]}: {said}", GET_BAZEL)
    answer = next((line.split(None, 1)[1] for line in lines if line.startswith("answer ")), "")
    details = tuple(line for line in lines if not line.startswith("answer "))
    answer, _, fix = answer.partition(_TO_FIX)
    if run.returncode == 0:
        return Check("Bazel", "ok", answer, "", details)
    found = answer or run.stderr.strip() or f"exit code {run.returncode}"
    return Check("Bazel", "missing", found, fix or f"bash {command[-1]} --doctor", details)
