"""The wheel's PyTorch operators on the emulator: the kernels' own results, against torch's.

Tensors on the CPU stand for tensors on a GPU. run_with_torch.py runs it.
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

from qola.emulate.hip import Hip
from qola.launch.fake_hip import RUNTIME, Launch, read_log

WHEEL = Path(os.environ["QOLA_TEST_WHEEL"])
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
PACKAGE = WHEEL.name.partition("-")[0]
D = 32
EXACT = {"rtol": 0.0, "atol": 0.0}

torch.set_num_threads(1)


class Device(Hip):
    """The emulator, for which memory of tensors is memory of the device."""

    def __init__(self, log: Path) -> None:
        self.log = log
        os.environ["FAKE_HIP_LOG"] = str(log)
        super().__init__(FAKE, "gfx950")
        self.tensors: list[torch.Tensor] = []
        pointer = ctypes.c_void_p()
        assert self._runtime.hipStreamCreate(ctypes.byref(pointer)) == 0
        self._stream = pointer.value or 0

    def allocations(self) -> list[tuple[int, int]]:
        """Take storages of tensors for memory of the device, too."""
        storages = [tensor.untyped_storage() for tensor in self.tensors]
        ours = {s.data_ptr(): s.nbytes() for s in storages if s.nbytes()}
        return [*super().allocations(), *ours.items()]

    # What the package asks torch of a GPU, see _Gpu there.

    def check(self, name: str, tensor: torch.Tensor) -> None:
        """Take what is no GPU's."""
        assert tensor.device.type == "cpu", name

    def current(self, tensors: list[torch.Tensor]) -> AbstractContextManager[Any]:
        """Remember what is memory of the device; the list grows until the launch."""
        self.tensors = tensors
        return nullcontext()

    def stream(self, device: torch.device) -> int:
        """Return the one that is not the default."""
        return self._stream

    def launched(self) -> list[Launch]:
        """What was launched since the last time."""
        found = read_log(self.log)
        self.log.unlink(missing_ok=True)
        return found


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("site")
    ZipFile(WHEEL).extractall(found)
    return found


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
    emulated.launched()
    yield emulated
    # A kernel's own fault says more than that a call of HIP failed.
    emulated.raise_error()


def random(*shape: int, trained: bool = False, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).half().requires_grad_(trained)


def qkv(heads_q: int, heads_k: int, rows_q: int, rows_k: int) -> list[torch.Tensor]:
    """Of two sequences, with heads before rows in sight and behind them in memory."""
    shapes = ((rows_q, heads_q), (rows_k, heads_k), (rows_k, heads_k))
    made = [random(2, *shape, D, seed=n) for n, shape in enumerate(shapes)]
    return [one.transpose(1, 2).requires_grad_() for one in made]


def near(found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 4e-3) -> None:
    torch.testing.assert_close(found.double(), wanted.double(), atol=tolerance, rtol=tolerance)


def gradients(out: torch.Tensor, of: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    seen = random(*out.shape, seed=9).to(out.dtype)
    found: tuple[torch.Tensor, ...] = torch.autograd.grad(out, of, seen)
    return found


def shared(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
    """Return as many heads of K and V as of Q, which torch before 2.5 needs."""
    return [q, *(x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))]


def doubled(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def test_attention_and_its_gradients_are_those_of_torch(ops: Any, device: Device) -> None:
    """Prevents: strides, scales or heads that reach a kernel as others; dK and dV of one head."""
    tensors = qkv(4, 2, 64, 96)
    exact = doubled(tensors)
    out = ops.attention(*tensors, enable_gqa=True)
    wanted = sdpa(*shared(*exact))
    near(out, wanted)
    # As the inputs lie: nothing is copied on the way to [batch, row, head * dim].
    assert out.transpose(1, 2).is_contiguous()
    for found, right in zip(gradients(out, tensors), gradients(wanted, exact), strict=True):
        assert found.shape == right.shape
        near(found, right)
    assert {launch.stream for launch in device.launched()} == {1}


def test_tensors_are_handed_on_where_they_lie(ops: Any, device: Device) -> None:
    """Prevents: a copy of what a kernel can read, or none of what it cannot."""
    q, k, v = (tensor.detach() for tensor in qkv(2, 2, 64, 64))
    gappy = v.transpose(2, 3).contiguous().transpose(2, 3)
    near(ops.attention(q, k, gappy), sdpa(*(x.double() for x in (q, k, v))))
    held = [tensor.data_ptr() for tensor in device.tensors]
    assert held[:2] == [q.data_ptr(), k.data_ptr()]
    assert gappy.data_ptr() not in held


def test_gradients_that_are_one_row_again_and_again(ops: Any, device: Device) -> None:
    """Prevents: strides of 0, as a mean's gradient has them, that a kernel reads as others."""
    tensors = qkv(2, 2, 64, 64)
    exact = doubled(tensors)
    found = torch.autograd.grad(ops.attention(*tensors).mean(2).square().sum(), tensors)
    wanted = torch.autograd.grad(sdpa(*exact).mean(2).square().sum(), exact)
    for one, right in zip(found, wanted, strict=True):
        near(64 * one, 64 * right, 2e-2)


def test_a_causal_mask_begins_top_left(ops: Any, device: Device) -> None:
    """Prevents: another diagonal than torch's, or a window that is none."""
    q, k, v = (tensor.detach() for tensor in qkv(2, 2, 64, 96))
    exact = [x.double() for x in (q, k, v)]
    out, lse = ops.attention(q, k, v, is_causal=True, scale=0.3, return_lse=True)
    near(out, sdpa(*exact, is_causal=True, scale=0.3))
    seen = torch.ones(64, 96, dtype=torch.bool).tril()
    scores = (exact[0] @ exact[1].mT * 0.3).masked_fill(~seen, -torch.inf)
    near(lse, scores.logsumexp(-1))
    window = torch.ones(64, 96, dtype=torch.bool).tril(96 - 64 + 3).triu(96 - 64 - 8)
    near(ops.attention(q, k, v, window=(8, 3)), sdpa(*exact, attn_mask=window))


def test_alibi_slopes(ops: Any, device: Device) -> None:
    """Prevents: slopes of one sequence or head for another one."""
    q, k, v = (tensor.detach() for tensor in qkv(2, 2, 64, 64))
    slopes = torch.tensor([[0.5, 0.25], [0.125, 1.0]])
    away = torch.arange(64).view(1, -1) - torch.arange(64).view(-1, 1)
    bias = slopes.double()[..., None, None] * -away.abs()
    seen = torch.ones(64, 64, dtype=torch.bool).tril()
    exact = [x.double() for x in (q, k, v)]
    for given, of in ((slopes, bias), (slopes[1], bias[1].expand(2, 2, 64, 64))):
        out = ops.attention(q, k, v, is_causal=True, alibi_slopes=given)
        near(out, sdpa(*exact, attn_mask=of.masked_fill(~seen, -torch.inf)))


@pytest.mark.parametrize("shape", [(2, 2, 64, D), (2, 1, D), (1, 1, 1, D)])
def test_dropout_and_a_bias_with_its_gradient(
    ops: Any, device: Device, shape: tuple[int, ...]
) -> None:
    """Prevents: other random numbers in backward, and a bias or its gradient of another row."""
    # Of so many keys as V has columns: an identity shows what was dropped.
    q, k, v = qkv(2, 2, 64, D)
    bias = random(*shape, trained=True)
    rate = 0.4
    torch.manual_seed(7)
    keep = ops.attention(q, k, torch.eye(D).half().expand(2, 2, D, D), bias, rate).double() > 0
    assert 0.55 < keep.double().mean() < 0.65
    exact = doubled([q, k, v, bias])
    scores = exact[0] @ exact[1].mT / D**0.5 + exact[3]
    wanted = (scores.softmax(-1) * keep / (1 - rate)) @ exact[2]
    torch.manual_seed(7)
    out = ops.attention(q, k, v, bias, rate)
    near(out, wanted, 1e-2)
    torch.manual_seed(8)
    of = [q, k, v, bias]
    for found, right in zip(gradients(out, of), gradients(wanted, exact), strict=True):
        assert found.shape == right.shape
        near(found, right, 2e-2)
    # And the next ones are others.
    assert not torch.equal(ops.attention(q, k, v, bias, rate), out)


def test_a_mask_of_truth_values(ops: Any, device: Device) -> None:
    """Prevents: keys seen that are hidden, or the other way round."""
    q, k, _ = (tensor.detach() for tensor in qkv(2, 2, 64, D))
    seen = torch.rand(2, 1, 64, D) > 0.5
    shown = ops.attention(q, k, torch.eye(D).half().expand(2, 2, D, D), seen, 0.01)
    assert not shown[~seen.expand_as(shown)].any()
    assert shown.any()


def test_sequences_behind_each_other(ops: Any, device: Device) -> None:
    """Prevents: rows of one sequence in another one, or gradients of too many heads."""
    starts_q, starts_k = (torch.tensor(x, dtype=torch.int32) for x in ([0, 40, 64], [0, 48, 128]))
    shapes = ((64, 4, D), (128, 2, D), (128, 2, D))
    tensors = [random(*shape, trained=True, seed=n) for n, shape in enumerate(shapes)]
    exact = doubled(tensors)
    out, lse = ops.attention_varlen(
        *tensors, starts_q, starts_k, 40, 80, is_causal=True, return_lse=True
    )
    # It has no gradient, and says so.
    assert (lse.shape, lse.requires_grad) == ((4, 64), False)
    parts = []
    for n in range(2):
        q, k, v = (
            tensor[starts[n] : starts[n + 1]].transpose(0, 1)[None]
            for tensor, starts in zip(exact, (starts_q, starts_k, starts_k), strict=True)
        )
        seen = torch.ones(q.size(2), k.size(2), dtype=torch.bool).tril(k.size(2) - q.size(2))
        parts.append(sdpa(*shared(q, k, v), seen)[0].transpose(0, 1))
    wanted = torch.cat(parts)
    near(out, wanted)
    for found, right in zip(gradients(out, tensors), gradients(wanted, exact), strict=True):
        near(found, right)


def arguments(tensors: list[torch.Tensor]) -> tuple[Any, ...]:
    """What the operators take of a problem that asks for nothing more."""
    return (*tensors, *[None] * 6, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, False)


def test_opcheck(ops: Any, device: Device) -> None:
    """Prevents: a fake kernel, schema or gradient that torch.compile takes for another one."""
    tensors = qkv(2, 1, 32, 32)
    operators = getattr(torch.ops, PACKAGE)
    forward = (*arguments(tensors), True)
    torch.library.opcheck(operators.mha_fwd.default, forward)
    bias, rng = random(2, 1, 32, trained=True), torch.tensor([5, 6])
    numbers = (0, 0, 0, 0, 0, 0.0, 0.5, 0.0, False, True)
    dropping = (*tensors, bias, None, None, None, None, rng, *numbers)
    torch.library.opcheck(operators.mha_fwd.default, dropping)
    q, *others = (tensor.detach() for tensor in tensors)
    same = arguments([q, *others])
    kept = operators.mha_fwd(*same, True)
    d_out = random(*q.shape)
    backward = (d_out, *same[:3], *kept, *same[3:], False, False)
    torch.library.opcheck(operators.mha_bwd.default, backward)


def test_gradcheck(ops: Any, device: Device) -> None:
    """Prevents: gradients that are none of the forward, in places that no other test compares."""
    tensors = [tensor.detach().double().requires_grad_() for tensor in qkv(2, 1, 32, 32)]

    def attention(*of: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = ops.attention(*(x.half() for x in of), enable_gqa=True)
        return out.double()

    # Kernels have 11 bits: long steps, and wide limits.
    assert gradcheck(attention, tensors, eps=0.1, atol=0.05, rtol=0.05, fast_mode=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiles_whole(ops: Any, device: Device, backend: str) -> None:
    """Prevents: a graph that breaks at the operator, or computes something else."""

    def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = ops.attention(2 * q, k, v, enable_gqa=True)
        return out.sin()

    tensors = qkv(2, 1, 32, 32)
    compiled: Callable[..., Any] = torch.compile(step, fullgraph=True, backend=backend)
    out, wanted = compiled(*tensors), step(*tensors)
    # Inductor's own sine, and its products, round otherwise.
    limits: dict[str, float] = {"rtol": 2e-3, "atol": 2e-3} if backend == "inductor" else EXACT
    torch.testing.assert_close(out, wanted, **limits)
    for found, right in zip(gradients(out, tensors), gradients(wanted, tensors), strict=True):
        torch.testing.assert_close(found, right, **limits)


def test_two_calls_with_dropout_stay_two(ops: Any, device: Device) -> None:
    """Prevents: a compiler that takes one call with dropout for another one."""

    def step(*of: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = ops.attention(*of, 0.5) - ops.attention(*of, 0.5)
        return out

    given = [*qkv(2, 2, 32, D), random(32, D)]
    assert torch.compile(step, fullgraph=True, backend="aot_eager")(*given).any()


def test_varlen_compiles_with_other_lengths(ops: Any, device: Device) -> None:
    """Prevents: a compilation for each length."""
    compiled = torch.compile(
        ops.attention_varlen, fullgraph=True, dynamic=True, backend="aot_eager"
    )
    with torch._dynamo.config.patch(error_on_recompile=True):
        for rows in (40, 80):
            q, k, v = (random(rows, 2, D, seed=n) for n in range(3))
            starts = torch.tensor([0, rows], dtype=torch.int32)
            given = (q, k, v, starts, starts, rows, rows, 0.0, True)
            assert torch.equal(compiled(*given), ops.attention_varlen(*given))


def test_fake_tensors_of_a_gpu(ops: Any) -> None:
    """Prevents: a shape, type or device that only a real launch would tell."""
    with FakeTensorMode():
        # Without autograd, whose engine asks a torch without GPUs for one.
        q = torch.empty(2, 8, 100, 64, dtype=torch.bfloat16, device="cuda")
        k = torch.empty(2, 2, 300, 64, dtype=torch.bfloat16, device="cuda")
        v = torch.empty(2, 2, 300, 128, dtype=torch.bfloat16, device="cuda")
        out, lse = ops.attention(q, k, v, enable_gqa=True, dropout_p=0.1, return_lse=True)
        assert (out.shape, out.dtype, out.device) == ((2, 8, 100, 128), q.dtype, q.device)
        assert (lse.shape, lse.dtype, lse.device) == ((2, 8, 100), torch.float32, q.device)
        tensors = arguments([q, k, v])
        operator = getattr(torch.ops, PACKAGE).mha_bwd
        found = operator(out, *tensors[:3], out, lse, *tensors[3:], False, False)
        for gradient, of in zip(found, (q, k, v), strict=False):
            assert (gradient.shape, gradient.dtype, gradient.device) == (
                of.shape,
                of.dtype,
                of.device,
            )


Q, K, V = (torch.zeros(2, 2, 32, D, dtype=torch.float16) for _ in range(3))


@pytest.mark.parametrize(
    ("given", "more", "said"),
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
def test_what_does_not_fit_is_named(
    ops: Any, device: Device, given: Any, more: dict[str, Any], said: str
) -> None:
    """Prevents: memory read beyond a tensor, or an error that does not say of which."""
    with pytest.raises(ValueError, match=said):
        ops.attention(*given, **more)
    assert device.launched() == []


@pytest.mark.parametrize(
    ("to", "more", "said"),
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
def test_a_library_says_why_it_refuses(
    ops: Any, device: Device, to: torch.dtype, more: dict[str, Any], said: str
) -> None:
    """Prevents: results that nothing computed, or a number in place of words."""
    with pytest.raises(RuntimeError, match=said):
        ops.attention(Q.to(to), K.to(to), V.to(to), **more)


def test_backward_says_what_it_lacks(ops: Any, device: Device) -> None:
    """Prevents: gradients that are silently wrong."""
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


def test_a_tensor_on_the_cpu_is_refused(ops: Any) -> None:
    """Prevents: a silent way round the GPU."""
    with pytest.raises(
        RuntimeError, match=r"query is on cpu.* only run on AMD GPUs: move it there"
    ):
        ops.attention(Q, K, V)


def test_two_runtimes_are_refused(site: Path, tmp_path: Path) -> None:
    """Prevents: memory of one HIP runtime handed to another one."""
    other = tmp_path / "other" / "libamdhip64.so"
    other.parent.mkdir()
    # Under another name the library does not find it, and loads its own.
    other.write_bytes(FAKE.read_bytes().replace(RUNTIME.encode(), b"libamdhip64.so.9"))
    program = (
        "import ctypes, sys; sys.path.insert(0, sys.argv[1]); ctypes.CDLL(sys.argv[2]);"
        f"from {PACKAGE} import _c; _c.entry('mha_fwd')"
    )
    command = [sys.executable, "-c", program, str(site), str(other)]
    env = {"LD_LIBRARY_PATH": str(FAKE.parent), "FAKE_HIP_ARCH": "gfx950"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    both = " and ".join(sorted(map(str, (other, FAKE))))
    assert f"two HIP runtimes in one process: {both}" in done.stderr, done.stderr
