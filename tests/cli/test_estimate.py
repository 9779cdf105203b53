"""The estimate: exact sums for invented costs, a measured build for the shipped costs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.tree import read_tree
from qola.cli.plan import cost_table, to_lines
from qola.common.layout import TRITON
from qola.common.processes import available_cores
from qola.plan.model import GeneratedSource, KernelInstance, Plan, PlannedBatch
from qola.query.estimate import (
    ALL,
    EXPORTED,
    FEATURES,
    LIBRARY,
    SOURCES,
    UNPLANNED,
    Costs,
    estimate,
    load_costs,
)
from qola.triton import own
from tests.support import plans

# Seconds of each library in addition to kernels and planned sources: exported entry points, link.
FURTHER = 3 + 1
START = 7
#: Bytes of a library without kernel instances.
FIXED = 1000


def costs_of(
    role: str,
    seconds: Sequence[float],
    linked: Sequence[float],
    symbols: float = 0,
    direction: str = "fwd",
    hdim: int = 0,
) -> dict[str, Any]:
    """Return costs of a compile, of its archs, its kernels and both; symbols are not linked."""
    objects = [symbols, *linked[1:]]
    numbers = {"cpu_seconds": seconds, "object_bytes": objects, "linked_bytes": linked}
    floats = {name: list(map(float, values)) for name, values in numbers.items()}
    return {"direction": direction, "role": role, "hdim": hdim, **floats}


COSTS: dict[str, Any] = {
    **{"cpu": "CPU", "compiler": "clang 1, gfx950", "measured_triton": "triton 3.9.0"},
    "start_seconds": float(START),
    "kernels": [
        # 4 s of host code, 5 s of device code for a further kernel.
        *(
            costs_of("fwd", [4, seconds - 9, 0, 5], [0, 0, 200, 600], 50, hdim=hdim)
            for hdim, seconds in ((256, 40), (64, 20), (128, 24))
        ),
        costs_of("helper", [4, 5, 0, 0], [0, 0, 200, 600]),
    ],
    "features": [
        costs_of("dropout", [0] * 4, [0, 0, 40, 30]),
        costs_of("qr", [0] * 4, [0, 0, 0, 500]),
    ],
    "sources": [
        costs_of("dispatch", [5, 0, 0.1, 0], [50, 0, 10, 0], 57),
        costs_of("entry", [5, 4, 0, 0], [300, 0, 0, 0], 300),
        costs_of(EXPORTED, [3, 0, 0, 0], [0] * 4),
        costs_of(LIBRARY, [1, 0, 0, 0], [FIXED, 0, 0, 0], direction=ALL),
    ],
    "triton": [
        costs_of(function, [seconds, 0, 0, 0], [100, 0, 0, 0], 100, TRITON, hdim)
        for function, hdim, seconds in (
            *(("attention_forward", 32, 2), ("attention_forward", 96, 4)),
            ("attention_backward_dq", 64, 9),
        )
    ],
}


def kernel(
    hdim: int,
    archs: tuple[str, ...] = ("gfx950",),
    direction: str = "fwd",
    role: str = "fwd",
    **fields: Any,
) -> KernelInstance:
    fields = {"hdim_q": hdim, "hdim_v": hdim, **fields}
    return plans.kernel(f"k{hdim}", direction=direction, role=role, archs=archs, fields=fields)


def make_plan(*kernels: KernelInstance, sources: Sequence[GeneratedSource] = ()) -> Plan:
    module = plans.module(kernels=tuple(range(len(kernels))), sources=tuple(sources))
    renamed = tuple(replace(kernel, name=f"k{n}") for n, kernel in enumerate(kernels))
    return plans.plan(kernels=renamed, modules=(module,))


@pytest.fixture
def costs(tmp_path: Path) -> Costs:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(COSTS))
    return load_costs(path)


@pytest.mark.parametrize(
    ("hdim", "seconds"), [(32, 20), (64, 20), (100, 24), (128, 24), (200, 40), (256, 40), (512, 40)]
)
def test_kernels_cost_by_head_dimension_and_archs(costs: Costs, hdim: int, seconds: float) -> None:
    """Prevents: unmeasured head dimensions or a second arch cost nothing."""
    (row, _) = estimate(make_plan(kernel(hdim)), costs, 1).rows
    assert row.cost.cpu_seconds == pytest.approx(seconds)
    both = estimate(make_plan(kernel(hdim, ("gfx942", "gfx950"))), costs, 1)
    assert both.rows[0].cost.cpu_seconds == pytest.approx(4 + 2 * (seconds - 4))
    assert both.object_bytes == pytest.approx(50 + 200 + 2 * 600)


def test_kernels_of_a_batch_cost_less(costs: Costs) -> None:
    """Prevents: the estimate counts a compile per kernel, although batches are built."""
    plan = make_plan(*[kernel(128)] * 3, kernel(64))
    batch = PlannedBatch("b", (0, 1, 2), "b.cpp", "")
    (unit,) = plan.units
    result = estimate(replace(plan, units=(replace(unit, batches=(batch,)),)), costs, 1)
    # The batch costs 24 s plus 5 s per further kernel; the separate kernel costs 20 s.
    assert result.cpu_seconds == pytest.approx(24 + 2 * 5 + 20 + FURTHER)
    rows = [(row.role, row.kernels, row.compiles) for row in result.rows]
    assert rows == [("fwd", 4, 2), (SOURCES, 0, 2)]
    assert result.longest_seconds == pytest.approx(34)


def test_kernels_in_triton_are_counted(costs: Costs) -> None:
    """Prevents: the estimate omits Triton kernels, or a user's Triton kernels cost nothing."""
    shipped = plans.triton_kernel("attention_forward", "gfx942", "gfx950")
    custom = plans.triton_kernel("mine", "gfx942", own=False)
    result = estimate(plans.plan(triton=(shipped, custom)), costs, 1)
    rows = [(row.module, row.direction, row.compiles, row.cost.cpu_seconds) for row in result.rows]
    assert rows == [("triton", "attention_forward", 2, 8.0), ("triton", "mine", 1, 9.0)]
    assert [row.measured for row in result.rows] == [True, False]
    assert result.library_bytes() == {"triton": 300}


def test_features_and_archs_change_sizes(costs: Costs) -> None:
    """Prevents: dropout adds no size, or host code counts for each arch."""

    def library(*kernels: KernelInstance) -> float:
        result = estimate(make_plan(*kernels), costs, 1).library_bytes()["libmha_fwd"]
        return result - FIXED

    plain = 200 + 600
    assert library(kernel(64)) == pytest.approx(plain)
    assert library(kernel(64, dropout=True)) == pytest.approx(plain + 40 + 30)
    assert library(kernel(64, dropout=True, pipeline="qr")) == pytest.approx(plain + 70 + 500)
    other = kernel(64, ("gfx942",), arch="gfx9")
    assert library(kernel(64), other) == pytest.approx(2 * plain - 0.75 * 200)
    assert library(kernel(64), kernel(96, ("gfx942",))) == pytest.approx(2 * plain)


def test_cores_divide_but_not_the_longest_compile(costs: Costs) -> None:
    """Prevents: with many cores, the estimate is shorter than the longest compile."""
    plan = make_plan(*[kernel(128)] * 10)
    assert estimate(plan, costs, 1).wall_seconds == pytest.approx(START + 240 + FURTHER)
    assert estimate(plan, costs, 4).wall_seconds == pytest.approx(START + 60 + FURTHER / 4)
    many = estimate(plan, costs, 64)
    assert many.longest_seconds == pytest.approx(24)
    assert many.wall_seconds == pytest.approx(START + 24)
    assert "the longest compile decides" in "\n".join(to_lines(many, {"libmha_fwd": "x.so"}))


def test_a_dispatch_costs_by_its_number_of_kernels(costs: Costs) -> None:
    """Prevents: the estimate omits minutes to compile a large dispatch."""
    dispatch = GeneratedSource("api", "api.cpp", "", "fwd", "dispatch")
    entry = GeneratedSource("mha_fwd", "mha_fwd.cpp", "", "fwd", "entry")
    other = GeneratedSource("api2", "api2.cpp", "", "fwd_splitkv", "dispatch")
    plan = make_plan(*[kernel(64)] * 60, sources=[dispatch, entry, other])
    result = estimate(plan, costs, 1)
    row = result.rows[-1]
    assert row.compiles == 5
    # Dispatch of 60 kernels: 6 + 50 * 0.1, without kernels: 6 - 10 * 0.1. AITER's entry: 9.
    assert row.cost.cpu_seconds == pytest.approx(11 + 5 + 9 + FURTHER)
    # Each dispatch has 50 bytes, plus 10 per kernel; the entry has 300.
    assert row.cost.linked_bytes == pytest.approx(650 + 300 + 50 + FIXED)
    assert result.library_bytes() == {"libmha_fwd": pytest.approx(60 * 800 + 1000 + FIXED)}


def test_unmeasured_roles_are_marked_as_borrowed(costs: Costs) -> None:
    """Prevents: unmeasured roles cost nothing, or are shown as measured."""
    plan = make_plan(kernel(128), kernel(128, role="new"), kernel(64, direction="other", role="x"))
    result = estimate(plan, costs, 1)
    measured = [(row.role, row.measured) for row in result.rows]
    assert measured == [("fwd", True), ("new", False), ("x", False), (SOURCES, True)]
    assert result.cpu_seconds == pytest.approx(24 + 24 + 20 + FURTHER)
    helper = estimate(make_plan(kernel(128, role="asm_helper")), costs, 1)
    assert helper.rows[0].cost.cpu_seconds == pytest.approx(9)
    assert not helper.rows[0].measured
    assert "new (borrowed)" in cost_table(result)
    assert "(borrowed): not measured" in "\n".join(to_lines(result, {"libmha_fwd": "x.so"}))


def test_the_text_of_an_estimate(costs: Costs) -> None:
    """Prevents: a user mistakes the estimate for a measurement of this machine."""
    result = estimate(make_plan(*[kernel(128)] * 300), costs, 2)
    assert to_lines(result, {"libmha_fwd": "x.so"}) == [
        "about 60 min on 2 cores, from an empty cache; x.so 241 kB",
        "7 s of it to unpack the compiler, plan and start Bazel; downloads take longer",
        "an estimate, from costs measured on CPU",
    ]
    assert cost_table(result).splitlines() == [
        "Estimated cost",
        "module      direction  role             kernels  compiles  each  CPU time  objects",
        "libmha_fwd  fwd        fwd                  300       300  24 s       2 h   255 kB",
        "libmha_fwd  all        dispatch, entry        0         2   2 s       4 s      0 B",
        "total                                       300       302             2 h   255 kB",
    ]


def test_the_json_has_whole_numbers(costs: Costs) -> None:
    """Prevents: the JSON has digits beyond the precision of the estimate."""
    data: dict[str, Any] = estimate(make_plan(kernel(128)), costs, 2).to_dict()
    assert json.loads(json.dumps(data)) == data
    seconds = {name.removesuffix("_seconds"): n for name, n in data.items() if "seconds" in name}
    assert seconds == {"cpu": 24 + FURTHER, "wall": START + 24, "longest": 24, "start": START}
    assert data["library_bytes"] == {"libmha_fwd": 800 + FIXED}
    assert data["rows"][:1] == [
        {
            "module": "libmha_fwd",
            "direction": "fwd",
            "role": "fwd",
            "kernels": 1,
            "compiles": 1,
            "cpu_seconds": 24,
            "object_bytes": 850,
            "linked_bytes": 800,
            "measured": True,
        }
    ]


def test_the_shipped_costs_cover_every_role() -> None:
    """Prevents: a release has unmeasured roles, or costs of a broken compiler."""
    costs = load_costs()
    roles = {
        *(("fwd", "fwd"), ("fwd_splitkv", "splitkv"), ("fwd_splitkv", "splitkv_combine")),
        *(("batch_prefill", "batch_prefill"), ("bwd", "dq_dk_dv")),
        *(("bwd", "dot_do_o"), ("bwd", "convert_dq")),
        *(("fwd_appendkv", "appendkv"), ("pagedkv_prefill", "pagedkv")),
    }
    assert {(row.direction, row.role) for row in costs.kernels} == roles
    assert {row.role for row in costs.triton} == set(own.FILES)
    for row in costs.kernels:
        host, cost = row.at(0, 1), row.at(1, 1)
        assert 1 < host.cpu_seconds < cost.cpu_seconds < 120
        assert 2_500 < host.linked_bytes < cost.linked_bytes < cost.object_bytes < 60_000
    assert {row.role for row in costs.features} == set(FEATURES)
    found = {(row.direction, row.role) for row in costs.sources}
    assert found >= {(d, role) for d in ("fwd", "bwd") for role in ("dispatch", "entry", EXPORTED)}
    others = {"dispatch", "entry", EXPORTED}
    assert {role for _, role in found} - others == {"asm", UNPLANNED, LIBRARY}


def test_a_measured_build(repo_root: Path, aiter_tree: Path) -> None:
    """Prevents: the estimate omits a part of a build, or has costs of another compiler.

    `bench/run --workload families` measured the build; its table is in performance.md.
    """
    page = (repo_root / "docs/internals/performance.md").read_text("utf-8")

    def measured(row: str) -> float:
        (seconds,) = re.findall(rf"^\| {row} vs AITER with ninja \| ([\d.]+) s \|", page, re.M)
        return float(seconds)

    (file, cores) = ("bench/workloads/families.toml", 2)
    assert f"manifest {file}, " in page
    assert f"{cores} cores, " in page
    text = (repo_root / file).read_text("utf-8")
    found = estimate(plans.plan_text(text, read_tree(aiter_tree)), load_costs(), cores)
    for module, row in (("libmha_fwd", "kernel forward"), ("libmha_bwd", "kernel backward")):
        kernels = [row for row in found.rows if row.module == module and row.kernels]
        each = sum(row.cost.cpu_seconds for row in kernels) / sum(row.kernels for row in kernels)
        assert each == pytest.approx(measured(row), rel=0.05)
    # The measurement includes Bazel's server.
    cpu = measured("cold build, CPU time")
    assert 0.8 * cpu < found.cpu_seconds < cpu
    assert found.wall_seconds == pytest.approx(measured("cold build"), rel=0.1)


def test_measured_parts(repo_root: Path, aiter_tree: Path) -> None:
    """Prevents: the estimate omits sources or links of a small library, or has them twice.

    `bench/measure_costs.py --record` wrote the CPU seconds of complete builds.
    """
    builds = json.loads((repo_root / "tests/golden/builds.json").read_text("utf-8"))
    assert builds
    for build in builds:
        plan = plans.plan_text(build["manifest"], read_tree(aiter_tree))
        rows = [
            row for row in estimate(plan, load_costs(), 1).rows if row.module == build["module"]
        ]
        kernels = sum(row.cost.cpu_seconds for row in rows if row.kernels)
        others = sum(row.cost.cpu_seconds for row in rows if not row.kernels)
        assert kernels == pytest.approx(build["kernels_cpu_seconds"], rel=0.25)
        assert others == pytest.approx(build["others_cpu_seconds"], rel=0.2)


@pytest.mark.parametrize(
    ("quota", "cores"), [("100000 100000\n", 1), ("50000 100000\n", 1), ("max 100000\n", None)]
)
def test_a_containers_quota_counts(tmp_path: Path, quota: str, cores: int | None) -> None:
    """Prevents: the estimate uses more cores than the container may use."""
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    unlimited = available_cores(tmp_path / "none")
    assert unlimited >= 1
    assert available_cores(file) == (cores or unlimited)


def test_systems_without_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: an AttributeError on macOS, which has no os.sched_getaffinity."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert available_cores(tmp_path / "none") == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores(tmp_path / "none") == 1
