"""The list of operations that are emulated."""

from __future__ import annotations

import os
from pathlib import Path

from qola.emulate import program

GOLDEN = Path(__file__).parents[2] / "golden" / "emulated_operations.txt"


def test_the_list_of_operations_is_up_to_date() -> None:
    """Prevents: an operation that comes or goes unseen; QOLA_UPDATE_GOLDEN=1 writes the list."""
    text = "".join(f"{name}\n" for name in program.covered())
    if os.environ.get("QOLA_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
