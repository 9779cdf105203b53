"""bench/run compares equal sets of kernels, and computes ratios from both sides."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from bench import compiles, measure_costs, report
from bench.compiles import TIMED
from bench.measure_costs import Compile
from bench.processes import BenchError
from bench.test_costs import read_spans, share_cores
from bench.workload import ARCH, RECEIPT, WORKLOADS, check_same, plan
from qola.aiter.tree import read_tree
from qola.query.estimate import Costs, RoleCost, load_costs
from qola_base.files import sha256_of

GENERATOR = "aiter_meta/3rdparty/composable_kernel/example/ck_tile/01_fmha/generate.py"


def generate_digests(tree: Path, directory: Path, patterns: dict[str, str]) -> dict[str, str]:
    """Return the sha256 of each file that CK's generate.py writes."""
    for direction, pattern in patterns.items():
        command = [sys.executable, "-B", str(tree / GENERATOR), "--targets", ARCH, "-d", direction]
        command += ["--receipt", str(RECEIPT), "--filter", pattern, "--output_dir", str(directory)]
        # The generator does not find its modules if PYTHONSAFEPATH is set, as for tests.
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        subprocess.run(command, check=True, env=environ)
    return {path.name: sha256_of(path) for path in directory.glob("*.cpp")}


@pytest.mark.parametrize(
    "name", sorted(n for n, workload in WORKLOADS.items() if workload.patterns)
)
@pytest.mark.parametrize("more", [False, True])
def test_patterns_select_the_manifests_kernels(
    name: str, more: bool, aiter_tree: Path, tmp_path: Path
) -> None:
    """Prevents: a benchmark that compares two different sets of kernels."""
    workload = WORKLOADS[name]
    planned = plan(workload, read_tree(aiter_tree), tmp_path / "plan", more=more)
    patterns = dict(workload.more if more else workload.patterns)
    ck_digests = generate_digests(aiter_tree, tmp_path, patterns)
    check_same(planned.digests(), ck_digests, "generate.py")
    assert planned.counts().keys() == patterns.keys()


def test_each_source_of_a_module_is_compiled(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: a benchmark that omits sources of a module, or includes rows of another module."""
    kinds = report.kinds({name: name for name in WORKLOADS["modules"].modules})
    only = ["cold build", "shipped bytes module_moe_ck2stages"]
    selected = report.choose(only, kinds, ["aiter"])
    workload = WORKLOADS["modules"].only({kind.part for kind, _ in selected})
    assert workload.modules == ("module_moe_ck2stages",)
    planned = plan(workload, read_tree(aiter_tree), tmp_path / "plan", more=False)
    written = {path.stem: path for path in (tmp_path / "plan").rglob("*.cpp")}
    batches = planned.batches()["module_moe_ck2stages"]
    members = {name for names in batches.values() for name in names}
    assert members == {name for name, path in written.items() if path.parent.name != "batches"}
    assert len(batches) < len(members) == planned.counts()["module_moe_ck2stages"] > 10


def test_unequal_lists_are_an_error() -> None:
    """Prevents: a comparison with kernels that only one side compiles, or of different versions."""
    plan_digests = {"fmha_a.cpp": "1", "fmha_b.cpp": "2", "fmha_c.cpp": "3"}
    ck_digests = {"fmha_b.cpp": "2", "fmha_c.cpp": "4", "fmha_d.cpp": "5"}
    with pytest.raises(BenchError, match=r"3 files .*: fmha_a\.cpp, fmha_c\.cpp, fmha_d\.cpp"):
        check_same(plan_digests, ck_digests, "generate.py")
    check_same(plan_digests, dict(plan_digests), "generate.py")


def test_rounds_compile_each_kernel() -> None:
    """Prevents: a kernel in no round, or a mean that weights a batch by its sample size."""
    batches = {"large": [f"k{index}" for index in range(12)], "small": ["a", "b"]}
    for names in batches.values():
        sampled = [name for index in range(5) for name in compiles.sample(names, index, 5)]
        assert set(sampled) == set(names)
    seconds = {"k0": 10.0, "k5": 20.0, "b": 1.0}
    assert compiles.theirs_per_kernel(batches, seconds) == (12 * 15 + 2 * 1) / 14
    assert compiles.ours_per_kernel(batches, {"large": 27.0, "small": 1.0}) == 2


def test_compiles_are_timed_with_their_children(tmp_path: Path) -> None:
    """Prevents: CPU seconds without those of child processes, or a lost exit code."""
    work = "import sys, time\nwhile time.process_time() < 0.3: pass\nsys.exit(3)"
    command = [str(TIMED), "sh", "-c", f"{sys.executable} -c '{work}'; exit $?", "src/a.cpp"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 3
    timed = compiles.read_compiles(tmp_path / "timed.log", ["a"])["a"]
    assert 0.3 <= timed.cpu < 3
    assert timed.wall >= 0.3
    with pytest.raises(BenchError, match="no compile of 1 sources, such as b"):
        compiles.read_compiles(tmp_path / "timed.log", ["a", "b"])


def test_times_of_another_locale(tmp_path: Path) -> None:
    """Prevents: a crash after an hour on a machine whose locale has a decimal comma."""
    log = tmp_path / "timed.log"
    log.write_text("1,5 0,25 2,000 src/a.cpp\n0.5 0.25 1.000 src/with blank/b.cpp\n")
    found = compiles.read_compiles(log, ["a", "b"])
    assert found == {"a": compiles.Compile(1.75, 2.0), "b": compiles.Compile(0.75, 1.0)}


def test_ratios_divide_theirs_by_ours() -> None:
    """Prevents: an inverted ratio, a ratio without data of one side, or a hidden slowdown."""
    measured = {
        "ours": {
            "kernel_fwd_cpu_seconds": [10.0, 20.0, 10.0],
            "noop_seconds": [0.5],
            "library_fwd_bytes": [1e6],
        },
        # Ratios of the rounds are 2.1, 2.0 and 4.0. Ours has no value for the fourth round.
        "aiter": {"kernel_fwd_cpu_seconds": [21.0, 40.0, 40.0, 1.0], "noop_seconds": [0.1]},
    }
    result = report.figures(report.rows(report.choose([]), measured), measured) | {
        "command": "bench/run",
        "workload": {"manifest": "m.toml", "archs": ["gfx950"], "kernels": {"fwd": 20}},
        "machine": {"cores": 2, "memory_bytes": 24 * 2**30},
        "versions": {"qola": "0.1.0"},
        "jobs": 2,
        "notes": [],
    }
    assert result["ratios"] == {
        "kernel forward vs AITER with ninja": 2.1,
        "no-op vs AITER with ninja": 0.2,
    }
    assert [row["verdict"] for row in result["rows"]] == ["ours is faster", "ours is slower"]
    assert [(row["least"], row["most"]) for row in result["rows"]] == [(2.0, 4.0), (0.2, 0.2)]
    assert "2.00 to 4.00" in report.markdown(result)
    with pytest.raises(BenchError, match="one-variant change vs CK with CMake"):
        report.choose(["kernels"])


def test_fitted_costs() -> None:
    """Prevents: bytes of dropout attributed to every kernel, or to a common property."""

    def compiled(kernels: int, dropout: int) -> tuple[str, Compile]:
        features = {"dropout": dropout, "qr": kernels}
        sizes = 10 * kernels + 3 * dropout, 8 * kernels, dropout
        seconds = 2 * (5 + 3 * kernels)
        return "kernels", Compile(("fwd", "fwd", 64), 2, kernels, features, seconds, *sizes)

    known = RoleCost("fwd", "fwd", 128, *[(9.0, 9.0, 9.0, 9.0)] * 3)
    helper = RoleCost("bwd", "dot_do_o", 0, *[(1.0, 2.0, 3.0, 4.0)] * 3)
    costs = Costs("CPU", "clang", "triton", 7.0, (helper, known), (), (), ())
    found = measure_costs.measure(costs, [compiled(2, 0), compiled(8, 4), compiled(5, 1)])
    kept, fitted = found.kernels
    assert kept == helper
    assert (fitted.role, fitted.hdim) == ("fwd", 64)
    assert fitted.cpu_seconds == pytest.approx((0, 5, 0, 3))
    assert fitted.linked_bytes == pytest.approx((0, 0, 10, 4))
    (feature,) = found.features
    assert (feature.direction, feature.role) == ("fwd", "dropout")
    assert feature.linked_bytes == pytest.approx((0, 0, 3, 0))
    assert feature.object_bytes == pytest.approx((0, 0, 4, 0))
    # One compile cannot tell its kernels and their property apart.
    _, single = measure_costs.measure(costs, [compiled(8, 4)]).kernels
    assert single.linked_bytes == pytest.approx((0, 0, 92 / 8, 4))


def test_measured_costs_are_read(tmp_path: Path) -> None:
    """Prevents: a file of measured costs that `qola plan --estimate` refuses."""
    file = tmp_path / "costs.json"
    file.write_text(measure_costs.to_text(load_costs()))
    assert load_costs(file) == load_costs()


def test_cpu_seconds_of_a_profile() -> None:
    """Prevents: time in which a test waits for a core, counted; or more seconds than cores have."""

    def event(cat: str, name: str, start: int, end: int, thread: int, mnemonic: str = "") -> Any:
        times = {"ts": start * 1_000_000, "dur": (end - start) * 1_000_000, "tid": thread}
        return {"cat": cat, "name": name, **times, "args": {"mnemonic": mnemonic}}

    action, lock = "action processing", "action resource lock"
    spans = read_spans(
        [
            event(action, "Testing //tests/cli:cli", 0, 9, 1, "TestRunner"),
            event(lock, "Acquiring", 0, 4, 1),
            # Its log is written by a process of its own.
            event(lock, "Acquiring", 6, 8, 1),
            event(action, "Compiling fwd (2 kernel instances)", 0, 8, 2, "QolaCompile"),
            event("Fetching repository", "@@_main~qola~qola_ci", 4, 6, 3),
        ]
    )
    costs = share_cores(list(spans), 2)
    seconds: dict[str, float] = defaultdict(float)
    for span, cost in costs.items():
        seconds[span.kind] += cost
    # From 4 to 6, three share two cores.
    third = 2 * 2 / 3
    expected = {"tests of Python": third + 1, "kernels": 6 + third, "plans": third}
    assert seconds == pytest.approx(expected)
