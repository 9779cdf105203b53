"""Problems of a dispatch that qola does not understand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


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
