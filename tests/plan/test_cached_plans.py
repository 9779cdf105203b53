"""Cached plans: which requests have one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.tree import CONFIG_FILE, read_tree
from qola.answers import NO_ANSWERS, AnswerCache
from qola.codegen.types import Explanation
from qola.errors import Finding, ToolchainError
from qola.fetch.pins import PatchPin
from qola.manifest.load import loads
from qola.plan.cached_plans import find_explanations, find_plan
from qola.plan.model import Plan
from qola.plan.request import Request
from qola.plan.spec import BuildSpec
from tests.support.folders import write
from tests.support.plans import kernel, package, plan

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
    packages={"fwd": package("-O3")},
    warnings=(Finding("here", "this", "that", severity="warning"),),
)


class Planner:
    """Plans a request, and counts how often."""

    def __init__(self, root: Path) -> None:
        answers = AnswerCache(root / "cache", lambda: "state")
        tree = read_tree(write(root / "tree", TREE))
        self.request = Request("m", loads(TEXT, file="m.toml"), tree, answers=answers)
        self.runs = 0

    def ask(self, **changes: object) -> tuple[Plan, int]:
        """Return the plan, and how often it was made for that."""
        before = self.runs
        found = find_plan(replace(self.request, **changes), self._make)  # type: ignore[arg-type]
        return found, self.runs - before

    def _make(self) -> Plan:
        self.runs += 1
        return SMALL


@pytest.fixture
def planner(tmp_path: Path) -> Planner:
    return Planner(tmp_path)


def test_a_plan_is_cached(planner: Planner) -> None:
    """Prevents: a plan that is made twice for nothing, or another one the second time."""
    assert planner.ask() == (SMALL, 1)
    assert planner.ask() == (SMALL, 0)
    assert planner.ask(answers=NO_ANSWERS) == (SMALL, 1)


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
def test_another_request_has_another_plan(planner: Planner, change: str) -> None:
    """Prevents: the plan of another manifest, or with places that are another's."""
    planner.ask()
    assert planner.ask(**CHANGES[change])[1] == 1
    assert planner.ask(**CHANGES[change])[1] == 0


def test_archs_of_this_machine_are_asked_for_each_time(planner: Planner) -> None:
    """Prevents: kernels for a GPU that is no longer there."""
    for archs, runs in ((("gfx950",), 1), (("gfx942",), 1), (("gfx950",), 0)):
        assert planner.ask(spec=BuildSpec(("native",)), native=lambda archs=archs: archs)[1] == runs
    assert planner.ask(spec=BuildSpec(("native",)), native=no_gpu)[1] == 1


def test_explanations_are_cached(planner: Planner) -> None:
    """Prevents: reasons that are another's, or lose something on the way."""
    fields = (("hdim_q", 64), ("mask", True), ("pipeline", None))
    of = tuple(
        Explanation(f"k{number}", "fwd", "fwd", ("gfx950",), fields, kept_by, dropped_by)
        for number, (kept_by, dropped_by) in enumerate([((0, 1), ""), ((), "no variant has it")])
    )
    explained = tuple((spec, of) for spec in planner.request.manifest.modules)
    assert planner.ask()[1] == 1
    asked: list[int] = []
    for _ in range(2):
        found = find_explanations(planner.request, lambda: asked.append(1) or explained)  # type: ignore[func-returns-value]
        assert found == explained
    assert asked == [1]
