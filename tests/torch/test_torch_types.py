"""C++ types across modules: one registers them, another takes them, with PyTorch or without."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

LIBRARIES = [Path(name).resolve() for name in os.environ["QOLA_TEST_LIBRARIES"].split()]
PYTHON = os.environ.get("QOLA_TORCH") or os.environ.get("QOLA_PYTHON") or "python3"
CALL = """\
import registers_types as r, {name} as t
tensor = r.aiter_tensor_t(21)
assert t.twice(tensor) == r.ActivationType.Silu
assert t.twice(tensor=tensor, activation=r.ActivationType.Gelu) == r.ActivationType.Gelu
print(tensor.size)
"""


@pytest.mark.parametrize("name", ["takes_types_with_torch", "takes_types_without_torch"])
def test_types_of_one_module_are_taken_by_another(tmp_path: Path, name: str) -> None:
    """Prevents: a TypeError for aiter_tensor_t or an enum, since two pybind11 are in one build."""
    for file in LIBRARIES:
        (tmp_path / file.name).symlink_to(file)
    ran = subprocess.run(
        [PYTHON, "-c", CALL.format(name=name)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("84\n", "")
