"""10,000 problems: a library launches what its dispatch is read to launch, or both say none.

And problems of a dispatch that is not understood.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

COUNT = 10_000


def test_ten_thousand_problems() -> None:
    """Prevents: a registry that is right about the problems of other tests alone."""
    program = str(Path(os.environ["QOLA_TEST_PROGRAM"]).absolute())
    words = [program, "--problems", "sweep", "--count", str(COUNT), "--seed", "20"]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    total, differ, none = (int(word) for word in said.stdout.split() if word.isdigit())
    assert (total, differ) == (COUNT, 0)
    assert 0.2 * COUNT < none < 0.8 * COUNT


def test_a_direction_that_is_not_understood() -> None:
    """Prevents: a sweep that ends as a whole where the dispatch of one direction is not read."""
    program = Path(os.environ["QOLA_TEST_PREFILL"]).absolute()
    words = [str(program), "--problems", "sweep", "--count", "60", "--arch", "gfx950"]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    *told, last = said.stdout.splitlines()
    assert told
    assert all(" batch_prefill: " in line and "not understood" in line for line in told)
    # The library's own find is asked.
    assert all(" compared with find only: " in line for line in told)
    assert " 0 differ" in last
    assert "not compared" not in last
