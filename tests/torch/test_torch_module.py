"""Torch modules, built against a PyTorch without HIP: import and functions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.torch.torch_programs import exported_symbols, link, output_of, run

LIBRARIES = [Path(name).resolve() for name in os.environ["QOLA_TEST_LIBRARIES"].split()]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Return a directory with the modules and HIP's runtime without a GPU."""
    return link(tmp_path, LIBRARIES)


@pytest.mark.parametrize("file", LIBRARIES, ids=lambda file: str(file.name))
def test_module_exports_one_symbol(file: Path) -> None:
    """Prevents: symbols of AITER or Composable Kernel conflict with those of another module."""
    assert exported_symbols(file) == [f"PyInit_{file.stem}"]


def test_module_has_aiters_signature(python: Path) -> None:
    """Prevents: Python cannot import a linked module, or its signature differs from AITER's."""
    text = output_of(python, "import torch, torch_module_mha_fwd as m; print(m.mha_fwd.__doc__)")
    assert text.startswith("mha_fwd(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: ")
    for name in ("softmax_scale: ", "is_causal: bool", "gen: ", "alibi_slopes: "):
        assert name in text
    assert "-> list[torch.Tensor]" in text


REGISTRIES = """\
import ctypes, torch
api, address = ctypes.pythonapi, ctypes.c_void_p
api.PyInterpreterState_Get.restype = api.PyInterpreterState_GetDict.restype = address
api.PyInterpreterState_GetDict.argtypes = [address]
def registries():
    state = api.PyInterpreterState_GetDict(api.PyInterpreterState_Get())
    keys = ctypes.cast(state, ctypes.py_object).value
    return {key for key in keys if "pybind11_internals" in key}
of_torch = registries()
import torch_module_mha_fwd
print(len(of_torch), *registries() - of_torch)
"""


def test_module_shares_pybind11_types_with_pytorch(python: Path) -> None:
    """Prevents: a function rejects types of PyTorch or of another AITER module."""
    assert output_of(python, REGISTRIES) == "1\n"


CALL = """\
import torch, torch_module_mha_fwd as m
q = torch.zeros(1, 16, 1, 32, dtype=torch.{dtype})
try:
    m.mha_fwd(q, q, q, 0.0, 1.0, False, -1, -1, True, False)
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""


def test_cpu_tensor_is_rejected(python: Path) -> None:
    """Prevents: a tensor on the CPU causes a crash instead of AITER's error."""
    assert output_of(python, CALL.format(dtype="float16")) == "q must be on CUDA\n"
    text = output_of(python, CALL.format(dtype="float32"))
    assert text == "FlashAttention only support fp16, bf16 and fp8_e4m3 data type\n"


def test_other_pytorch_version_is_rejected(python: Path) -> None:
    """Prevents: a crash if the process has another PyTorch than the module requires."""
    version = output_of(python, "import torch; print(torch.__version__)").strip()
    result = run(python, "import torch; torch.__version__ = '1.2.3'; import torch_module_mha_fwd")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        f"ImportError: torch_module_mha_fwd was built for PyTorch {version}, "
        "and this is PyTorch 1.2.3: build it again with this one"
    )


@pytest.mark.skipif(len(LIBRARIES) < 2, reason="one module alone")
def test_two_namespaces_are_imported_in_one_process(python: Path) -> None:
    """Prevents: two modules of equal kernels in one process use each other's symbols."""
    names = [file.stem for file in LIBRARIES]
    code = f"import torch, {', '.join(names)}\n"
    code += "".join(f"print({name}.mha_fwd.__module__)\n" for name in names)
    assert output_of(python, code).split() == names
