"""Random tensors of a problem, for kernels and for the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola_base.formats import BF16, F64, FP16, FP32, Format, Rounding, rounded
from qola_lab.problems import STANDARD_NORMAL, AttentionProblem, TestData, formats
from qola_lab.reference.attention import Sequence
from qola_lab.reference.limits import Arithmetic

#: AITER's number for rounding to bf16 toward zero, and columns of K that its assembly kernels take.
_TOWARD_ZERO = 2
_ASSEMBLY_TILE = 64


def arithmetic(problem: AttentionProblem, arch: str, tile: int) -> Arithmetic:
    """Return formats and roundings of kernels that take `tile` columns of K (see tolerances.md)."""
    given, out = formats(problem.dtype, arch)
    if problem.use_asm:
        # fp16: v_cvt_pkrtz in all but some backward kernels of gfx950, which round to nearest.
        cut = given is FP16 or (given is BF16 and problem.how_v3_bf16_cvt == _TOWARD_ZERO)
        rounding: Rounding = "toward_zero" if cut else "nearest_even"
        dq_sum = FP32 if problem.is_v3_atomic_fp32 else given
        return Arithmetic(given, out, rounding, rounding, max(tile, _ASSEMBLY_TILE), dq_sum)
    # P of CK's asynchronous forward kernels: v_cvt_pkrtz.
    cut = given is FP16 and problem.direction != "bwd"
    return Arithmetic(given, out, "toward_zero" if cut else "nearest_even", tile=tile)


@dataclass(frozen=True)
class Appended:
    """Rows that are appended to K and V, and the angles of their rotation.

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
    """The inputs of a problem, in values that the data type has.

    Attributes:
        q, k, v, do: [batch, positions, heads, hdim], in group mode [positions, heads, hdim]; do is
            empty unless the problem is a backward.
        bias: [bias_heads, rows, columns], the same for each sequence; in group mode rows are those
            of all sequences, and a sequence has the first columns of its rows.
        alibi_slopes: [batch, nhead_q], or [nhead_q] for all.
        sink: [nhead_q].
        starts_q, starts_k: of group mode, where sequences begin, and where the last one ends.
        appended: of a problem that appends to K and V.
    """

    q: F64
    k: F64
    v: F64
    do: F64
    bias: F64 | None
    alibi_slopes: F64 | None
    starts_q: tuple[int, ...]
    starts_k: tuple[int, ...]
    appended: Appended | None = None
    sink: F64 | None = None

    def sequences(self, problem: AttentionProblem) -> list[Sequence]:
        """Return the tensors of each sequence."""
        slopes, bias, found = self.alibi_slopes, self.bias, []
        for n in range(problem.batch):
            rows: Any = n
            columns: Any = n
            if problem.is_group_mode:
                rows, columns = (slice(*of[n : n + 2]) for of in (self.starts_q, self.starts_k))
                if self.bias is not None:
                    bias = self.bias[:, rows, : problem.seqlen_k[n]]
            if problem.batched_alibi_slopes and self.alibi_slopes is not None:
                slopes = self.alibi_slopes[n]
            q, k, v = self.q[rows], self.k[columns], self.v[columns]
            found.append(Sequence(q, k, v, bias, slopes, self.sink, n))
        return found


def tensors(problem: AttentionProblem, arch: str, data: TestData = STANDARD_NORMAL) -> Tensors:
    """Return random tensors for a problem, equal for equal seeds."""
    generator = np.random.Generator(np.random.PCG64(data.seed))
    to, out = formats(problem.dtype, arch)

    def drawn(format_: Format, *size: int, magnitude: float = data.magnitude) -> F64:
        values = generator.normal(size=size)
        values *= magnitude
        return rounded(values, format_)

    of_q, of_k = [problem.batch, problem.seqlen_q[0]], [problem.batch, max(problem.seqlen_k)]
    if problem.is_group_mode:
        of_q, of_k = [sum(problem.seqlen_q)], [sum(problem.seqlen_k)]
    q = drawn(to, *of_q, problem.nhead_q, problem.hdim_q)
    k = drawn(to, *of_k, problem.nhead_k, problem.hdim_q)
    v = drawn(to, *of_k, problem.nhead_k, problem.hdim_v)
    do = drawn(out, *of_q, problem.nhead_q, problem.hdim_v)
    if problem.direction != "bwd":
        # Drawn all the same: later tensors of a seed stay as they are.
        do = np.zeros(0)
    bias = slopes = None
    if problem.bias_type == "bias":
        of_bias = FP32 if to.bits == 8 else to
        size = problem.nhead_bias, of_q[-1], max(problem.seqlen_k)
        bias = drawn(of_bias, *size, magnitude=1.0)
    elif problem.bias_type == "alibi":
        sequences = (problem.batch,) if problem.batched_alibi_slopes else ()
        slopes = rounded(generator.uniform(0.01, 0.5, (*sequences, problem.nhead_q)), FP32)
    starts_q, starts_k = (
        tuple(int(n) for n in np.cumsum([0, *lengths]))
        for lengths in (problem.seqlen_q, problem.seqlen_k)
    )
    appended = None
    if problem.seqlen_knew:
        heads = problem.batch, problem.seqlen_knew, problem.nhead_k
        angles = generator.uniform(0, 2 * np.pi, (positions(problem), problem.rotary_dim // 2))
        cos, sin = (rounded(of(angles), to) for of in (np.cos, np.sin))
        k_new, v_new = (drawn(to, *heads, hdim) for hdim in (problem.hdim_q, problem.hdim_v))
        appended = Appended(k_new, v_new, cos, sin)
    sink = rounded(generator.normal(size=problem.nhead_q), FP32) if problem.has_sink else None
    return Tensors(q, k, v, do, bias, slopes, starts_q, starts_k, appended, sink)


def positions(problem: AttentionProblem) -> int:
    """Return how many positions rows of Q and of K may be rotated by."""
    return (
        max(problem.seqlen_k) - problem.seqlen_knew + max(problem.seqlen_knew, problem.seqlen_q[0])
    )


@dataclass(frozen=True)
class Result:
    """A tensor that a kernel writes.

    Attributes:
        exact: the reference.
        limit: largest permitted error of each element, see qola_lab.reference.limits.
        compared: elements that a kernel must write. It leaves out sequences that are skipped,
            and gradients of sequences that have no Q or no K.
    """

    exact: F64
    limit: F64
    compared: NDArray[np.bool_]
