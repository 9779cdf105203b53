"""Exit codes, their page, and processes with a full disk, closed output or another locale."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from qola.cli.command_line import build_parser
from qola_base.errors import ExitCode, QolaError
from tests.support.folders import write


def test_the_table_has_each_code_and_its_commands(repo_root: Path) -> None:
    """Prevents: an exit code of a command is missing in the documentation."""
    page = (repo_root / "docs/reference/exit-codes.md").read_text("utf-8")
    actions = build_parser()._actions
    (commands,) = (a.choices for a in actions if isinstance(a, argparse._SubParsersAction))
    for code in ExitCode:
        names = [n for n, c in commands.items() if f"  {int(code):<4} " in (c.epilog or "")]
        shown = "all" if len(names) == len(commands) else ", ".join(f"`{name}`" for name in names)
        assert f"| {int(code)} | {code.meaning} | {shown} |\n" in page


def classes(base: type[QolaError]) -> Iterator[type[QolaError]]:
    for cls in base.__subclasses__():
        yield cls
        yield from classes(cls)


def test_errors_refer_to_the_table() -> None:
    """Prevents: an error class uses a number that is missing in the help."""
    found = {cls for cls in classes(QolaError) if cls.__module__.startswith("qola.")}
    assert len(found) > 10
    assert [cls for cls in found if not isinstance(cls.exit_code, ExitCode)] == []


def qola(
    repo_root: Path,
    *arguments: str,
    out: str | int = subprocess.PIPE,
    directory: str | Path | None = None,
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """Run qola as a process, with standard output to a file, or closed ("")."""
    command = [sys.executable, "-m", "qola", *arguments]
    if out == "":
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    path = os.pathsep.join([str(repo_root), *sys.path])
    with open(out or os.devnull, "w") if isinstance(out, str) else nullcontext(out) as stdout:
        run = subprocess.run(
            command,
            cwd=directory,
            stdout=stdout,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "PYTHONPATH": path, **environ},
            check=False,
        )
    assert "Traceback" not in run.stderr
    assert "Exception ignored" not in run.stderr
    return run


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_standard_output_on_a_full_disk(repo_root: Path, unbuffered: str) -> None:
    """Prevents: a traceback, or success, when standard output goes to a full disk."""
    run = qola(repo_root, "init", "-", out="/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert run.returncode == ExitCode.ERROR, run.stderr
    assert "error: standard output" in run.stderr
    assert "No space left on device" in run.stderr
    run = qola(repo_root, "plan", "nowhere", "--json", out="/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert run.returncode in (ExitCode.ERROR, ExitCode.USAGE)
    assert "error: nowhere" in run.stderr


def test_no_standard_output(repo_root: Path) -> None:
    """Prevents: with standard output closed, a traceback replaces the error or the work."""
    assert qola(repo_root, "init", "-", out="").returncode == ExitCode.DONE
    run = qola(repo_root, "plan", "nowhere", "--json", out="")
    assert run.returncode == ExitCode.USAGE
    assert "error: nowhere" in run.stderr


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii"])
def test_names_that_cannot_be_encoded(repo_root: Path, tmp_path: Path, encoding: str) -> None:
    """Prevents: a traceback for a directory name that is not valid UTF-8 or not in the locale."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/c\xff\xc3\xbc\x1b[2J")
    environ = {"PYTHONIOENCODING": encoding, "QOLA_CACHE_HOME": path}
    for arguments in (("cache",), ("cache", "--json"), ("doctor", "--json"), ("plan", path)):
        run = qola(repo_root, *arguments, **environ, QOLA_BAZEL="none")
        assert run.returncode in (ExitCode.DONE, ExitCode.TOOLCHAIN, ExitCode.USAGE)
        assert "\x1b" not in run.stderr


MANIFEST = """\
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
drop_directions = ["fwd_splitkv", "batch_prefill"]
[[mha_fwd_variants]]
dtype = "bf16"
hdim = 64
mode = "batch"
"""
PROBLEM = ("direction=fwd", "dtype=bf16", "hdim=64", "seqlen_q=16", "seqlen_k=16")
#: The C locale without Python's UTF-8 mode: names of files are ASCII, other bytes surrogates.
LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    "words",
    [["plan"], ["init", "--overwrite", "--schema"], ["dispatch", *PROBLEM]],
    ids=("plan", "init", "dispatch"),
)
def test_path_outside_of_the_locale(
    repo_root: Path, tmp_path: Path, aiter_tree: Path, words: list[str]
) -> None:
    """Prevents: a traceback for a manifest's path with ä in a container without a locale."""
    write(tmp_path / "bä", {"mä.toml": MANIFEST})
    options = [] if "init" in words else ["--aiter-root", str(aiter_tree)]
    arguments = [words[0], "bä/mä.toml", *words[1:], *options]
    environ = {**LOCALE, "QOLA_CACHE_HOME": str(tmp_path / "cache")}
    for _ in ("new", "cached"):
        run = qola(repo_root, *arguments, directory=tmp_path, **environ)
        assert run.returncode == ExitCode.DONE, run.stderr
        assert run.stdout
