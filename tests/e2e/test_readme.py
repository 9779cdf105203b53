"""Run the README's commands without Bazel in a copy of the checkout, then run Bazel there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from qola.common.version import __version__
from tests.e2e.nested_bazel import (
    QOLA,
    Bazel,
    copy_checkout,
    environment,
    shared_bazel,
    shared_directory,
    user_disk_cache,
)
from tests.support.running import output_of, run

_VENV = "{} --without-pip --clear && python3 -m pip --python venv/bin/python"
KERNEL = """
#include <hip/hip_runtime.h>
__global__ void one(float* p) { p[threadIdx.x] = 1; }
int main() { one<<<1, 64>>>(nullptr); return hipDeviceSynchronize(); }
"""


def commands() -> list[str]:
    """Return the commands of the README section "Without Bazel"."""
    text = (QOLA / "README.md").read_text(encoding="utf-8").partition("## Without Bazel\n")[2]
    (block,) = re.findall(r"```sh\n(.*?)```", text.partition("\n## ")[0], re.DOTALL)
    return [line.partition("  #")[0].strip() for line in block.splitlines()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the checkout without build outputs."""
    clone = tmp_path_factory.mktemp("readme") / "qola"
    copy_checkout(clone)
    return clone


@pytest.fixture(scope="module")
def outputs(clone: Path) -> dict[str, str]:
    """Run each command in the copy without a Bazel, and return its standard output."""
    directory = clone.parent
    prefix = ("PYTHON", "QOLA", "RUNFILES", "TEST", "BAZEL", "BUILD_W", "VIRTUAL_ENV", "XDG_CACHE")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(prefix)}
    environ["QOLA_CACHE_HOME"] = str(directory / "cache")
    # A command that starts Bazel fails.
    environ["QOLA_BAZEL"] = "/bin/false"
    stdout_by_command = {}

    for command in commands():
        result = run(["bash", "-c", command], cwd=clone, env=environ)
        if "ensurepip is not" in result.stdout:
            # Debian without python3-venv, such as bazelw's tree: do what its message suggests.
            script = f"{_VENV.format(command)} install pip"
            result = run(["bash", "-c", script], cwd=clone, env=environ)
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
        assert "Traceback" not in result.stderr
        stdout_by_command[command] = result.stdout
    assert (directory / "cache/trees").is_dir()
    return stdout_by_command


def test_a_manifest_is_planned(outputs: dict[str, str]) -> None:
    """Prevents: the README's commands install another version, or `qola plan` needs more setup."""
    versions = [text for command, text in outputs.items() if command.endswith("--version")]
    assert versions == [f"qola {__version__}\n"]
    (planned,) = [text for command, text in outputs.items() if " plan " in command]
    assert re.search(r"first_libmha_fwd\.so, receipt 700, \d+ kernel instances", planned)
    assert "Estimated cost" in planned
    (explained,) = [text for command, text in outputs.items() if " explain " in command]
    assert re.search(r"^\d+ kernel instances in, \d+ out", explained)


def test_bazel_still_reads_the_clone(outputs: dict[str, str], clone: Path) -> None:
    """Prevents: Bazel reads venv/ and build/, which these commands create, as packages."""
    assert outputs
    assert {"build", "venv"} <= {path.name for path in clone.iterdir()}
    bazel = Bazel(clone, shared_directory() / "output_base", user_disk_cache())
    labels = bazel.run("query", "//...").stdout.split()
    assert "//:qola" in labels
    assert [label for label in labels if label.startswith(("//build", "//venv"))] == []


def test_hipcc_compiles_without_rocm(outputs: dict[str, str], clone: Path) -> None:
    """Prevents: `qola hipcc`, the first step of docs/guide/cmake.md, needs an installed ROCm."""
    assert outputs
    env = environment("PYTHON") | {
        "QOLA_BAZEL": str(shared_bazel()),
        "QOLA_CACHE_HOME": str(clone.parent / "cache"),
    }
    command = [str(clone / "venv/bin/qola"), "hipcc", "-q"]
    program = output_of(command, env=env).strip()
    (clone.parent / "kernel.cpp").write_text(KERNEL)
    hipcc = [program, "-x", "hip", "--offload-arch=gfx950", "kernel.cpp", "-lamdhip64"]
    output_of(hipcc, cwd=clone.parent, env={"PATH": "/usr/bin:/bin"})
    assert (clone.parent / "a.out").is_file()
