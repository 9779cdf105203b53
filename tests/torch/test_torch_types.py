"""C++ types across modules: one module registers types, others with or without PyTorch use them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.torch.torch_programs import link, run

LIBRARIES = [Path(name).resolve() for name in os.environ["QOLA_TEST_LIBRARIES"].split()]
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
    result = run(link(tmp_path, LIBRARIES), CALL.format(name=name))
    assert (result.stdout, result.stderr) == ("84\n", "")
