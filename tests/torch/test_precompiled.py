"""PyTorch's precompiled headers: objects are those of a compile that parses the headers."""

from __future__ import annotations

import os
from pathlib import Path

from elftools.elf.elffile import ELFFile

PARSED, PRECOMPILED = (Path(name).resolve() for name in os.environ["QOLA_TEST_OBJECTS"].split())


def test_objects_are_the_same() -> None:
    """Prevents: another object by clang's precompiled headers (llvm-project issue 180527)."""
    assert "/parsed/" in str(PARSED)
    assert "/precompiled/" in str(PRECOMPILED)
    assert PARSED.read_bytes() == PRECOMPILED.read_bytes()
    with PARSED.open("rb") as data:
        assert ELFFile(data).get_section_by_name(".hip_fatbin")
