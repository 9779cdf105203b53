"""Files of verdicts: their form, and that the committed one is of the manifest's kernels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.tree import read_tree
from qola.manifest.load import load
from qola.verify.record import key_of, to_text
from tests.support.plans import plan_text
from tests.verify.toys import PASSED, TRIAL, WRONG

FILE = "manifests/te.verdicts"
STATE = re.compile(r"(passed|failed|untried) (gfx\w+) (\d+)")
KERNEL = re.compile(r"([0-9a-f]{8}) ([0-9a-f]{8})( \S+)?")


def test_states_and_reasons() -> None:
    """Prevents: a failed kernel recorded as another, or without the problem to look into."""
    failed = replace(
        PASSED, kernel="f", digest="d" * 64, trials=(replace(TRIAL, verdicts=(WRONG,)),)
    )
    untried = replace(PASSED, kernel="u", trials=(), missing="no problem", digest="e" * 64)
    text = to_text({"seed": 0}, [untried, failed, replace(PASSED, digest="a" * 64)])
    head, fact, *lines = text.splitlines()
    assert (head[0], fact) == ("#", "seed 0")
    arch = PASSED.arch
    assert lines == [
        *(f"passed {arch} 1", f"{key_of(PASSED.kernel)} aaaaaaaa"),
        *(f"failed {arch} 1", f"{key_of('f')} dddddddd f", f"  {failed.faults()[0]}"),
        *(f"untried {arch} 1", f"{key_of('u')} eeeeeeee u", "  no problem"),
    ]


def recorded(repo_root: Path) -> dict[str, str]:
    """Return the names of kernels in the committed file by key, "" for those that passed."""
    found: dict[str, str] = {}
    promised = 0
    for line in (repo_root / FILE).read_text("utf-8").splitlines():
        if match := STATE.fullmatch(line):
            assert promised == len(found), f"another number of kernels than above {line}"
            promised += int(match[3])
        elif match := KERNEL.fullmatch(line):
            assert match[1] not in found, line
            found[match[1]] = (match[3] or "").strip()
        else:
            assert line.startswith(("# ", "  ", "aiter ", "problems ", "sources ")), line
    assert promised == len(found)
    return found


def test_the_committed_file(repo_root: Path) -> None:
    """Prevents: verdicts that somebody edited or merged by hand."""
    found = recorded(repo_root)
    assert len(found) > 50
    assert all(not name or key_of(name) == key for key, name in found.items())


@pytest.mark.thorough
def test_its_kernels_are_planned(repo_root: Path, aiter_tree: Path) -> None:
    """Prevents: verdicts of kernels that the manifest does not have any more."""
    plan = plan_text(load(repo_root / "manifests/te.toml"), read_tree(aiter_tree))
    planned = {kernel.name for kernel in plan.kernels}
    planned |= {code.key for module in plan.modules for code in module.code_objects}
    assert not recorded(repo_root).keys() - set(map(key_of, planned))
