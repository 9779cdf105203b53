"""Objects of modules that take long to compile: kernels contain code for the GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

OBJECTS = [Path(name).resolve() for name in os.environ["QOLA_TEST_OBJECTS"].split()]


@pytest.mark.parametrize("file", OBJECTS, ids=lambda file: str(file.name))
def test_kernels_have_device_code(file: Path) -> None:
    """Prevents: only the host code of a kernel is compiled."""
    with file.open("rb") as data:
        sections = {section.name for section in ELFFile(data).iter_sections()}
    assert (".hip_fatbin" in sections) == file.name.startswith("batch_"), sorted(sections)
