"""rules/hip as a dependency: a repository without a manifest."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e.nested_bazel import QOLA, Bazel, bazel


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
    (needed,) = {
        soname
        for program in (consumer.workspace / "bazel-bin").glob("saxpy_program*")
        if program.is_file()
        for soname in re.findall(rb"libamdhip64\.so\.\d", program.read_bytes())
    }
    assert needed == b"libamdhip64.so.8"


def test_no_aiter(consumer: Bazel) -> None:
    """Prevents: AITER fetched for a program that has nothing to do with it."""
    needed = consumer.run("query", "deps(//:saxpy_program)").stdout
    assert "saxpy.hip" in needed
    assert "aiter//" not in needed
