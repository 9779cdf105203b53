"""Cached plans and explanations: which requests share a cache entry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from qola.aiter.tree import CONFIG_FILE, read_tree
from qola.codegen.types import Explanation
from qola.common.answers import NO_ANSWERS, AnswerCache
from qola.fetch.pins import PatchPin
from qola.manifest.load import loads
from qola.plan import planner
from qola.plan.request import Request
from qola.plan.spec import BuildSpec
from qola_base.errors import Finding, ToolchainError
from tests.support.folders import write
from tests.support.plans import kernel, plan

TEXT = """\
[qola]
[build]
architectures = ["gfx950"]
[[modules]]
name = "libmha_fwd"
[[modules]]
name = "libmha_bwd"
"""
TREE = {
    CONFIG_FILE: '{"libmha_fwd": {"srcs": ["{AITER_CSRC_DIR}/cpp_itfs/mha_fwd.cu"]}}',
    "csrc/include/mha_fwd.h": "int a;\n",
    "csrc/cpp_itfs/mha_fwd.cu": "",
}
SMALL = plan(
    kernels=(kernel("k0", fields={"mask": True, "hdim_q": 64}), kernel("k1", variants=(0, 2))),
    copts=("-O3",),
    warnings=(Finding("here", "this", "that", severity="warning"),),
)


class Planner:
    """Plans requests, and counts calls of make_plan."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = AnswerCache(root / "cache", lambda: "state")
        tree = read_tree(write(root / "tree", TREE))
        self.request = Request("m", loads(TEXT, file="m.toml"), tree, answers=answers)
        self.runs = 0
        monkeypatch.setattr(planner, "make_plan", self._make_plan)

    def count(self, **changes: object) -> int:
        """Plan a changed request, and return the number of calls of make_plan."""
        before = self.runs
        request = replace(self.request, **changes)  # type: ignore[arg-type]
        assert planner.plan(request) == SMALL
        return self.runs - before

    def _make_plan(self, *_: object) -> object:
        self.runs += 1
        return SMALL


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planner:
    return Planner(tmp_path, monkeypatch)


def test_plan_is_cached(counter: Planner) -> None:
    """Prevents: an unchanged request that is planned twice, or a cached plan that differs."""
    assert [counter.count(), counter.count(), counter.count(answers=NO_ANSWERS)] == [
        1,
        0,
        1,
    ]


def no_gpu() -> tuple[str, ...]:
    raise ToolchainError(Finding("this machine", "no GPU", "one"))


CHANGES: dict[str, dict[str, object]] = {
    "a comment, which moves lines": {"manifest": loads(f"# one\n{TEXT}", file="m.toml")},
    "another file": {"manifest": loads(TEXT, file="n.toml")},
    "fewer modules": {
        "manifest": replace(
            loads(TEXT, file="m.toml"), modules=loads(TEXT, file="m.toml").modules[1:]
        )
    },
    "name": {"name": "n"},
    "archs": {"spec": BuildSpec(("gfx942",))},
    "default archs": {"default_archs": ("gfx942",)},
    "mode": {"spec": BuildSpec(mode="cpp_itfs")},
    "HIP": {"rocm_version": "7.0"},
    "the pin": {"aiter_id": "0.1.7"},
    "an override": {"spec": BuildSpec(override_aiter_commit=True)},
    "patches of the tree": {"aiter_patches": (PatchPin("a.patch", "0"),)},
    "patches of the manifest": {"patches": (PatchPin("a.patch", "0"),)},
    "kernels in Triton": {"triton": {"kernels/scale.py": ""}},
    "the level": {"spec": BuildSpec(require="filtered")},
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_request_is_planned_again(counter: Planner, change: str) -> None:
    """Prevents: a cached plan of another request, or findings with places of another manifest."""
    counter.count()
    assert [counter.count(**CHANGES[change]) for _ in range(2)] == [1, 0]


def test_native_archs_are_detected_each_time(counter: Planner) -> None:
    """Prevents: a cached plan for a GPU that the machine does not have any more."""
    for archs, runs in ((("gfx950",), 1), (("gfx942",), 1), (("gfx950",), 0)):
        assert counter.count(spec=BuildSpec(("native",)), native=lambda archs=archs: archs) == runs
    assert counter.count(spec=BuildSpec(("native",)), native=no_gpu) == 1


def test_explanations_are_cached(counter: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: cached reasons of another manifest, or a field that the cache loses."""
    fields = {"hdim_q": 64, "mask": True, "pipeline": None}
    explanations = tuple(
        Explanation(f"k{number}", "fwd", "fwd", ("gfx950",), fields, kept_by, dropped_by)
        for number, (kept_by, dropped_by) in enumerate([((0, 1), ""), ((), "no variant has it")])
    )
    specs = counter.request.manifest.modules
    modules = [SimpleNamespace(spec=spec) for spec in specs]
    kernels = SimpleNamespace(explanations=explanations)
    runs: list[object] = []

    def generate(_: object, module: SimpleNamespace, *__: object, **___: object) -> object:
        runs.append(module)
        return SimpleNamespace(spec=module.spec, kernels=kernels)

    monkeypatch.setattr(planner, "resolve", lambda _: SimpleNamespace(attention=modules))
    monkeypatch.setattr(planner, "generate_module", generate)
    for _ in range(2):
        found = planner.explain(counter.request)
        assert found == tuple((spec, explanations) for spec in specs)
    assert runs == modules
