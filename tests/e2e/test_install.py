"""Install the wheel with pip: the qola command and the wheel's ruleset, without a checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from qola.aiter.proven_faults import read_proven_faults
from qola.common.version import __version__
from qola.prebuilt.key import ruleset_digest
from tests.e2e.nested_bazel import EXAMPLE, QOLA, User, copy_checkout, pip, shared_bazel


@dataclass(frozen=True)
class Installed(User):
    """A user with a virtual environment that contains qola, and the installed wheel."""

    wheel: Path

    @property
    def root(self) -> Path:
        """The directory of the installed ruleset."""
        (found,) = self.directory.glob("venv/lib/python*/site-packages/qola/_ruleset")
        return found

    def run(self, *args: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run the installed command in an empty directory."""
        program, cwd = self.directory / "venv/bin/qola", self.directory / "elsewhere"
        return self.start(program, *args, cwd=cwd, code=code, PYTHONPATH="")


FOLDERS = (
    *("gfxemu", "qola", "qola_base", "qola_lab", "rules", "rules_hip"),
    *("runtime", "third_party", "tools"),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build the wheel from a copy of the checkout, and install it into a new environment."""
    directory = tmp_path_factory.mktemp("installed")
    copy_checkout(directory / "source")
    pip("wheel", "--no-deps", "--wheel-dir", directory / "wheel", directory / "source")
    (wheel,) = (directory / "wheel").glob("qola-*.whl")
    shutil.rmtree(directory / "source")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory / "venv"], check=True)
    pip("--python", directory / "venv/bin/python", "install", wheel)
    (directory / "elsewhere").mkdir()
    return Installed(directory, wheel)


def test_commands(installed: Installed) -> None:
    """Prevents: pip installs no qola command, or the command needs a checkout."""
    assert installed.run("--version").stdout == f"qola {__version__}\n"
    cmake = Path(installed.run("--cmake-dir").stdout.rstrip("\n"))
    assert (cmake / "qola.cmake").is_file()
    assert (cmake / "qola-targets.cmake").is_file()
    assert installed.directory in cmake.parents
    text = installed.run("build", "--help").stdout
    assert "usage: qola checkout" in installed.run("checkout", "--help").stdout
    for option in (
        *("--manifest", "--output-dir", "--aiter-root", "--aiter-commit", "--patches-dir"),
        *("--arch", "--mode", "--skip-checkout", "--verbose", "--group"),
    ):
        assert option in text, "an option of ROCm/QoLA's is gone"
    assert "exit codes:\n  0 " in text


def test_an_installation_has_the_keys_of_a_checkout(installed: Installed) -> None:
    """Prevents: an installed qola computes other keys than a checkout, and misses bundles."""
    assert ruleset_digest(installed.root) == ruleset_digest(QOLA)
    manifest = QOLA / "manifests/quickstart.toml"
    found = installed.run("fetch", "-m", str(manifest), "--print-key")
    assert found.stdout.startswith("quickstart-rocm7.2-gfx950-"), found.stderr


def test_wheel_holds_the_ruleset(installed: Installed) -> None:
    """Prevents: the wheel omits a file of the ruleset, of bazelw or of bazelw's setup."""
    with zipfile.ZipFile(installed.wheel) as archive:
        names = set(archive.namelist())
    expected = {".bazelversion", "BUILD.bazel", "LICENSE", "MODULE.bazel", "bazelw"}
    for folder in FOLDERS:
        # With the files behind the links of rules_hip.
        for place, _, files in os.walk(QOLA / folder, followlinks=True):
            below = Path(place).relative_to(QOLA)
            if "__pycache__" not in below.parts and "tests" not in below.parts[:3]:
                expected |= {(below / name).as_posix() for name in files}
    ruleset = {name for name in names if name.startswith("qola/_ruleset/")}
    assert {name.removeprefix("qola/_ruleset/") for name in ruleset} == expected
    # The rest of the wheel: Python files, and data files that they read.
    rest = {name for name in names - ruleset if ".dist-info/" not in name}
    suffixes = {Path(name).suffix for name in rest}
    assert suffixes <= {".c", ".cmake", ".css", ".h", ".js", ".json", ".md", ".patch", ".py"}
    patches = {name for name in rest if name.startswith("qola/aiter/patches/")}
    assert {Path(name).name for name in patches} == {f.patch for f in read_proven_faults()} - {""}
    assert os.access(installed.root / "bazelw", os.X_OK)


@pytest.fixture(scope="module")
def tree(installed: Installed) -> Path:
    """Return the AITER tree that Bazel fetches with the ruleset of the wheel."""
    elsewhere = installed.directory / "elsewhere"
    shutil.copy(EXAMPLE / "left.toml", elsewhere)
    options = ["--bazel-arg=--nobuild", "--output-dir", "out", "--verbose"]
    found = installed.run("build", "--manifest", "left.toml", *options, code=None)
    # --nobuild: qola has no outputs to install, but Bazel analyses all targets.
    assert "Analyzed target //:libmha_fwd" in found.stderr, found.stderr
    (config,) = installed.directory.glob("cache/qola/workspaces/left-*/MODULE.bazel")
    assert str(installed.root) in config.read_text()
    info = installed.start(shared_bazel(), "info", "output_base", cwd=config.parent, PYTHONPATH="")
    external = Path(info.stdout.strip(), "external")
    (configuration,) = external.glob("*aiter/aiter/jit/optCompilerConfig.json")
    return configuration.parents[2]


def test_plan_with_the_installed_ruleset(installed: Installed, tree: Path) -> None:
    """Prevents: the ruleset of the wheel does not load, fetch or plan."""
    plan = installed.run("plan", "left.toml", "--aiter-root", str(tree))
    assert "left_libmha_fwd.so" in plan.stdout


_MODEL = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "hidden_size": 1024,
}
_OBJECT = "{tree}/aiter_meta/hsa/gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtna.co"
_COMMANDS = {
    "report": [
        f"inspect {_OBJECT}",
        f"report {_OBJECT} -o page.html",
        "health --aiter {tree} --kernels hsa/gfx942/*/MI300/fwd_hd128_bf16_causal_rtna.co",
    ],
    "verify": [
        "dispatch left.toml --aiter-root {tree} dtype=fp16 hdim=32 seqlen_q=256",
        "init model.toml --model config.json --aiter-root {tree} --arch gfx950",
    ],
}
"""Commands that an extra serves (docs/guide/setup.md)."""


@pytest.mark.parametrize("extra", _COMMANDS)
def test_commands_with_one_extra(
    installed: Installed, tree: Path, extra: str, tmp_path: Path
) -> None:
    """Prevents: an extra lacks a package that its commands import."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    pip("--python", tmp_path / "venv/bin/python", "install", f"{installed.wheel}[{extra}]")
    shutil.copy(EXAMPLE / "left.toml", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(_MODEL))
    for command in _COMMANDS[extra]:
        words = command.format(tree=tree).split()
        installed.start(tmp_path / "venv/bin/qola", *words, cwd=tmp_path, PYTHONPATH="")
