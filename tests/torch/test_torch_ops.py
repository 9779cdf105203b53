"""The wheel's PyTorch operators on the emulator: results of kernels, against PyTorch's.

Tensors on the CPU represent tensors on a GPU. run_with_torch.py runs this file.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck
from torch.nn.functional import scaled_dot_product_attention as sdpa

from gfxemu.fake_hip import RUNTIME, Launch, read_log
from gfxemu.hip import Hip

WHEEL = Path(os.environ["QOLA_TEST_WHEEL"])
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
PACKAGE = WHEEL.name.partition("-")[0]
D = 32
EXACT = {"rtol": 0.0, "atol": 0.0}

torch.set_num_threads(1)


class Device(Hip):
    """The emulator; memory of tensors counts as memory of the device."""

    def __init__(self, log: Path) -> None:
        self.log = log
        os.environ["FAKE_HIP_LOG"] = str(log)
        super().__init__(FAKE, "gfx950")
        self.tensors: list[torch.Tensor] = []
        pointer = ctypes.c_void_p()
        assert self._runtime.hipStreamCreate(ctypes.byref(pointer)) == 0
        self._stream = pointer.value or 0

    def allocations(self) -> list[tuple[int, int]]:
        """Return the device's allocations, including the storages of tensors."""
        storages = [tensor.untyped_storage() for tensor in self.tensors]
        ours = {s.data_ptr(): s.nbytes() for s in storages if s.nbytes()}
        return [*super().allocations(), *ours.items()]

    # The methods of _Gpu in the wheel's package, which query torch for a GPU.

    def check(self, name: str, tensor: torch.Tensor) -> None:
        """Accept tensors on the CPU."""
        assert tensor.device.type == "cpu", name

    def current(self, tensors: list[torch.Tensor]) -> AbstractContextManager[Any]:
        """Remember the tensors of a call, device memory too; the caller extends the list."""
        self.tensors = tensors
        return nullcontext()

    def stream(self, device: torch.device) -> int:
        """Return a stream that is not the default stream."""
        return self._stream

    def take_launches(self) -> list[Launch]:
        """Return the launches since the previous call."""
        found = read_log(self.log)
        self.log.unlink(missing_ok=True)
        return found


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    ZipFile(WHEEL).extractall(directory)
    return directory


@pytest.fixture(scope="session")
def ops(site: Path) -> Any:
    sys.path.insert(0, str(site))
    return importlib.import_module(f"{PACKAGE}.torch")


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return Device(tmp_path_factory.mktemp("log") / "log")


@pytest.fixture
def device(ops: Any, emulated: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    operators = importlib.import_module(f"{PACKAGE}._operators")
    monkeypatch.setattr(operators, "_gpu", emulated)
    emulated.take_launches()
    yield emulated
    # The error of a kernel is more specific than the error of a HIP call.
    emulated.raise_error()


def random_tensor(*shape: int, requires_grad: bool = False, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).half().requires_grad_(requires_grad)


def qkv(heads_q: int, heads_k: int, rows_q: int, rows_k: int) -> list[torch.Tensor]:
    """Return Q, K, V of two sequences, [batch, head, row, D], stored as [batch, row, head, D]."""
    shapes = ((rows_q, heads_q), (rows_k, heads_k), (rows_k, heads_k))
    tensors = [random_tensor(2, *shape, D, seed=n) for n, shape in enumerate(shapes)]
    return [tensor.transpose(1, 2).requires_grad_() for tensor in tensors]


def check_close(result: torch.Tensor, expected: torch.Tensor, tolerance: float = 4e-3) -> None:
    torch.testing.assert_close(result.double(), expected.double(), atol=tolerance, rtol=tolerance)


def gradients(out: torch.Tensor, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    d_out = random_tensor(*out.shape, seed=9).to(out.dtype)
    found: tuple[torch.Tensor, ...] = torch.autograd.grad(out, inputs, d_out)
    return found


def check_gradients(
    out: torch.Tensor,
    inputs: list[torch.Tensor],
    expected: torch.Tensor,
    exact: list[torch.Tensor],
    tolerance: float = 4e-3,
) -> None:
    """Compare a result's gradients of its inputs with those of the expected result."""
    for found, wanted in zip(gradients(out, inputs), gradients(expected, exact), strict=True):
        assert found.shape == wanted.shape
        check_close(found, wanted, tolerance)


def repeat_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
    """Repeat heads of K and V to match Q, as torch before 2.5 requires."""
    return [q, *(x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))]


def to_double(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def test_attention_and_gradients_match_torch(ops: Any, device: Device) -> None:
    """Prevents: a kernel gets wrong strides, scales or heads, or dK and dV of only one head."""
    tensors = qkv(4, 2, 64, 96)
    exact = to_double(tensors)
    out = ops.attention(*tensors, enable_gqa=True)
    expected = sdpa(*repeat_heads(*exact))
    check_close(out, expected)
    # The output has the layout of the inputs: a view as [batch, row, head * dim] needs no copy.
    assert out.transpose(1, 2).is_contiguous()
    check_gradients(out, tensors, expected, exact)
    assert {launch.stream for launch in device.take_launches()} == {1}


def test_tensors_are_passed_without_copies(ops: Any, device: Device) -> None:
    """Prevents: qola copies a tensor that kernels can read, or passes a tensor that they cannot."""
    q, k, v = (tensor.detach() for tensor in qkv(2, 2, 64, 64))
    noncontiguous_v = v.transpose(2, 3).contiguous().transpose(2, 3)
    check_close(ops.attention(q, k, noncontiguous_v), sdpa(*(x.double() for x in (q, k, v))))
    pointers = [tensor.data_ptr() for tensor in device.tensors]
    assert pointers[:2] == [q.data_ptr(), k.data_ptr()]
    assert noncontiguous_v.data_ptr() not in pointers


def test_expanded_gradients(ops: Any, device: Device) -> None:
    """Prevents: a kernel misreads strides of 0, which the gradient of a mean has."""
    tensors = qkv(2, 2, 64, 64)
    exact = to_double(tensors)
    found = torch.autograd.grad(ops.attention(*tensors).mean(2).square().sum(), tensors)
    expected = torch.autograd.grad(sdpa(*exact).mean(2).square().sum(), exact)
    for gradient, expected_gradient in zip(found, expected, strict=True):
        check_close(64 * gradient, 64 * expected_gradient, 2e-2)


def test_causal_mask_is_top_left(ops: Any, device: Device) -> None:
    """Prevents: the causal diagonal differs from torch's, or a window is ignored."""
    q, k, v = (tensor.detach() for tensor in qkv(2, 2, 64, 96))
    exact = [x.double() for x in (q, k, v)]
    out, lse = ops.attention(q, k, v, is_causal=True, scale=0.3, return_lse=True)
    check_close(out, sdpa(*exact, is_causal=True, scale=0.3))
    visible = torch.ones(64, 96, dtype=torch.bool).tril()
    scores = (exact[0] @ exact[1].mT * 0.3).masked_fill(~visible, -torch.inf)
    check_close(lse, scores.logsumexp(-1))
    window = torch.ones(64, 96, dtype=torch.bool).tril(96 - 64 + 3).triu(96 - 64 - 8)
    check_close(ops.attention(q, k, v, window=(8, 3)), sdpa(*exact, attn_mask=window))


def test_alibi_slopes(ops: Any, device: Device) -> None:
    """Prevents: a kernel uses alibi slopes of another sequence or head."""
    q, k, v = (tensor.detach() for tensor in qkv(2, 2, 64, 64))
    slopes = torch.tensor([[0.5, 0.25], [0.125, 1.0]])
    away = torch.arange(64).view(1, -1) - torch.arange(64).view(-1, 1)
    bias = slopes.double()[..., None, None] * -away.abs()
    visible = torch.ones(64, 64, dtype=torch.bool).tril()
    exact = [x.double() for x in (q, k, v)]
    for case_slopes, case_bias in ((slopes, bias), (slopes[1], bias[1].expand(2, 2, 64, 64))):
        out = ops.attention(q, k, v, is_causal=True, alibi_slopes=case_slopes)
        check_close(out, sdpa(*exact, attn_mask=case_bias.masked_fill(~visible, -torch.inf)))


@pytest.mark.parametrize("shape", [(2, 2, 64, D), (2, 1, D), (1, 1, 1, D)])
def test_dropout_and_bias_gradient(ops: Any, device: Device, shape: tuple[int, ...]) -> None:
    """Prevents: backward uses other random numbers, or the bias or its gradient of another row."""
    # There are D keys, so that an identity as V shows the dropout mask.
    q, k, v = qkv(2, 2, 64, D)
    bias = random_tensor(*shape, requires_grad=True)
    rate = 0.4
    torch.manual_seed(7)
    keep = ops.attention(q, k, torch.eye(D).half().expand(2, 2, D, D), bias, rate).double() > 0
    assert 0.55 < keep.double().mean() < 0.65
    exact = to_double([q, k, v, bias])
    scores = exact[0] @ exact[1].mT / D**0.5 + exact[3]
    expected = (scores.softmax(-1) * keep / (1 - rate)) @ exact[2]
    torch.manual_seed(7)
    out = ops.attention(q, k, v, bias, rate)
    check_close(out, expected, 1e-2)
    torch.manual_seed(8)
    check_gradients(out, [q, k, v, bias], expected, exact, 2e-2)
    # The next call uses other random numbers.
    assert not torch.equal(ops.attention(q, k, v, bias, rate), out)


def test_boolean_mask(ops: Any, device: Device) -> None:
    """Prevents: masked keys are used, or the reverse."""
    q, k, _ = (tensor.detach() for tensor in qkv(2, 2, 64, D))
    visible = torch.rand(2, 1, 64, D) > 0.5
    shown = ops.attention(q, k, torch.eye(D).half().expand(2, 2, D, D), visible, 0.01)
    assert not shown[~visible.expand_as(shown)].any()
    assert shown.any()


def test_varlen(ops: Any, device: Device) -> None:
    """Prevents: rows of a sequence are used for another, or gradients have too many heads."""
    starts_q, starts_k = (torch.tensor(x, dtype=torch.int32) for x in ([0, 40, 64], [0, 48, 128]))
    shapes = ((64, 4, D), (128, 2, D), (128, 2, D))
    tensors = [random_tensor(*shape, requires_grad=True, seed=n) for n, shape in enumerate(shapes)]
    exact = to_double(tensors)
    out, lse = ops.attention_varlen(
        *tensors, starts_q, starts_k, 40, 80, is_causal=True, return_lse=True
    )
    # LSE has no gradient.
    assert (lse.shape, lse.requires_grad) == ((4, 64), False)
    parts = []
    for n in range(2):
        q, k, v = (
            tensor[starts[n] : starts[n + 1]].transpose(0, 1)[None]
            for tensor, starts in zip(exact, (starts_q, starts_k, starts_k), strict=True)
        )
        visible = torch.ones(q.size(2), k.size(2), dtype=torch.bool).tril(k.size(2) - q.size(2))
        parts.append(sdpa(*repeat_heads(q, k, v), visible)[0].transpose(0, 1))
    expected = torch.cat(parts)
    check_close(out, expected)
    check_gradients(out, tensors, expected, exact)


def arguments(tensors: list[torch.Tensor]) -> tuple[Any, ...]:
    """Return arguments of the operators without optional features."""
    return (*tensors, *[None] * 6, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, False)


def test_opcheck(ops: Any, device: Device) -> None:
    """Prevents: torch.compile uses a wrong fake kernel, schema or gradient."""
    tensors = qkv(2, 1, 32, 32)
    operators = getattr(torch.ops, PACKAGE)
    forward = (*arguments(tensors), True)
    torch.library.opcheck(operators.mha_fwd.default, forward)
    bias, rng = random_tensor(2, 1, 32, requires_grad=True), torch.tensor([5, 6])
    numbers = (0, 0, 0, 0, 0, 0.0, 0.5, 0.0, False, True)
    dropping = (*tensors, bias, None, None, None, None, rng, *numbers)
    torch.library.opcheck(operators.mha_fwd.default, dropping)
    q, *others = (tensor.detach() for tensor in tensors)
    base_arguments = arguments([q, *others])
    results = operators.mha_fwd(*base_arguments, True)
    d_out = random_tensor(*q.shape)
    backward = (d_out, *base_arguments[:3], *results, *base_arguments[3:], False, False)
    torch.library.opcheck(operators.mha_bwd.default, backward)


def test_gradcheck(ops: Any, device: Device) -> None:
    """Prevents: gradients are wrong in cases that other tests do not compare."""
    tensors = [tensor.detach().double().requires_grad_() for tensor in qkv(2, 1, 32, 32)]

    def attention(*inputs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = ops.attention(*(x.half() for x in inputs), enable_gqa=True)
        return out.double()

    # Kernels compute with 11 bits, so steps and limits are large.
    assert gradcheck(attention, tensors, eps=0.1, atol=0.05, rtol=0.05, fast_mode=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiles_as_one_graph(ops: Any, device: Device, backend: str) -> None:
    """Prevents: the graph breaks at the operator, or the compiled function differs."""

    def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = ops.attention(2 * q, k, v, enable_gqa=True)
        return out.sin()

    tensors = qkv(2, 1, 32, 32)
    compiled: Callable[..., Any] = torch.compile(step, fullgraph=True, backend=backend)
    out, expected = compiled(*tensors), step(*tensors)
    # Inductor's sine and products round differently.
    limits: dict[str, float] = {"rtol": 2e-3, "atol": 2e-3} if backend == "inductor" else EXACT
    torch.testing.assert_close(out, expected, **limits)
    for found, expected_gradient in zip(
        gradients(out, tensors), gradients(expected, tensors), strict=True
    ):
        torch.testing.assert_close(found, expected_gradient, **limits)


def test_calls_with_dropout_are_not_merged(ops: Any, device: Device) -> None:
    """Prevents: a compiler merges two calls with dropout."""

    def step(*inputs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = ops.attention(*inputs, 0.5) - ops.attention(*inputs, 0.5)
        return out

    tensors = [*qkv(2, 2, 32, D), random_tensor(32, D)]
    assert torch.compile(step, fullgraph=True, backend="aot_eager")(*tensors).any()


def test_varlen_compiles_once_for_all_lengths(ops: Any, device: Device) -> None:
    """Prevents: torch compiles for each length."""
    compiled = torch.compile(
        ops.attention_varlen, fullgraph=True, dynamic=True, backend="aot_eager"
    )
    with torch._dynamo.config.patch(error_on_recompile=True):
        for rows in (40, 80):
            q, k, v = (random_tensor(rows, 2, D, seed=n) for n in range(3))
            starts = torch.tensor([0, rows], dtype=torch.int32)
            call_arguments = (q, k, v, starts, starts, rows, rows, 0.0, True)
            assert torch.equal(compiled(*call_arguments), ops.attention_varlen(*call_arguments))


def test_fake_tensors_of_a_gpu(ops: Any) -> None:
    """Prevents: fake tensors have a wrong shape, dtype or device."""
    with FakeTensorMode():
        # Without autograd, whose engine requires a GPU.
        q = torch.empty(2, 8, 100, 64, dtype=torch.bfloat16, device="cuda")
        k = torch.empty(2, 2, 300, 64, dtype=torch.bfloat16, device="cuda")
        v = torch.empty(2, 2, 300, 128, dtype=torch.bfloat16, device="cuda")
        out, lse = ops.attention(q, k, v, enable_gqa=True, dropout_p=0.1, return_lse=True)
        assert (out.shape, out.dtype, out.device) == ((2, 8, 100, 128), q.dtype, q.device)
        assert (lse.shape, lse.dtype, lse.device) == ((2, 8, 100), torch.float32, q.device)
        tensors = arguments([q, k, v])
        operator = getattr(torch.ops, PACKAGE).mha_bwd
        found = operator(out, *tensors[:3], out, lse, *tensors[3:], False, False)
        for gradient, tensor in zip(found, (q, k, v), strict=False):
            assert (gradient.shape, gradient.dtype, gradient.device) == (
                tensor.shape,
                tensor.dtype,
                tensor.device,
            )


Q, K, V = (torch.zeros(2, 2, 32, D, dtype=torch.float16) for _ in range(3))


@pytest.mark.parametrize(
    ("tensors", "options", "message"),
    [
        ((Q, K[:, :1], V[:, :1]), {}, "key has 1 heads, query 2: enable_gqa=True"),
        ((Q, K[:1], V), {}, r"key is \(1, 2, 32, 32\), expected \(2, 2, 32, 32\)"),
        ((Q, K, V[:, :, :9]), {}, r"value is \(2, 2, 9, 32\), expected \(2, 2, 32, 32\)"),
        ((Q, K.float(), V), {}, "key is torch.float32, expected torch.float16"),
        ((Q.double(), K, V), {}, "query is torch.float64, expected one of"),
        ((Q[0], K, V), {}, "query has 3 dimensions, expected 4"),
        (
            (Q, K, V),
            {"alibi_slopes": torch.zeros(3)},
            r"alibi_slopes is \(3,\), expected \(2,\) or",
        ),
        ((Q, K, V), {"sink": torch.zeros(2).half()}, "sink is torch.float16, expected torch.f"),
        ((Q, K, V), {"window": (1, 0), "is_causal": True}, "is_causal and window"),
        ((Q, K, V), {"scale": 0.0}, "scale: 0"),
    ],
)
def test_invalid_arguments_are_reported(
    ops: Any, device: Device, tensors: Any, options: dict[str, Any], message: str
) -> None:
    """Prevents: a kernel reads beyond a tensor, or an error does not name the tensor."""
    with pytest.raises(ValueError, match=message):
        ops.attention(*tensors, **options)
    assert device.take_launches() == []


@pytest.mark.parametrize(
    ("dtype", "options", "message"),
    [
        (torch.bfloat16, {}, r"mha_fwd: no kernel .*arguments: dtype=2, batch=2, nhead_q=2"),
        (torch.float16, {"dropout_p": 1.0}, "mha_fwd: dropout: expected a number"),
        (
            torch.float16,
            {"sink": torch.zeros(2)},
            "mha_fwd: sink: set, and mha_fwd of this library",
        ),
    ],
)
def test_errors_of_the_library(
    ops: Any, device: Device, dtype: torch.dtype, options: dict[str, Any], message: str
) -> None:
    """Prevents: an operator returns results without a kernel, or an error number without text."""
    with pytest.raises(RuntimeError, match=message):
        ops.attention(Q.to(dtype), K.to(dtype), V.to(dtype), **options)


def test_unsupported_backward_raises(ops: Any, device: Device) -> None:
    """Prevents: gradients are silently wrong."""
    tensors = qkv(2, 2, 32, 32)
    operator = getattr(torch.ops, PACKAGE).mha_fwd
    out, *_ = operator(*arguments(tensors), False)
    with pytest.raises(RuntimeError, match="without return_lse"):
        gradients(out, tensors)
    first = torch.autograd.grad(ops.attention(*tensors).sum(), tensors, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(first[0].sum(), tensors)
    out = ops.attention(*tensors, deterministic=True)
    with pytest.raises(RuntimeError, match=r"mha_bwd: no kernel .*deterministic=1"):
        gradients(out, tensors)


def test_cpu_tensor_is_rejected(ops: Any) -> None:
    """Prevents: an operator silently runs on the CPU."""
    with pytest.raises(
        RuntimeError, match=r"query is on cpu.* only run on AMD GPUs: move it there"
    ):
        ops.attention(Q, K, V)


def test_two_hip_runtimes_are_rejected(site: Path, tmp_path: Path) -> None:
    """Prevents: memory of a HIP runtime is passed to another runtime."""
    other = tmp_path / "other" / "libamdhip64.so"
    other.parent.mkdir()
    # The library does not find a runtime with another soname, and loads a second runtime.
    other.write_bytes(FAKE.read_bytes().replace(RUNTIME.encode(), b"libamdhip64.so.9"))
    program = (
        "import ctypes, sys; sys.path.insert(0, sys.argv[1]); ctypes.CDLL(sys.argv[2]);"
        f"from {PACKAGE} import _c; _c.entry('mha_fwd')"
    )
    command = [sys.executable, "-c", program, str(site), str(other)]
    env = {"LD_LIBRARY_PATH": str(FAKE.parent), "FAKE_HIP_ARCH": "gfx950"}
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    both = " and ".join(sorted(map(str, (other, FAKE))))
    assert f"two HIP runtimes in one process: {both}" in result.stderr, result.stderr
