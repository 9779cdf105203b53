"""A Python extension module built from a manifest, and its contents in Python."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.support.running import output_of

LIBRARY = Path(os.environ["QOLA_TEST_LIBRARY"]).resolve()
HEADER = Path(os.environ["QOLA_TEST_AITER_TREE"]) / "aiter_meta/csrc/include/aiter_enum.h"

PRINT_ENUMS = """\
import json, module_aiter_enum as m
enums = {k: v for k, v in vars(m).items() if isinstance(v, type)}
found = {name: {k: int(v) for k, v in e.__members__.items()} for name, e in enums.items()}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, dict[str, int]]:
    """Return the enums of the module, imported by a Python without other packages."""
    python = os.environ.get("QOLA_TORCH") or os.environ.get("QOLA_PYTHON") or "python3"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(LIBRARY.parent)}
    text = output_of([python, "-S", "-c", PRINT_ENUMS], env=env)
    found: dict[str, dict[str, int]] = json.loads(text)
    return found


def header_enums() -> dict[str, dict[str, int]]:
    """Return the enums that AITER's header declares."""
    enums = {}
    for name, body in re.findall(r"enum class (\w+)[^{]*\{(.*?)\}", HEADER.read_text(), re.DOTALL):
        value, members = -1, {}
        for member, explicit in re.findall(r"(\w+)(?:\s*=\s*(-?\d+))?,", body):
            value = int(explicit) if explicit else value + 1
            members[member] = value
        enums[name] = members
    return enums


def test_python_imports_the_module(imported: dict[str, dict[str, int]]) -> None:
    """Prevents: Python cannot import a linked module, or the module needs PyTorch."""
    declared = header_enums()
    assert {"ActivationType", "QuantType"} <= set(declared)
    assert imported == {name: declared[name] for name in imported}
    assert {"ActivationType", "QuantType"} <= set(imported)


def test_the_module_exports_only_its_init_function() -> None:
    """Prevents: pybind11's symbols collide with those of another module in the process."""
    command = ["nm", "--dynamic", "--defined-only", "--format=just-symbols", str(LIBRARY)]
    assert output_of(command).split() == ["PyInit_module_aiter_enum"]


def test_the_file_name_is_the_module_name() -> None:
    """Prevents: `import` does not find the module because its file name has a prefix."""
    assert LIBRARY.name == "module_aiter_enum.so"


def test_the_module_names_its_archs() -> None:
    """Prevents: AITER, which scans modules for archs, launches kernels on a GPU without code."""
    assert set(re.findall(rb"amdhsa--(gfx[0-9a-z]+)", LIBRARY.read_bytes())) == {b"gfx950"}
