"""The README's commands without Bazel, in a fresh clone, as they stand there; then Bazel in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from qola.version import __version__
from tests.e2e.nested_bazel import Bazel, environment, shared_place, shared_program, user_disk_cache

_VENV = "{} --without-pip --clear && python3 -m pip --python venv/bin/python"
ROOT = Path(__file__).resolve().parents[2]
KERNEL = """
#include <hip/hip_runtime.h>
__global__ void one(float* p) { p[threadIdx.x] = 1; }
int main() { one<<<1, 64>>>(nullptr); return hipDeviceSynchronize(); }
"""


def commands() -> list[str]:
    """The commands of the README's section Without Bazel."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Without Bazel\n")[2]
    (block,) = re.findall(r"```sh\n(.*?)```", text.partition("\n## ")[0], re.DOTALL)
    return [line.partition("  #")[0].strip() for line in block.splitlines()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, without what was built in it."""
    clone = tmp_path_factory.mktemp("readme") / "qola"
    everywhere = shutil.ignore_patterns("bazel-*", ".git", "__pycache__", "*.egg-info")
    in_root = {"build", "dist", "out", "venv", ".venv"}

    def ignored(place: str, names: list[str]) -> set[str]:
        return {*everywhere(place, names), *(in_root if Path(place) == ROOT else ())}

    shutil.copytree(ROOT, clone, ignore=ignored, symlinks=True)
    return clone


@pytest.fixture(scope="module")
def ran(clone: Path) -> dict[str, str]:
    """What each command printed, in a copy of the checkout and without a Bazel."""
    directory = clone.parent
    own = ("PYTHON", "QOLA", "RUNFILES", "TEST", "BAZEL", "BUILD_W", "VIRTUAL_ENV", "XDG_CACHE")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(own)}
    environ["QOLA_CACHE_HOME"] = str(directory / "cache")
    # Whoever starts a Bazel fails.
    environ["QOLA_BAZEL"] = "/bin/false"
    said = {}

    def shell(words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", words],
            cwd=clone,
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
    """Prevents: a README that installs something else; a first command that asks for more."""
    versions = [text for command, text in ran.items() if command.endswith("--version")]
    assert versions == [f"qola {__version__}\n"]
    (planned,) = [text for command, text in ran.items() if " plan " in command]
    assert re.search(r"first_libmha_fwd\.so, receipt 700, \d+ kernel instances", planned)
    assert "Estimated cost" in planned
    (explained,) = [text for command, text in ran.items() if " explain " in command]
    assert re.search(r"^\d+ kernel instances in, \d+ out", explained)


def test_bazel_still_reads_the_clone(ran: dict[str, str], clone: Path) -> None:
    """Prevents: venv/ and build/, which these commands make, taken for packages of the clone."""
    assert ran
    assert {"build", "venv"} <= {path.name for path in clone.iterdir()}
    bazel = Bazel(clone, shared_place() / "output_base", user_disk_cache())
    labels = bazel.run("query", "//...").stdout.split()
    assert "//:qola" in labels
    assert [label for label in labels if label.startswith(("//build", "//venv"))] == []


def test_hipcc_compiles_without_rocm(ran: dict[str, str], clone: Path) -> None:
    """Prevents: a `qola hipcc`, with which docs/guide/cmake.md begins, that needs a ROCm."""
    assert ran
    env = environment("PYTHON") | {
        "QOLA_BAZEL": str(shared_program()),
        "QOLA_CACHE_HOME": str(clone.parent / "cache"),
    }
    command = [str(clone / "venv/bin/qola"), "hipcc", "-q"]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (clone.parent / "kernel.cpp").write_text(KERNEL)
    hipcc = [run.stdout.strip(), "-x", "hip", "--offload-arch=gfx950", "kernel.cpp", "-lamdhip64"]
    subprocess.run(hipcc, cwd=clone.parent, env={"PATH": "/usr/bin:/bin"}, check=True)
    assert (clone.parent / "a.out").is_file()
