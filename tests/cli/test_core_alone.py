"""The core without the other parts: its commands, and the error of a command of the laboratory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qola.cli.commands import COMMANDS
from qola.common.packages import ROOT
from qola_base.errors import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]

LABORATORY = [name for name, about in COMMANDS.items() if about.module.startswith("qola_lab")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs a command where only the core and qola_base can be imported."""
    alone = tmp_path_factory.mktemp("alone")
    for part in ("qola", "qola_base"):
        (alone / part).symlink_to(ROOT / part)
    packages = [path for path in sys.path if path and not (Path(path) / "qola_lab").is_dir()]
    environ = {
        "HOME": str(alone),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(alone), *packages]),
    }

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-B", "-P", "-c", _START, *words]
        env = environ | variables
        return subprocess.run(
            command, env=env, cwd=alone, text=True, capture_output=True, check=False
        )

    return run


_START = """\
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "numpy":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from qola.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        *([name, "--help"] for name in COMMANDS if name not in LABORATORY),
        ["init", "mine.toml"],
    ],
    ids=" ".join,
)
def test_the_core_starts_without_other_parts(run: Run, words: list[str]) -> None:
    """Prevents: a command of the core that imports the laboratory, the emulator or NumPy."""
    found = run(*words)
    assert "No module named" not in found.stderr
    assert found.returncode == 0, found.stderr


def test_the_core_plans_alone(run: Run, aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: a plan of kernels that imports the laboratory, the emulator or NumPy."""
    manifest = tmp_path / "mine.toml"
    assert run("init", str(manifest)).returncode == 0
    found = run("plan", str(manifest), "--aiter-root", str(aiter_tree))
    assert found.returncode == 0, found.stderr
    assert "libmha_fwd" in found.stdout


@pytest.mark.parametrize("name", LABORATORY)
def test_commands_of_the_laboratory_name_it(run: Run, name: str) -> None:
    """Prevents: a traceback where qola_lab is not installed."""
    found = run(name, "--help")
    assert found.returncode == ExitCode.TOOLCHAIN
    assert "the laboratory is not installed" in found.stderr
    assert "found     no package qola_lab" in found.stderr
    assert "//qola_lab:program" in found.stderr


def test_models_need_the_laboratory(run: Run) -> None:
    """Prevents: a traceback of `qola init --model` where qola_lab is not installed."""
    found = run("init", "--model", "config.json", "model.toml")
    assert found.returncode == ExitCode.TOOLCHAIN
    assert "no package qola_lab" in found.stderr


def test_bazel_runs_the_laboratory(run: Run, tmp_path: Path) -> None:
    """Prevents: `bazel run //:qola -- verify` that fails, or drops its directory or options."""
    bazel = tmp_path / "bazel"
    bazel.write_text('#!/bin/sh\necho "$PWD" "$@"\nexit 7\n')
    bazel.chmod(0o755)
    set_by_bazel = {"BUILD_WORKING_DIRECTORY": str(tmp_path), "RUNFILES_DIR": str(tmp_path)}
    words = ("verify", "mine.toml", "--samples", "1")
    found = run(*words, QOLA_BAZEL=str(bazel), **set_by_bazel)
    assert found.returncode == 7
    assert found.stdout.startswith(f"{tmp_path} run ")
    assert found.stdout.endswith("//qola_lab:program -- verify mine.toml --samples 1\n")
