"""The sources that invalidate stored verdicts."""

from __future__ import annotations

import shutil
from pathlib import Path

from qola.packages import QOLA
from qola.verify.store import sources_digest

DECIDE = ("emulate/engine.c", "reference/attention.py", "verify/expected.py")
#: Report markup, and selection of problems (part of a case): they do not change verdicts.
OTHERS = ("verify/page.py", "verify/sample.py")


def test_changed_sources_invalidate_verdicts(tmp_path: Path) -> None:
    """Prevents: a corrected emulator that reports stored verdicts of the old emulator."""
    copy = tmp_path / "qola"
    shutil.copytree(QOLA, copy, ignore=shutil.ignore_patterns("__pycache__"))
    found = [sources_digest()]
    for files in (OTHERS, *([file] for file in DECIDE)):
        for file in files:
            with (copy / file).open("a") as text:
                text.write("\n")
        found.append(sources_digest(copy))
    assert found[0] == found[1]
    assert len(set(found)) == 1 + len(DECIDE)
