"""The README's commands without Bazel, in a clean environment, as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from qola.version import __version__

_VENV = "{} --without-pip --clear && python3 -m pip --python venv/bin/python"
ROOT = Path(__file__).resolve().parents[2]


def commands() -> list[str]:
    """The commands of the README's section Without Bazel."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Without Bazel\n")[2]
    (block,) = re.findall(r"```sh\n(.*?)```", text.partition("\n## ")[0], re.DOTALL)
    return [line.partition("  #")[0].strip() for line in block.splitlines()]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command printed, in a copy of the checkout and without a Bazel."""
    directory = tmp_path_factory.mktemp("readme")
    ignored = shutil.ignore_patterns("bazel-*", ".git", "__pycache__", "*.egg-info", "tests")
    shutil.copytree(ROOT, directory / "qola", ignore=ignored, symlinks=True)
    own = ("PYTHON", "QOLA", "RUNFILES", "TEST", "BAZEL", "BUILD_W", "VIRTUAL_ENV", "XDG_CACHE")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(own)}
    environ["QOLA_CACHE_HOME"] = str(directory / "cache")
    # Whoever starts a Bazel fails.
    environ["QOLA_BAZEL"] = "/bin/false"
    said = {}

    def shell(words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", words],
            cwd=directory / "qola",
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    for command in commands():
        run = shell(command)
        if "ensurepip is not" in run.stdout:
            # A Debian without python3-venv, as bazelw's own tree is; its message says what to do.
            run = shell(f"{_VENV.format(command)} install pip")
        assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
        assert "Traceback" not in run.stderr
        said[command] = run.stdout
    assert (directory / "cache/trees").is_dir()
    return said


def test_a_manifest_is_planned(ran: dict[str, str]) -> None:
    """Prevents: a first command after pip install that asks for what nobody has."""
    (planned,) = [text for command, text in ran.items() if " plan " in command]
    assert re.search(r"first_libmha_fwd\.so, receipt 700, \d+ kernel instances", planned)
    assert "Estimated cost" in planned
    (explained,) = [text for command, text in ran.items() if " explain " in command]
    assert re.search(r"^\d+ kernel instances in, \d+ out", explained)


def test_the_installed_program_is_this_one(ran: dict[str, str]) -> None:
    """Prevents: a README that installs something else, or that is read from the checkout."""
    assert [text for command, text in ran.items() if command.endswith("--version")] == [
        f"qola {__version__}\n"
    ]
