"""Stored verdicts: the sources that invalidate them, and entries of another shape."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from qola.common.answers import write_entry
from qola.common.packages import PARTS, ROOT
from qola_lab.verify import store
from qola_lab.verify.store import DIRECTORY, VerdictStore, sources_digest

DECIDE = (
    "gfxemu/engine.c",
    "gfxemu/arithmetic.h",
    "qola_lab/reference/attention.py",
    "qola_lab/verify/expected.py",
)
#: Report markup, and selection of problems (part of a case): they do not change verdicts.
OTHERS = ("qola_lab/verify/page.py", "qola_lab/verify/run.py")


def test_changed_sources_invalidate_verdicts(tmp_path: Path) -> None:
    """Prevents: a corrected emulator that reports stored verdicts of the old emulator."""
    for part in PARTS:
        ignored = shutil.ignore_patterns("__pycache__", "_ruleset", "tests")
        shutil.copytree(ROOT / part, tmp_path / part, ignore=ignored)
    found = [sources_digest()]
    for files in (OTHERS, *([file] for file in DECIDE)):
        for file in files:
            with (tmp_path / file).open("a") as text:
                text.write("\n")
        found.append(sources_digest(tmp_path))
    assert found[0] == found[1]
    assert len(set(found)) == 1 + len(DECIDE)


@dataclass(frozen=True)
class Verdict:
    """A verdict of one word."""

    state: str


@pytest.mark.parametrize("content", [b"{}", b"[" * 5000, b"\xff", b'{"state": 1}', b"[]"])
def test_verdict_of_another_shape_is_missing(tmp_path: Path, content: bytes) -> None:
    """Prevents: a traceback for an entry with the right digest that is not a verdict."""
    found = VerdictStore({"QOLA_CACHE_HOME": str(tmp_path)})
    found.store("q", Verdict("passed"))
    assert found.find("q", Verdict) == Verdict("passed")
    (entry,) = (tmp_path / DIRECTORY).iterdir()
    write_entry(entry.parent, entry.name, content)
    assert found.find("q", Verdict) is None


def test_verdicts_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: each run tries all kernels again, or takes a wrong verdict."""
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    verdict = Verdict("passed")
    question = ["kernel", {"seed": 1}]
    VerdictStore(environ).store(question, verdict)
    assert VerdictStore(environ).find(question, Verdict) == verdict
    assert VerdictStore(environ).find(["kernel", {"seed": 2}], Verdict) is None
    monkeypatch.setattr(store, "sources_digest", lambda: "of edited sources")
    assert VerdictStore(environ).find(question, Verdict) is None
