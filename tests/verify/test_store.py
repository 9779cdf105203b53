"""Which sources decide a stored verdict."""

from __future__ import annotations

import shutil
from pathlib import Path

from qola.packages import QOLA
from qola.verify.store import sources_digest

DECIDE = ("emulate/engine.c", "reference/attention.py", "verify/expected.py")
#: The look of a report, and the choice of problems, which are part of a case.
OTHERS = ("verify/page.py", "verify/sample.py")


def test_verdicts_of_other_sources_are_not_used(tmp_path: Path) -> None:
    """Prevents: a corrected emulator that goes on reporting the verdicts of the old one."""
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
