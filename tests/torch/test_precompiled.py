"""PyTorch's precompiled headers: objects are identical to compiles that parse the headers."""

from __future__ import annotations

import os
from pathlib import Path

from elftools.elf.elffile import ELFFile

PARSED, PRECOMPILED = (Path(name).resolve() for name in os.environ["QOLA_TEST_OBJECTS"].split())


def test_objects_are_identical() -> None:
    """Prevents: precompiled headers change the object (llvm-project issue 180527)."""
    assert "/parsed/" in str(PARSED)
    assert "/precompiled/" in str(PRECOMPILED)
    assert PARSED.read_bytes() == PRECOMPILED.read_bytes()
    with PARSED.open("rb") as data:
        assert ELFFile(data).get_section_by_name(".hip_fatbin")
