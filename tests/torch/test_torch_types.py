"""C++ types across modules: one module registers types, others with or without PyTorch use them."""

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
def test_modules_accept_types_of_other_modules(tmp_path: Path, name: str) -> None:
    """Prevents: a TypeError for aiter_tensor_t or an enum, because pybind11 versions differ."""
    for file in LIBRARIES:
        (tmp_path / file.name).symlink_to(file)
    result = subprocess.run(
        [PYTHON, "-c", CALL.format(name=name)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.stderr) == ("84\n", "")
