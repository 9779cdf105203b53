"""Files of verdicts: their format, and the committed file's kernels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.tree import read_tree
from qola.manifest.load import load
from qola_lab.tests.verify.toys import PASSED, TRIAL, WRONG
from qola_lab.verify.outcome import key_of, to_verdicts
from tests.support.plans import plan_text

FILE = "manifests/te.verdicts"
STATE = re.compile(r"(passed|failed|untried) (gfx\w+) (\d+)")
KERNEL = re.compile(r"([0-9a-f]{8}) ([0-9a-f]{8})( \S+)?")


def test_states_and_reasons() -> None:
    """Prevents: a failed kernel recorded under another name, or without its problem."""
    failed = replace(
        PASSED, kernel="f", digest="d" * 64, trials=(replace(TRIAL, verdicts=(WRONG,)),)
    )
    untried = replace(PASSED, kernel="u", trials=(), missing="no problem", digest="e" * 64)
    text = to_verdicts({"seed": 0}, [untried, failed, replace(PASSED, digest="a" * 64)])
    head, seed, *lines = text.splitlines()
    assert (head[0], seed) == ("#", "seed 0")
    arch = PASSED.arch
    assert lines == [
        *(f"passed {arch} 1", f"{key_of(PASSED.kernel)} aaaaaaaa"),
        *(f"failed {arch} 1", f"{key_of('f')} dddddddd f", f"  {failed.faults()[0]}"),
        *(f"untried {arch} 1", f"{key_of('u')} eeeeeeee u", "  no problem"),
    ]


def recorded(repo_root: Path) -> dict[str, str]:
    """Return the kernel names in the committed file by key; "" for kernels that passed."""
    found: dict[str, str] = {}
    announced = 0
    for line in (repo_root / FILE).read_text("utf-8").splitlines():
        if match := STATE.fullmatch(line):
            assert announced == len(found), f"another number of kernels than above {line}"
            announced += int(match[3])
        elif match := KERNEL.fullmatch(line):
            assert match[1] not in found, line
            found[match[1]] = (match[3] or "").strip()
        else:
            assert line.startswith(("# ", "  ", "aiter ", "problems ", "sources ")), line
    assert announced == len(found)
    return found


def test_the_committed_file(repo_root: Path) -> None:
    """Prevents: a verdict file edited or merged by hand."""
    found = recorded(repo_root)
    assert len(found) > 50
    assert all(not name or key_of(name) == key for key, name in found.items())


#: Results that helper kernels write, by a part of their names.
HELPERS = {"_convert_dq_": ("dq",), "_dot_do_o_": ("d",)}


def test_recorded_failures_are_those_of_their_kernels(repo_root: Path) -> None:
    """Prevents: a kernel recorded as failed for a fault or a wrong result of another one."""
    text = (repo_root / FILE).read_text("utf-8")
    failed = re.findall(r"^[0-9a-f]{8} [0-9a-f]{8} (\S+)\n  (direction.*)", text, re.MULTILINE)
    assert len(failed) > 50
    for name, reason in failed:
        # A fault begins with kernel and offset, a wrong result with its name and the element.
        if place := re.search(r": (\S+)\+0x", reason):
            assert place[1] == name, reason
        elif result := re.search(r": (\w+)\[", reason):
            own = [results for part, results in HELPERS.items() if part in name]
            assert not own or result[1] in own[0], reason


@pytest.mark.thorough
def test_kernels_of_the_committed_file_are_planned(repo_root: Path, aiter_tree: Path) -> None:
    """Prevents: stored verdicts of kernels that the manifest no longer has."""
    plan = plan_text(load(repo_root / "manifests/te.toml"), read_tree(aiter_tree))
    planned = {kernel.name for kernel in plan.kernels}
    planned |= {code.key for module in plan.modules for code in module.code_objects}
    assert not recorded(repo_root).keys() - set(map(key_of, planned))
