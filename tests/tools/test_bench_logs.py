"""bench/run reads what ninja and Bazel say of their compiles, and adds up the right ones."""

from __future__ import annotations

from typing import Any

import pytest

from bench import kernel_actions, ninja_log
from bench.errors import BenchError
from tests.tools.entries import entry, spawns

NINJA_LOG = """\
# ninja log v7
0\t20500\t1763730000000000000\tlibmha_fwd/fmha_fwd_a.cuda.o\t1f2e
10\t9010\t1763730000000000000\tCMakeFiles/x.dir/fmha_bwd_b.cpp.o\t3d4c
20510\t20900\t1763730000000000000\tlibmha_fwd.so\t5b6a
30000\t31000\t1763730000000000000\tlibmha_fwd/fmha_fwd_a.cuda.o\t7980
"""


def action(label: str, total: str = "20.5s", queue: str = "0.5s", **changed: Any) -> dict[str, Any]:
    """An action in the execution log."""
    times = {"totalTime": total, "queueTime": queue, "executionWallTime": "19.9s"}
    return entry(label, [], [], metrics=times, **changed)


def kernel(name: str, total: str = "20.5s", queue: str = "0.5s", **changed: Any) -> dict[str, Any]:
    """The compile of a kernel instance or batch."""
    output = f"bazel-out/cfg/bin/external/qola_compile~/{name}.pic.o"
    of = {"mnemonic": "QolaCompile", "listedOutputs": [output]}
    return action("@@qola_compile~//:kernels", total, queue, **of | changed)


def test_ninja_log_has_the_last_time_of_each_output() -> None:
    """Prevents: an output that was made twice counted with its first, or with both times."""
    assert ninja_log.parse(NINJA_LOG) == {
        "libmha_fwd/fmha_fwd_a.cuda.o": 1.0,
        "CMakeFiles/x.dir/fmha_bwd_b.cpp.o": 9.0,
        "libmha_fwd.so": 0.39,
    }


def test_ninja_sums_objects_of_kernels_alone() -> None:
    """Prevents: a link or a dispatch counted as a kernel's compile."""
    sums = ninja_log.kernel_seconds(
        {**ninja_log.parse(NINJA_LOG), "libmha_fwd/fmha_fwd_api.cuda.o": 9.0},
        {"fwd": ["fmha_fwd_a"], "bwd": ["fmha_bwd_b"]},
    )
    assert sums == {"fwd": 1.0, "bwd": 9.0}


def test_kernel_that_ninja_did_not_compile_is_an_error() -> None:
    """Prevents: a sum over fewer kernels than it is divided by."""
    with pytest.raises(BenchError, match="no object of 1 kernels, such as fmha_fwd_z"):
        ninja_log.kernel_seconds(ninja_log.parse(NINJA_LOG), {"fwd": ["fmha_fwd_a", "fmha_fwd_z"]})


@pytest.mark.parametrize("text", ["", "0\t1\t2\ta.o\tff\n", "# ninja log v7\n0\t1\ta.o\n"])
def test_other_files_are_no_ninja_log(text: str) -> None:
    """Prevents: a log of another form read as if nothing was built."""
    with pytest.raises(BenchError):
        ninja_log.parse(text)


def test_execution_log_sums_the_compiles_of_kernels() -> None:
    """Prevents: a link or a dispatch counted as a kernel's compile, or waiting as work."""
    log = spawns(
        kernel("a", total="10.5s"),
        kernel("a2", total="1.3s", queue="0.3s"),
        kernel("b", total="30s", queue="0s"),
        kernel("of_another_library", total="30s", queue="0s"),
        action("@@qola~~qola~qola_bench//:libmha_fwd.mha_fwd", total="7s"),
        action("//:libmha_fwd", mnemonic="CppLink", total="1s"),
    )
    sums = kernel_actions.kernel_seconds(log, {"fwd": ["a", "a2"], "bwd": ["b"]})
    assert sums == pytest.approx({"fwd": 11.0, "bwd": 30.0})


@pytest.mark.parametrize(
    ("entry", "kernels", "message"),
    [
        # A build that compiled less than the list, shown as faster.
        (kernel("a"), ["a", "z"], "no action for 1 kernels, such as z"),
        # A kernel that a cache had, counted as compiled in no time.
        (kernel("a", runner="disk cache hit"), ["a"], "disk cache hit"),
    ],
)
def test_logs_that_are_not_of_one_cold_build(
    entry: dict[str, Any], kernels: list[str], message: str
) -> None:
    """Prevents: seconds per kernel over other compiles than those of the kernels in the list."""
    with pytest.raises(BenchError, match=message):
        kernel_actions.kernel_seconds(spawns(entry), {"fwd": kernels})


def test_what_ran_is_told_from_what_was_cached() -> None:
    """Prevents: a warm rebuild said to compile nothing when it did."""
    log = spawns(kernel("a"), kernel("b", runner="remote cache hit"))
    assert kernel_actions.ran(log) == {"QolaCompile": 1}
