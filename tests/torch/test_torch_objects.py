"""Objects of modules that take too long to compile as a whole: kernels have code for the GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

OBJECTS = [Path(name).resolve() for name in os.environ["QOLA_TEST_OBJECTS"].split()]


@pytest.mark.parametrize("file", OBJECTS, ids=lambda file: str(file.name))
def test_kernels_have_device_code(file: Path) -> None:
    """Prevents: a kernel of which the host's half alone is compiled."""
    with file.open("rb") as data:
        sections = {section.name for section in ELFFile(data).iter_sections()}
    assert (".hip_fatbin" in sections) == file.name.startswith("batch_"), sorted(sections)
