"""rules/hip as a dependency: a repository without a manifest."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.nested_bazel import QOLA, Bazel, bazel, shared_place


@pytest.fixture(scope="module")
def consumer() -> Iterator[Bazel]:
    """The example."""
    with bazel(QOLA / "examples/hip") as instance:
        yield instance


def test_builds_and_tests(consumer: Bazel) -> None:
    """Prevents: rules that only work in qola's repository, or a GPU's test that fails elsewhere."""
    result = consumer.run("test", "//...")
    assert "//:saxpy_test" in result.stdout
    assert "//:saxpy_gpu_test" in result.stdout
    assert "SKIPPED" in result.stdout
    assert (consumer.workspace / "bazel-bin/main").is_file()


def test_run_emulated(consumer: Bazel) -> None:
    """Prevents: a program that `bazel run` cannot start without a GPU."""
    result = consumer.run("run", "--@qola//rules/hip:run=emulated", "//:saxpy_program")
    assert "saxpy: 1000 values are right" in result.stdout


def test_another_soname_of_hip(consumer: Bazel) -> None:
    """Prevents: a program that needs one version of HIP's runtime, run with another one."""
    options = ("--@qola//rules/hip:run=emulated", "--@qola//:hip_soname=libamdhip64.so.8")
    result = consumer.run("run", *options, "//:saxpy_program")
    assert "saxpy: 1000 values are right" in result.stdout
    # The script's runtime: a program that needed another soname would not find it there.
    script = (consumer.workspace / "bazel-bin/saxpy_program").read_text(encoding="utf-8")
    assert re.findall(r"libamdhip64\.so\.\d", script) == ["libamdhip64.so.8"]


#: Prints versions and place of its clang as AMD's hipcc does.
HIPCC = """#!/bin/sh
if [ "$1" = --version ]; then
    echo "HIP version: 7.2.53211"
    {sdk}/bin/hipcc --version | grep "clang version"
    echo "InstalledDir: {prefix}/llvm/bin"
    exit
fi
exec {sdk}/bin/hipcc "$@"
"""


def made_rocm(pinned: Path) -> Path:
    """Lay the pinned compiler out as a ROCm installation, always at the same path.

    Its files are links: Bazel's own repositories must not depend on each other's files. Its HIP
    runtime is the fake one, because the real one needs libraries that few machines have.
    """
    prefix = shared_place("rocm")
    shutil.rmtree(prefix, ignore_errors=True)
    sdk = prefix / "sdk"
    shutil.copytree(pinned, sdk, symlinks=True, copy_function=os.link)
    for directory in ("bin", "lib", "llvm/bin"):
        (prefix / directory).mkdir(parents=True)
    for directory in ("amdgcn", "include"):
        (prefix / directory).symlink_to(sdk / "rocm" / directory)
    scripts = {prefix / "bin/hipcc": HIPCC.format(sdk=sdk, prefix=prefix)}
    for program in (sdk / "bin").iterdir():
        options = f"-resource-dir={sdk}/resource " if program.name == "clang" else ""
        script = f'#!/bin/sh\nexec {program} {options}"$@"\n'
        scripts[prefix / "llvm/bin" / program.name] = script
    for path, text in scripts.items():
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    shutil.copy(os.environ["QOLA_TEST_FAKE_HIP"], prefix / "lib/libamdhip64.so")
    return prefix


def test_a_rocm_of_the_machine(consumer: Bazel) -> None:
    """Prevents: HIP targets that ignore QOLA_ROCM, or that take a file of the pinned ROCm."""
    prefix = made_rocm(consumer.repository("qola_rocm_sdk") / "sdk")
    rocm = f"--repo_env=QOLA_ROCM={prefix}"
    compiler = consumer.run("aquery", rocm, 'mnemonic("QolaCompile", deps(//:main))').stdout
    assert f"{prefix}/bin/hipcc" in compiler
    for soname in ("libamdhip64.so.7", "libamdhip64.so.8"):
        consumer.run("build", rocm, f"--@qola//:hip_soname={soname}", "//:main")
        program = (consumer.workspace / "bazel-bin/main").read_bytes()
        assert set(re.findall(rb"libamdhip64\.so\.\d", program)) == {soname.encode()}


def test_no_aiter(consumer: Bazel) -> None:
    """Prevents: AITER fetched for a program that has nothing to do with it."""
    needed = consumer.run("query", "deps(//:saxpy_program)").stdout
    assert "saxpy.hip" in needed
    assert "aiter//" not in needed
