"""Torch modules, built against a PyTorch without HIP: what Python finds in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from qola.launch.fake_hip import RUNTIME

LIBRARIES = [Path(name).resolve() for name in os.environ["QOLA_TEST_LIBRARIES"].split()]
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
PYTHON = os.environ.get("QOLA_TORCH") or os.environ.get("QOLA_PYTHON") or "python3"

Ran = subprocess.CompletedProcess[str]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Return a directory with the modules and HIP's runtime without a GPU."""
    for file in LIBRARIES:
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / RUNTIME).symlink_to(FAKE)
    return tmp_path


def run(directory: Path, code: str) -> Ran:
    """Run a program of the Python whose PyTorch the modules are for."""
    places = {"PYTHONPATH": str(directory), "LD_LIBRARY_PATH": str(directory)}
    return subprocess.run(
        [PYTHON, "-c", code],
        env={"PATH": os.environ["PATH"], **places},
        capture_output=True,
        text=True,
        check=False,
    )


def said(directory: Path, code: str) -> str:
    """Return what a program prints that ends well."""
    ran = run(directory, code)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("file", LIBRARIES, ids=lambda file: str(file.name))
def test_one_symbol_leaves_it(file: Path) -> None:
    """Prevents: AITER's or Composable Kernel's symbols mixed up with those of another module."""
    names = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=just-symbols", file],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert names == [f"PyInit_{file.stem}"]


def test_it_is_imported_with_aiters_signature(python: Path) -> None:
    """Prevents: a module that links, and that Python cannot import or not call as AITER's."""
    text = said(python, "import torch, torch_module_mha_fwd as m; print(m.mha_fwd.__doc__)")
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


def test_it_knows_the_types_that_pytorch_registers(python: Path) -> None:
    """Prevents: a type of PyTorch's or of another module's of AITER's that a function refuses."""
    assert said(python, REGISTRIES) == "1\n"


CALL = """\
import torch, torch_module_mha_fwd as m
q = torch.zeros(1, 16, 1, 32, dtype=torch.{dtype})
try:
    m.mha_fwd(q, q, q, 0.0, 1.0, False, -1, -1, True, False)
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""


def test_a_tensor_on_the_cpu_is_refused(python: Path) -> None:
    """Prevents: a crash where AITER's own checks should speak."""
    assert said(python, CALL.format(dtype="float16")) == "q must be on CUDA\n"
    text = said(python, CALL.format(dtype="float32"))
    assert text == "FlashAttention only support fp16, bf16 and fp8_e4m3 data type\n"


def test_another_pytorch_is_named(python: Path) -> None:
    """Prevents: a crash in a process whose PyTorch is not the one the module was built for."""
    version = said(python, "import torch; print(torch.__version__)").strip()
    ran = run(python, "import torch; torch.__version__ = '1.2.3'; import torch_module_mha_fwd")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        f"ImportError: torch_module_mha_fwd was built for PyTorch {version}, "
        "and this is PyTorch 1.2.3: build it again with this one"
    )


@pytest.mark.skipif(len(LIBRARIES) < 2, reason="one module alone")
def test_two_namespaces_are_imported_side_by_side(python: Path) -> None:
    """Prevents: two modules of the same kernels in one process that take each other's symbols."""
    names = [file.stem for file in LIBRARIES]
    code = f"import torch, {', '.join(names)}\n"
    code += "".join(f"print({name}.mha_fwd.__module__)\n" for name in names)
    assert said(python, code).split() == names
