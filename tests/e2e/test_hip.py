"""rules_hip as a dependency of a repository without a manifest."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.nested_bazel import QOLA, Bazel, bazel, shared_directory


@pytest.fixture(scope="module")
def consumer() -> Iterator[Bazel]:
    """The HIP example."""
    with bazel(QOLA / "rules_hip/examples/hip") as instance:
        yield instance


def test_builds_and_tests(consumer: Bazel) -> None:
    """Prevents: rules_hip works only in qola's repository; a GPU test fails without GPU."""
    result = consumer.run("test", "//...")
    assert "//:saxpy_test" in result.stdout
    assert "//:saxpy_gpu_test" in result.stdout
    assert "SKIPPED" in result.stdout
    assert (consumer.workspace / "bazel-bin/main").is_file()


def test_run_emulated(consumer: Bazel) -> None:
    """Prevents: `bazel run` cannot start a program without a GPU."""
    result = consumer.run("run", "--@rules_hip//hip:run=emulated", "//:saxpy_program")
    assert "saxpy: 1000 values are right" in result.stdout


def test_another_soname_of_hip(consumer: Bazel) -> None:
    """Prevents: a program runs with another version of HIP's runtime than its soname."""
    options = ("--@rules_hip//hip:run=emulated", "--@rules_hip//rocm:hip_soname=libamdhip64.so.8")
    result = consumer.run("run", *options, "//:saxpy_program")
    assert "saxpy: 1000 values are right" in result.stdout
    # The script's runtime has only this soname: a program with another one would not start.
    script = (consumer.workspace / "bazel-bin/saxpy_program").read_text(encoding="utf-8")
    assert re.findall(r"libamdhip64\.so\.\d", script) == ["libamdhip64.so.8"]


def test_another_directory_of_outputs_compiles_nothing(consumer: Bazel) -> None:
    """Prevents: an option or transition that changes no flag compiles HIP sources anew."""
    strip = "--experimental_output_paths=strip"
    consumer.run("build", strip, "//:main")
    # The name of the configuration is part of the paths of outputs.
    runners = consumer.runners(strip, "--platform_suffix=other", "//:main")
    compiles = {runner for mnemonic, runner in runners if mnemonic == "QolaCompile"}
    assert compiles == {"disk cache hit"}


ARM_WORKER = """
platform(
    name = "worker",
    constraint_values = ["@platforms//cpu:aarch64", "@platforms//os:linux"],
    visibility = ["//visibility:public"],
)
"""


def test_the_compiler_runs_only_where_it_can(consumer: Bazel) -> None:
    """Prevents: a machine whose first workers are no x86-64 sends them the compiler."""
    consumer.write("arm/BUILD.bazel", ARM_WORKER)
    module = (consumer.workspace / "MODULE.bazel").read_text(encoding="utf-8")
    platforms = f'{module}\nbazel_dep(name = "platforms", version = "0.0.10")\n'
    with consumer.rewritten("MODULE.bazel", module, platforms):
        worker = "--extra_execution_platforms=//arm:worker"
        compiles = 'mnemonic("QolaCompile", deps(//:main) union deps(//:saxpy_code))'
        actions = consumer.run("aquery", worker, compiles).stdout
    found = set(re.findall(r"Execution platform: (\S+)", actions))
    assert {name.lstrip("@") for name in found} == {"platforms//host:host"}


#: Prints the versions and the directory of its clang, as AMD's hipcc does.
HIPCC = """#!/bin/sh
if [ "$1" = --version ]; then
    echo "HIP version: 7.2.53211"
    {sdk}/bin/hipcc --version | grep "clang version"
    echo "InstalledDir: {prefix}/lib/llvm/bin"
    exit
fi
exec {sdk}/bin/hipcc --rocm-device-lib-path={prefix}/lib/llvm/amdgcn/bitcode "$@"
"""


def make_rocm(pinned: Path) -> Path:
    """Lay out the pinned compiler as TheRock installs ROCm, always at one path.

    Files are hard links, because a Bazel repository must not depend on files of another. The HIP
    runtime is the fake runtime: the real runtime needs libraries that few machines have.
    """
    prefix = shared_directory("rocm")
    shutil.rmtree(prefix, ignore_errors=True)
    sdk = prefix / "sdk"
    shutil.copytree(pinned, sdk, symlinks=True, copy_function=os.link)
    for directory in ("bin", "lib/llvm/bin"):
        (prefix / directory).mkdir(parents=True)
    (sdk / "rocm/amdgcn").rename(prefix / "lib/llvm/amdgcn")
    (prefix / "include").symlink_to(sdk / "rocm/include")
    scripts = {prefix / "bin/hipcc": HIPCC.format(sdk=sdk, prefix=prefix)}
    for program in (sdk / "bin").iterdir():
        options = f"-resource-dir={sdk}/resource " if program.name == "clang" else ""
        script = f'#!/bin/sh\nexec {program} {options}"$@"\n'
        scripts[prefix / "lib/llvm/bin" / program.name] = script
    for path, text in scripts.items():
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    shutil.copy(os.environ["QOLA_TEST_FAKE_HIP"], prefix / "lib/libamdhip64.so")
    return prefix


def test_environment_selects_an_installation(consumer: Bazel) -> None:
    """Prevents: HIP targets ignore QOLA_ROCM, or use a file of the pinned ROCm."""
    prefix = make_rocm(consumer.repository("rocm_sdk") / "sdk")
    rocm = f"--repo_env=QOLA_ROCM={prefix}"
    compiler = consumer.run("aquery", rocm, 'mnemonic("QolaCompile", deps(//:main))').stdout
    assert f"{prefix}/bin/hipcc" in compiler
    for soname in ("libamdhip64.so.7", "libamdhip64.so.8"):
        consumer.run("build", rocm, f"--@rules_hip//rocm:hip_soname={soname}", "//:main")
        program = (consumer.workspace / "bazel-bin/main").read_bytes()
        assert set(re.findall(rb"libamdhip64\.so\.\d", program)) == {soname.encode()}


def test_other_device_libraries_are_another_compiler(consumer: Bazel) -> None:
    """Prevents: machines with other device libraries share cache entries of kernels."""
    prefix = make_rocm(consumer.repository("rocm_sdk") / "sdk")
    library = prefix / "lib/llvm/amdgcn/bitcode/ocml.bc"
    identities = set()
    for content in (library.read_bytes(), library.read_bytes() + bytes(4)):
        # Not a link to the pinned SDK.
        library.unlink()
        library.write_bytes(content)
        consumer.run("build", "--nobuild", f"--repo_env=QOLA_ROCM={prefix}", "//:main")
        record = (consumer.repository("rocm") / "rocm.json").read_text(encoding="utf-8")
        identities.add(json.loads(record)["identity"])
    assert len(identities) == 2


def test_no_aiter(consumer: Bazel) -> None:
    """Prevents: Bazel fetches AITER for a program that does not use it."""
    dependencies = consumer.run("query", "deps(//:saxpy_program)").stdout
    assert "saxpy.hip" in dependencies
    assert "aiter//" not in dependencies
