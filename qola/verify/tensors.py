"""The numbers of a problem: what a kernel is handed, and the reference too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qola.reference.attention import Sequence, batch_mode, group_mode, with_heads
from qola.reference.formats import (
    BF8,
    BF8_FNUZ,
    BF16,
    F64,
    FP8,
    FP8_FNUZ,
    FP16,
    FP32,
    Format,
    Rounding,
    rounded,
)
from qola.reference.limits import Arithmetic
from qola.verify.problem import Problem

#: What CK's words for data types stand for: formats of Q, K, V and P, and of O.
_FORMATS = {
    "fp32": (FP32, FP32),
    "fp16": (FP16, FP16),
    "bf16": (BF16, BF16),
    "fp8": (FP8, FP8),
    "fp8bf16": (FP8, BF16),
    "fp8fp32": (FP8, FP32),
    "bf8": (BF8, BF8),
}
DTYPES = tuple(_FORMATS)
"""CK's words for data types whose formats are known."""

#: AITER's number for rounding to bf16 toward zero, and columns of K that its assembly kernels take.
_TOWARD_ZERO = 2
_ASSEMBLY_TILE = 64
#: Of gfx942, whose 8-bit formats are others.
_FNUZ = {FP8: FP8_FNUZ, BF8: BF8_FNUZ}


def formats(dtype: str, arch: str) -> tuple[Format, Format]:
    """Return the formats of the inputs and of the results of a data type on an arch.

    Raises:
        KeyError: no such data type is known.
    """
    given, out = _FORMATS[dtype]
    if arch.startswith("gfx94"):
        return _FNUZ.get(given, given), _FNUZ.get(out, out)
    return given, out


def arithmetic(problem: Problem, arch: str, tile: int) -> Arithmetic:
    """Return what kernels compute a problem with; see docs/internals/tolerances.md.

    Args:
        tile: columns of K that a kernel takes at once.
    """
    given, out = formats(problem.dtype, arch)
    if problem.assembly:
        rounding: Rounding = "nearest_even"
        if given is BF16 and problem.conversion == _TOWARD_ZERO:
            rounding = "toward_zero"
        dq_sum = FP32 if problem.dq_in_float else given
        return Arithmetic(given, out, rounding, rounding, max(tile, _ASSEMBLY_TILE), dq_sum)
    # P of CK's asynchronous forward kernels: v_cvt_pkrtz.
    cut = given is FP16 and problem.direction != "bwd"
    return Arithmetic(given, out, "toward_zero" if cut else "nearest_even", tile=tile)


@dataclass(frozen=True)
class Appended:
    """Rows that are appended to K and V, and what they are rotated by.

    Attributes:
        k, v: [batch, rows, heads, hdim].
        cos, sin: [positions, half of the dimensions that are rotated].
    """

    k: F64
    v: F64
    cos: F64
    sin: F64


@dataclass(frozen=True)
class Tensors:
    """What a problem is computed from, in values that the data type has.

    Attributes:
        q, k, v, do: [batch, positions, heads, hdim], in group mode [positions, heads, hdim].
        bias: [bias_heads, rows, columns], the same for each sequence; in group mode rows are those
            of all sequences, and a sequence has the first columns of its rows.
        slopes: [batch, nhead_q], or [nhead_q] for all.
        starts_q, starts_k: of group mode, where sequences begin, and where the last one ends.
        appended: of a problem that appends to K and V.
    """

    q: F64
    k: F64
    v: F64
    do: F64
    bias: F64 | None
    slopes: F64 | None
    starts_q: tuple[int, ...]
    starts_k: tuple[int, ...]
    appended: Appended | None = None

    def sequences(self, problem: Problem) -> list[Sequence]:
        """Return the sequences that these are of."""
        if problem.group:
            starts = list(self.starts_q), list(self.starts_k)
            found = group_mode(self.q, self.k, self.v, *starts, bias=self.bias)
        else:
            found = batch_mode(self.q, self.k, self.v, self.bias)
        return with_heads(found, self.slopes)


def tensors(problem: Problem, arch: str) -> Tensors:
    """Return the numbers of a problem, the same for its seed."""
    generator = np.random.Generator(np.random.PCG64(problem.data_seed))
    to, out = formats(problem.dtype, arch)

    def drawn(format_: Format, *size: int, magnitude: float = problem.magnitude) -> F64:
        return rounded(generator.normal(size=size) * magnitude, format_)

    of_q, of_k = [problem.batch, problem.rows[0]], [problem.batch, max(problem.columns)]
    if problem.group:
        of_q, of_k = [sum(problem.rows)], [sum(problem.columns)]
    q = drawn(to, *of_q, problem.nhead_q, problem.hdim_q)
    k = drawn(to, *of_k, problem.nhead_k, problem.hdim_q)
    v = drawn(to, *of_k, problem.nhead_k, problem.hdim_v)
    do = drawn(out, *of_q, problem.nhead_q, problem.hdim_v)
    bias = slopes = None
    if problem.bias == "bias":
        of_bias = FP32 if to.bits == 8 else to
        size = problem.bias_heads, of_q[-1], max(problem.columns)
        bias = drawn(of_bias, *size, magnitude=1.0)
    elif problem.bias == "alibi":
        sequences = (problem.batch,) if problem.batched_slopes else ()
        slopes = rounded(generator.uniform(0.01, 0.5, (*sequences, problem.nhead_q)), FP32)
    starts_q, starts_k = (
        tuple(int(n) for n in np.cumsum([0, *lengths]))
        for lengths in (problem.rows, problem.columns)
    )
    appended = None
    if problem.new:
        heads = problem.batch, problem.new, problem.nhead_k
        angles = generator.uniform(0, 2 * np.pi, (positions(problem), problem.rotary // 2))
        cos, sin = (rounded(of(angles), to) for of in (np.cos, np.sin))
        k_new, v_new = (drawn(to, *heads, hdim) for hdim in (problem.hdim_q, problem.hdim_v))
        appended = Appended(k_new, v_new, cos, sin)
    return Tensors(q, k, v, do, bias, slopes, starts_q, starts_k, appended)


def positions(problem: Problem) -> int:
    """Return how many positions rows of Q and of K may be rotated by."""
    return max(problem.columns) - problem.new + max(problem.new, problem.rows[0])
