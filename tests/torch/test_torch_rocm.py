"""Torch modules with a PyTorch for ROCm: AITER's functions on tensors of an emulated GPU.

Run manually (CONTRIBUTING.md), with the PyTorch that make_torch.py builds.
"""

from __future__ import annotations

import importlib
import os
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from tests.torch.emulated import Device

MODULES = {
    Path(name).stem: Path(name).resolve() for name in os.environ["QOLA_TEST_MODULES"].split()
}
SCALE = 32**-0.5


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return Device(tmp_path_factory.mktemp("log") / "launches")


def module(name: str) -> Any:
    """Import a module by AITER's name, in any namespace."""
    found = [stem for stem in MODULES if stem.endswith(f"_{name}")]
    if not found:
        pytest.skip(f"{name} is none of QOLA_TEST_MODULES")
    for file in MODULES.values():
        if str(file.parent) not in sys.path:
            sys.path.insert(0, str(file.parent))
    return importlib.import_module(found[0])


def problem(*shape: int, count: int = 3) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return GPU tensors, [batch, row, head, 32], and float64 copies, [batch, head, row, 32]."""
    torch.manual_seed(5)
    tensors = [torch.randn(*shape).half() for _ in range(count)]
    exact = [tensor.double().transpose(1, 2).requires_grad_() for tensor in tensors]
    return [tensor.to("cuda") for tensor in tensors], exact


def check_close(result: torch.Tensor, expected: torch.Tensor, limit: float = 4e-3) -> None:
    """Compare a tensor on the GPU, [batch, row, head, D], with float64, [batch, head, row, D]."""
    torch.testing.assert_close(
        result.cpu().double(), expected.detach().transpose(1, 2), rtol=limit, atol=limit
    )


@pytest.mark.parametrize("name", sorted(MODULES))
def test_module_is_imported(name: str, device: Device) -> None:
    """Prevents: a module links with PyTorch for ROCm, but has an undefined symbol."""
    assert module(name.partition("_")[2])


def test_kernels_of_pytorch_run(device: Device) -> None:
    """Prevents: tensors are not on the emulated GPU, and the other tests check nothing."""
    tensor = torch.empty(5, 7, device="cuda").fill_(3.5)
    assert (tensor.device.type, [x.source for x in device.take_launches()]) == ("cuda", ["fatbin"])
    assert bool((tensor.cpu() == 3.5).all())


def test_kernels_are_launched_on_the_current_stream(device: Device) -> None:
    """Prevents: a kernel runs before its inputs are ready, or on other tensors."""
    mha_fwd = module("module_mha_fwd").mha_fwd
    tensors, _ = problem(1, 64, 2, 32)
    device.take_launches()
    streams = []
    for stream in (torch.Stream(device="cuda"), torch.Stream(device="cuda")):
        torch.accelerator.set_stream(stream)
        out, lse, *_ = mha_fwd(*tensors, 0.0, SCALE, False, -1, -1, True, False)
        (launch,) = device.take_launches()
        streams.append(launch.stream)
        pointers = struct.unpack_from("<3Q", launch.kernarg)
        assert pointers == tuple(tensor.data_ptr() for tensor in tensors)
        for result in (out, lse):
            assert struct.pack("<Q", result.data_ptr()) in launch.kernarg
    assert 0 not in streams
    assert len(set(streams)) == 2


def test_forward(device: Device) -> None:
    """Prevents: attention uses rows, heads or batches of other tensors."""
    mha_fwd = module("module_mha_fwd").mha_fwd
    tensors, exact = problem(2, 100, 2, 32)
    out, lse, *_ = mha_fwd(*tensors, 0.0, SCALE, False, -1, -1, True, False)
    assert len(device.take_launches()) == 1
    check_close(out, sdpa(*exact))
    scores = exact[0] @ exact[1].mT * SCALE
    torch.testing.assert_close(lse.cpu().double(), scores.logsumexp(-1).detach(), rtol=0, atol=1e-5)


def test_backward(device: Device) -> None:
    """Prevents: gradients are those of another tensor, or a kernel reads uninitialized memory."""
    forward, backward = module("module_mha_fwd").mha_fwd, module("module_mha_bwd").mha_bwd
    tensors, exact = problem(1, 64, 2, 32, count=4)
    *qkv, d_out = tensors
    out, lse, _, rng = forward(*qkv, 0.0, SCALE, False, -1, -1, True, False)
    # As in AITER's Python: kernels read rng_state even without dropout.
    shared = (0.0, SCALE, False, -1, -1, False)
    dq, dk, dv, _ = backward(d_out, *qkv, out, lse, *shared, rng_state=rng)
    assert len(device.take_launches()) > 2
    expected = torch.autograd.grad(sdpa(*exact[:3]), exact[:3], exact[3])
    for found, expected_gradient in zip((dq, dk, dv), expected, strict=True):
        check_close(found, expected_gradient, 2e-2)


def test_cpu_tensor_raises_aiters_error(device: Device) -> None:
    """Prevents: a kernel is launched on a tensor that AITER rejects."""
    mha_fwd = module("module_mha_fwd").mha_fwd
    q, k, v = problem(1, 64, 2, 32)[0]
    device.take_launches()
    with pytest.raises(RuntimeError, match="k must be on CUDA"):
        mha_fwd(q, k.cpu(), v, 0.0, SCALE, False, -1, -1, True, False)
    assert device.take_launches() == []
