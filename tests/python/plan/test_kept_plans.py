"""Kept plans: what makes a new one, and what is never kept."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.tree import CONFIG_FILE, read_tree
from qola.codegen import answers
from qola.codegen.asm.script import run_script
from qola.codegen.types import Explanation
from qola.errors import Finding, PlanError, ToolchainError
from qola.fetch.pins import PatchPin
from qola.manifest.load import loads
from qola.plan import kept_plans
from qola.plan.kept_plans import kept_explanations, kept_plan
from qola.plan.model import Plan
from qola.plan.request import Request
from tests.python.folders import write
from tests.python.plans import kernel, package, plan

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
    "hsa/gfx950/fmha.co": "code\n",
    "hsa/script.py": "import sys\nopen(sys.argv[1] + '/made.h', 'w').close()\n",
}
SMALL = plan(
    kernels=(kernel("k0", fields={"mask": True, "hdim_q": 64}), kernel("k1", variants=(0, 2))),
    packages={"fwd": package("-O3")},
    warnings=(Finding("here", "this", "that", severity="warning"),),
)


class Planner:
    """Plans a request, and counts how often."""

    def __init__(self, root: Path) -> None:
        self.tree = write(root / "tree", TREE)
        self.request = Request(
            "m", loads(TEXT, file="m.toml"), read_tree(self.tree), answers=root / "cache/generated"
        )
        self.runs = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def ask(self, **changes: object) -> tuple[Plan, int]:
        """Return the plan, and how often it was made for that."""
        before = self.runs
        found = kept_plan(replace(self.request, **changes), self._make)  # type: ignore[arg-type]
        return found, self.runs - before

    def _make(self) -> Plan:
        self.runs += 1
        self.meanwhile()
        return SMALL


@pytest.fixture
def planner(tmp_path: Path) -> Planner:
    return Planner(tmp_path)


def test_a_plan_is_kept(planner: Planner) -> None:
    """Prevents: a plan that is made twice for nothing, or another one the second time."""
    assert planner.ask() == (SMALL, 1)
    assert planner.ask() == (SMALL, 0)
    assert planner.ask(answers=None) == (SMALL, 1)


EDITS: dict[str, Callable[[Path, Path, pytest.MonkeyPatch], object]] = {
    "a header": lambda tree, *_: write(tree, {"csrc/include/mha_fwd.h": "int b;\n"}),
    "a code object": lambda tree, *_: write(tree, {"hsa/gfx950/fmha.co": "edoc\n"}),
    "a new file": lambda tree, *_: write(tree, {"csrc/include/ck.hpp": ""}),
    "a file that is gone": lambda tree, *_: (tree / "hsa/gfx950/fmha.co").unlink(),
    "another name": lambda tree, *_: (tree / "hsa/gfx950").rename(tree / "hsa/gfx942"),
    "a link in a file's place": lambda tree, root, _: linked(tree / "hsa/script.py", root / "s.py"),
    "qola": lambda _, root, __: write(root, {"copy/qola/later.py": ""}),
    "a module beside qola": lambda _, root, __: write(root, {"copy/glob.py": ""}),
    "Python": lambda _, __, patch: patch.setattr(sys, "version", "3.99.0 (main)"),
}


def linked(file: Path, target: Path) -> None:
    file.rename(target)
    file.symlink_to(target)


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_makes_a_new_plan(
    planner: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: str
) -> None:
    """Prevents: a stale plan, after an edit of something that may decide it."""
    copy = write(tmp_path / "copy", {"qola/plan/planner.py": ""})
    monkeypatch.setattr(answers, "_PACKAGE", copy / "qola")
    assert planner.ask()[1] == 1
    EDITS[edit](planner.tree, tmp_path, monkeypatch)
    assert planner.ask()[1] == 1
    assert planner.ask()[1] == 0


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
    "archs": {"archs": ("gfx942",)},
    "default archs": {"default_archs": ("gfx942",)},
    "mode": {"mode": "cpp_itfs"},
    "HIP": {"rocm_version": "7.0"},
    "the pin": {"aiter_id": "0.1.7"},
    "an override": {"overridden": True},
    "patches of the tree": {"aiter_patches": (PatchPin("a.patch", "0"),)},
    "patches of the manifest": {"patches": (PatchPin("a.patch", "0"),)},
    "kernels in Triton": {"triton": {"kernels/scale.py": ""}},
    "the level": {"level": "filtered"},
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
        assert planner.ask(archs=("native",), native=lambda archs=archs: archs)[1] == runs
    assert planner.ask(archs=("native",), native=no_gpu)[1] == 1


def test_another_tree_that_looks_alike_has_another_plan(planner: Planner, tmp_path: Path) -> None:
    """Prevents: warnings that name files of another tree."""
    planner.ask()
    shutil.copytree(planner.tree, tmp_path / "twin")
    assert planner.ask(tree=read_tree(tmp_path / "twin"))[1] == 1


def to_directory(tree: Path) -> None:
    (tree / "csrc/more").symlink_to(tree / "hsa")


ODD: dict[str, Callable[[Path], object]] = {
    "a link to a directory": to_directory,
    "a link to nothing": lambda tree: (tree / "csrc/more").symlink_to(tree / "none"),
    "a FIFO": lambda tree: os.mkfifo(tree / "csrc/fifo"),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_tree_that_cannot_be_followed_has_no_kept_plans(planner: Planner, odd: str) -> None:
    """Prevents: a stale plan of what a link leads to, or a command that waits for a FIFO."""
    ODD[odd](planner.tree)
    assert [planner.ask()[1], planner.ask()[1]] == [1, 1]


def test_a_large_tree_has_no_kept_plans(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: gigabytes of a tree's own builds that are read for each command."""
    monkeypatch.setattr(kept_plans, "LIMIT", 10)
    assert [planner.ask()[1], planner.ask()[1]] == [1, 1]


def test_a_tree_that_changes_meanwhile(planner: Planner) -> None:
    """Prevents: a plan half of the one and half of the other state, kept as that of the first."""
    header = planner.tree / "csrc/include/mha_fwd.h"
    planner.meanwhile = lambda: header.write_text("int c;\n")
    planner.ask()
    header.write_text("int a;\n")
    planner.meanwhile = lambda: None
    assert planner.ask()[1] == 1


def run_of(planner: Planner, line: str) -> None:
    """Have a generator script with one more line run while it is planned."""
    script = planner.tree / "hsa/script.py"
    script.write_text(script.read_text() + line)
    tree = planner.request.tree
    planner.meanwhile = lambda: run_script(tree, script, ["{}"], "here")


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("open(sys.path[0] + '/../csrc/include/mha_fwd.h').close()", 0),
        ("open('/proc/cpuinfo').close()", 1),
        ("import subprocess; subprocess.run(['true'])", 1),
        ("import os; os.listdir('/')", 1),
        ("sys.stdout.flush(); import os; os._exit(0)", 1),
    ],
)
def test_what_generators_read_elsewhere(planner: Planner, line: str, runs: int) -> None:
    """Prevents: a plan that something decided which is in no key."""
    run_of(planner, line)
    assert planner.ask()[1] == 1
    planner.request.tree.elsewhere.clear()
    assert planner.ask()[1] == runs


def test_an_error_is_not_kept(planner: Planner) -> None:
    """Prevents: a failure that stays, such as of a full disk."""

    def fail() -> None:
        raise PlanError(Finding("here", "this", "that"))

    planner.meanwhile = fail
    with pytest.raises(PlanError):
        planner.ask()
    planner.meanwhile = lambda: None
    assert planner.ask()[1] == 1


def test_explanations_are_kept(planner: Planner) -> None:
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
        found = kept_explanations(planner.request, lambda: asked.append(1) or explained)  # type: ignore[func-returns-value]
        assert found == explained
    assert asked == [1]
