"""The tensors of a problem in memory, which programs allocate, fill and read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qola_base.formats import F64, FP32, Format, decoded, encoded
from qola_lab.problems import AttentionProblem, formats
from qola_lab.verify.tensors import Tensors, positions

#: Columns of K whose shares of dQ are summed up apart, at least.
_LEAST_SPLIT = 16
#: Pages that no sequence has, among the others.
_SPARE = 3
#: Zeros after the last entry of a list of pages. Batch prefill prefetches the entries of the next
#: tile of 128 rows (ROCm/rocm-libraries#6932 clamps it), so it reads up to two tiles from where a
#: short sequence begins. AITER's own tests append 128, which a short last sequence exceeds.
_BEHIND = 256

DESCALES = ("q_descale", "k_descale", "v_descale")
"""Factors of the inputs of assembly kernels for floats of 8 bits; here 1."""

FILLER = 208.0
"""Value between the rows of an input, and in rows of pages that belong to no sequence. Not NaN:
asynchronous kernels of CK load K beyond a padded head dimension and multiply it by zeros of Q."""


Filled = Literal["values", "updated", "zero", "nan"]


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory.

    Attributes:
        shape: as `Tensors` and `expected` have it.
        strides: elements from one to the next along each dimension.
        filled: contents before the kernel runs: values, which it may update or not, zeros or NaN.
            Between rows there is NaN, and FILLER between rows of values, so that a kernel that
            reads them gives a wrong result.
    """

    name: str
    format: Format
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    filled: Filled = "values"

    @property
    def elements(self) -> int:
        """Number of elements from the first to the last."""
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.strides, strict=True)
        return 1 + sum((count - 1) * stride for count, stride in steps)

    @property
    def _padding(self) -> int:
        return int(encoded(FILLER if self._has_values else np.nan, self.format))

    @property
    def _has_values(self) -> bool:
        return self.filled in ("values", "updated")

    def _view(self, raw: NDArray[Any]) -> NDArray[Any]:
        steps = [stride * raw.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(raw, self.shape, steps)

    def written(self, values: F64 | None = None) -> NDArray[Any]:
        """Return the contents of memory before a kernel runs, as unsigned integers."""
        raw = np.full(self.elements, self._padding, np.dtype(f"uint{self.format.bits}"))
        if self.elements and self.filled == "zero":
            self._view(raw)[...] = 0
        elif self.elements and self._has_values:
            assert values is not None
            assert values.shape == self.shape
            self._view(raw)[...] = encoded(values, self.format)
        return raw

    def read(self, raw: NDArray[Any]) -> F64:
        """Return the values that memory holds."""
        if not self.elements:
            return np.zeros(self.shape)
        return decoded(self._view(raw), self.format)

    def is_clean(self, raw: NDArray[Any]) -> bool:
        """Whether the elements between the rows are unchanged."""
        padding = np.ones(self.elements, np.bool_)
        if self.elements:
            self._view(padding)[...] = False
        return bool(np.all(raw[padding] == self._padding))


def buffers(problem: AttentionProblem, arch: str) -> dict[str, Buffer]:
    """Return the tensors of a problem, by the names that AITER's arguments have."""
    given, out = formats(problem.dtype, arch)
    layout, heads, shared = problem.layout, problem.nhead_q, problem.nhead_k
    q, v = problem.hdim_q, problem.hdim_v
    appends, backward = problem.seqlen_knew > 0, problem.direction == "bwd"
    # Sequences that rows are appended to lie apart from each other in every mode.
    group = problem.is_group_mode and not appends
    of_q, of_k = ((sum if group else max)(n) for n in (problem.seqlen_q, problem.seqlen_k))
    found: dict[str, Buffer] = {}

    def add(name: str, to: Format, length: int, count: int, hdim: int, filled: Filled) -> None:
        row = count * hdim + layout.row_padding
        shape: tuple[int, ...] = (length, count, hdim)
        strides: tuple[int, ...] = (row, hdim, 1)
        if layout.page_block_size and name in ("k", "v"):
            shape = (page_count(problem) * layout.page_block_size, count, hdim)
        elif not group:
            shape, strides = (problem.batch, *shape), (length * row, *strides)
            if layout.order == "bhsd":
                row = hdim + layout.row_padding
                strides = (count * length * row, row, length * row, 1)
        found[name] = Buffer(name, to, shape, strides, filled)

    def add_packed(name: str, to: Format, filled: Filled, *shape: int) -> None:
        strides = [1]
        for count in shape[:0:-1]:
            strides.insert(0, strides[0] * count)
        found[name] = Buffer(name, to, shape, tuple(strides), filled)

    rotates = problem.rope_type != "no"
    add("q", given, of_q, heads, q, "updated" if appends and rotates else "values")
    add("k", given, of_k, shared, q, "updated" if appends else "values")
    add("v", given, of_k, shared, v, "updated" if appends else "values")
    if appends:
        add("knew", given, problem.seqlen_knew, shared, q, "values")
        add("vnew", given, problem.seqlen_knew, shared, v, "values")
        if rotates:
            for name in ("rotary_cos", "rotary_sin"):
                half = problem.rotary_dim // 2
                add_packed(name, given, "values", positions(problem), half)
        return found
    add("o", out, of_q, heads, v, "values" if backward else "nan")
    rows = problem.shapes()["lse"]
    if backward or problem.return_lse:
        add_packed("lse", FP32, "values" if backward else "nan", *rows)
    if problem.direction == "fwd_splitkv":
        # Results of each split, which another kernel combines.
        add_packed("lse_acc", FP32, "nan", problem.num_splits, *rows)
        add_packed("o_acc", FP32, "nan", problem.num_splits, *rows, v)
    longest = max(problem.seqlen_k)
    if problem.bias_type == "bias":
        of_bias = FP32 if given.bits == 8 else given
        add_packed("bias", of_bias, "values", problem.nhead_bias, of_q, longest)
    if problem.bias_type == "alibi":
        sequences = (problem.batch,) if problem.batched_alibi_slopes else ()
        add_packed("alibi_slopes", FP32, "values", *sequences, heads)
    if problem.has_sink:
        add_packed("sink", FP32, "values", heads)
    if problem.use_asm and given.bits == 8:
        # One factor for each tensor: the default strides of later trees are 0.
        for name in DESCALES:
            add_packed(name, FP32, "values", 1)
    if backward:
        add("do", out, of_q, heads, v, "values")
        sums = problem.use_asm and not problem.is_v3_atomic_fp32
        # Kernels with 64 rows of K, and all kernels of gfx942, accumulate in it.
        add("dq", out, of_q, heads, q, "zero" if sums else "nan")
        add("dk", out, of_k, heads, q, "nan")
        add("dv", out, of_k, heads, v, "nan")
        add_packed("d", FP32, "nan", *rows)
        splits = max(1, -(-longest // _LEAST_SPLIT)) if problem.deterministic else 1
        if sums:
            # As AITER's own callers allocate it.
            padded = -(-max(problem.seqlen_q) // 16) * 16
            shape = (1, problem.batch, heads, padded, 192 if q == 192 else 128)
        else:
            shape = (splits, 1 if group else problem.batch, heads, of_q, q)
        add_packed("dq_acc", given if sums else FP32, "zero", *shape)
        if problem.has_dbias:
            add_packed("dbias", given, "nan", *rows, longest)
    return found


def tables(problem: AttentionProblem) -> dict[str, NDArray[np.int32]]:
    """Return where sequences begin, and which pages they have, by the names of arguments."""
    found = _page_tables(problem)
    if problem.seqlen_knew:
        found["seqlen_k_ptr"] = np.array(lengths_before(problem), np.int32)
    elif problem.is_group_mode:
        found["seqstart_q_ptr"] = np.cumsum([0, *problem.seqlen_q]).astype(np.int32)
        if "kv_indptr" not in found:
            found["seqstart_k_ptr"] = np.cumsum([0, *problem.seqlen_k]).astype(np.int32)
    return found


def filled(
    problem: AttentionProblem, given: Tensors, o: F64 | None = None, lse: F64 | None = None
) -> dict[str, F64]:
    """Return the values that buffers are filled with; a backward needs O and LSE."""
    names = ("q", "k", "v", "do", "bias", "alibi_slopes", "sink")
    values = {name: getattr(given, name) for name in names} | {"o": o, "lse": lse}
    if problem.use_asm:
        values |= dict.fromkeys(DESCALES, np.ones(1))
    if given.appended is not None:
        new = given.appended
        values |= {"knew": new.k, "vnew": new.v, "rotary_cos": new.cos, "rotary_sin": new.sin}
        for name, cache in (("k", given.k.copy()), ("v", given.v.copy())):
            for of, length in zip(cache, lengths_before(problem), strict=True):
                of[length:] = FILLER
            values[name] = laid_out(problem, cache)
    elif problem.layout.page_block_size:
        values |= {name: laid_out(problem, values[name]) for name in ("k", "v")}
    return {name: value for name, value in values.items() if value is not None}


def page_count(problem: AttentionProblem) -> int:
    """Return how many pages there are."""
    return sum(_counts(problem)) + _SPARE


def _page_tables(problem: AttentionProblem) -> dict[str, NDArray[np.int32]]:
    """Return which pages sequences have, by the names of arguments; nothing without pages."""
    if not problem.layout.page_block_size:
        return {}
    lists, size = _lists(problem), problem.layout.page_block_size
    if problem.direction == "batch_prefill":
        starts = np.cumsum([0, *map(len, lists)]).astype(np.int32)
        indices = np.concatenate([*lists, np.zeros(_BEHIND, np.int32)])
        found = {"kv_indptr": starts, "kv_page_indices": indices}
        if size > 1:
            last = np.array(problem.seqlen_k) - (np.array(_counts(problem)) - 1) * size
            found["kv_last_page_lens"] = last.astype(np.int32)
        return found
    # Entries that a kernel must not read name a page that does not exist.
    table = np.full((problem.batch, max(1, *_counts(problem))), page_count(problem), np.int32)
    for row, own in zip(table, lists, strict=True):
        row[: len(own)] = own
    return {"block_table_ptr": table.ravel()}


def page_sizes(problem: AttentionProblem) -> dict[str, int]:
    """Return the arguments with the size and number of pages."""
    size = problem.layout.page_block_size
    sizes = {"page_block_size": size} if size else {}
    if size and problem.direction == "batch_prefill":
        return {"num_total_pages": page_count(problem)} | (sizes if size > 1 else {})
    return sizes | ({"batch_stride_block_table": max(1, *_counts(problem))} if size else {})


def _counts(problem: AttentionProblem) -> list[int]:
    return [-(-length // problem.layout.page_block_size) for length in problem.seqlen_k]


def _lists(problem: AttentionProblem) -> list[NDArray[np.int32]]:
    """Return the pages of each sequence in its order: those of one lie anywhere."""
    order = np.random.default_rng([problem.layout.page_seed, 1]).permutation(page_count(problem))
    return np.split(order.astype(np.int32), np.cumsum(_counts(problem)))[:-1]


def rows_of_k(problem: AttentionProblem) -> NDArray[np.int64]:
    """Return the rows in memory that positions of K are in, sequence by sequence."""
    size = problem.layout.page_block_size
    if size:
        places = [own.astype(np.int64)[:, None] * size for own in _lists(problem)]
    else:
        size = max(problem.seqlen_k)
        places = [np.array([[n * size]]) for n in range(problem.batch)]
    found = [
        (begins + np.arange(size)).ravel()[:length]
        for begins, length in zip(places, problem.seqlen_k, strict=True)
    ]
    return np.concatenate(found)


def laid_out(problem: AttentionProblem, tensor: F64, others: float = FILLER) -> F64:
    """Return K or V as it lies in memory, with `others` in rows that belong to no sequence."""
    if tensor.ndim == 4:
        own = zip(tensor, problem.seqlen_k, strict=True)
        tensor = np.concatenate([of[:length] for of, length in own])
    size, heads = problem.layout.page_block_size, tensor.shape[-2:]
    rows = (page_count(problem) * size,) if size else (problem.batch, max(problem.seqlen_k))
    found = np.full((*rows, *heads), others)
    found.reshape(-1, *heads)[rows_of_k(problem)] = tensor
    return found


def lengths_before(problem: AttentionProblem) -> list[int]:
    """Return the rows that K and V of each sequence have before rows are appended."""
    return [length - problem.seqlen_knew for length in problem.seqlen_k]
