"""bench/run compares the same kernels: manifest and patterns agree, or it is an error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import aiter_ninja
from bench.errors import BenchError
from bench.processes import Peaks, Process, below, is_compiler, parse_status
from bench.workload import ARCH, RECEIPT, WORKLOADS, Planned, check_same, plan
from qola.aiter.tree import read_tree
from qola.files import sha256_of

GENERATOR = "aiter_meta/3rdparty/composable_kernel/example/ck_tile/01_fmha/generate.py"


def generated(tree: Path, directory: Path, patterns: dict[str, str]) -> dict[str, str]:
    """sha256 by file name of what CK's generate.py makes."""
    for direction, pattern in patterns.items():
        command = [sys.executable, "-B", str(tree / GENERATOR), "--targets", ARCH, "-d", direction]
        command += ["--receipt", str(RECEIPT), "--filter", pattern, "--output_dir", str(directory)]
        # A test's PYTHONSAFEPATH would hide the generator's modules from it.
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        subprocess.run(command, check=True, env=environ)
    return {path.name: sha256_of(path) for path in directory.glob("*.cpp")}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
@pytest.mark.parametrize("more", [False, True])
def test_patterns_select_the_manifests_kernels(
    name: str, more: bool, aiter_tree: Path, tmp_path: Path
) -> None:
    """Prevents: a benchmark of two different sets of kernels."""
    workload = WORKLOADS[name]
    planned = plan(workload, read_tree(aiter_tree), tmp_path / "plan", more=more)
    patterns = dict(workload.more if more else workload.patterns)
    theirs = generated(aiter_tree, tmp_path, patterns)
    check_same(planned.digests(), theirs, "generate.py")
    assert planned.counts().keys() == patterns.keys()


def test_default_is_large_enough(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: a set so small that what is made once for many kernels cannot pay."""
    tree, workload = read_tree(aiter_tree), WORKLOADS["default"]
    base = plan(workload, tree, tmp_path / "base", more=False)
    more = plan(workload, tree, tmp_path / "more", more=True)
    assert (base.counts(), more.counts()) == ({"fwd": 21, "bwd": 13}, {"fwd": 24, "bwd": 13})
    assert set(base.kernels["fwd"]) < set(more.kernels["fwd"])
    # bench/run looks for an action of each of these.
    batches = {batch.name for batch in base.plan.batches}
    assert base.compiled().keys() == base.kernels.keys()
    assert set().union(*base.compiled().values()) == batches


def test_unequal_lists_are_an_error() -> None:
    """Prevents: kernels compared that only one side compiles, or in another version."""
    ours = {"fmha_a.cpp": "1", "fmha_b.cpp": "2", "fmha_c.cpp": "3"}
    theirs = {"fmha_b.cpp": "2", "fmha_c.cpp": "4", "fmha_d.cpp": "5"}
    with pytest.raises(BenchError) as error:
        check_same(ours, theirs, "generate.py")
    assert [finding.found for finding in error.value.findings] == [
        "1 files which the plan does not have, such as fmha_d.cpp",
        "1 files not there, though the plan has it, such as fmha_a.cpp",
        "1 files other bytes than in the plan, such as fmha_c.cpp",
    ]
    check_same(ours, dict(ours), "generate.py")


def test_build_file_compiles_each_source_by_one_hipcc() -> None:
    """Prevents: theirs built otherwise than AITER builds, which compares with nobody."""
    sources = (Path("/c/c.cpp"), Path("/b b/a.cpp"))
    text = aiter_ninja.build_file(
        [aiter_ninja.Module("libmha_fwd", sources, ("-DFAST", "-DSPLIT"))],
        flags=["-O3"],
        includes=[Path("/ck/include")],
        link_flags=["-shared", "-lamdhip64"],
    )
    assert "flags = -I/ck/include -O3\n" in text
    assert "command = hipcc -MMD -MF $out.d $flags $module_flags -c $in -o $out\n" in text
    assert re.findall(r"^build (.*)$", text, re.MULTILINE) == [
        "libmha_fwd/a.cuda.o: hip_compile /b$ b/a.cpp",
        "libmha_fwd/c.cuda.o: hip_compile /c/c.cpp",
        "libmha_fwd.so: link libmha_fwd/a.cuda.o libmha_fwd/c.cuda.o",
    ]
    assert text.count("module_flags = -DFAST -DSPLIT\n") == 2
    assert text.endswith("default libmha_fwd.so\n")


def test_memory_is_that_of_all_a_program_starts() -> None:
    """Prevents: compilers that a server or a wrapper starts missing from the peak."""
    server = Process(10, 1, False, 300, 310)
    wrapper = Process(20, 10, False, 5, 5)
    compiler = Process(21, 20, True, 400, 500)
    other = Process(30, 1, True, 9_000, 9_000)
    found = below([compiler, other, server, wrapper], [10, 99])
    assert {process.pid for process in found} == {10, 20, 21}
    peaks = Peaks()
    peaks.add(found)
    peaks.add([server])
    assert (peaks.build, peaks.compiler) == (705, 500)


def test_compiler_is_known_behind_its_loader() -> None:
    """Prevents: the memory of the pinned clang, which its own loader runs, reported as none."""
    loader = ["sdk/lib/ld-linux-x86-64.so.2", "--inhibit-cache", "--library-path", "l"]
    assert is_compiler([*loader, "--argv0", "sdk/bin/clang++", "sdk/libexec/clang", "-cc1"])
    assert is_compiler(["/usr/lib/llvm-22/bin/clang-22", "-cc1"])
    assert not is_compiler(["hipcc", "-I", "/x/clang/include"])
    status = "Name:\tclang\nPid:\t7\nPPid:\t3\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n"
    assert parse_status(status, ["clang"]) == Process(7, 3, True, 1024 * 1024, 2048 * 1024)
    assert parse_status("Pid:\t7\nPPid:\t3\n", [""]) is None


def test_sources_beside_kernels_are_told_apart(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: an entry source taken for generate.py's, or a dispatch compiled twice."""
    planned: Planned = plan(WORKLOADS["quick"], read_tree(aiter_tree), tmp_path / "p", more=False)
    files = {Path(s.file).name: s.generated for s in planned.other_sources()}
    assert files == {
        "fmha_batch_prefill_api.cpp": False,
        "fmha_fwd_api.cpp": True,
        "fmha_fwd_splitkv_api.cpp": False,
        "mha_fwd.cpp": False,
    }
