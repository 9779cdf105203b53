"""Random tensors of a problem, their layout in memory, and the arguments that describe them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qola_base.formats import BF16, F64, FP16, FP32, Format, Rounding, decoded, encoded, rounded
from qola_base.json_types import Scalar
from qola_lab.problems import STANDARD_NORMAL, AttentionProblem, TestData, formats
from qola_lab.problems.problem import BIAS_TYPES, MASK_TYPES, ROPE_TYPES
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


#: Parameters that became members with other names in later trees.
_NEWER = {
    "q_dtype_str": "data_type",
    "use_ext_asm": "use_asm_v3",
    "deterministic": "is_deterministic",
    "is_v3_atomic_fp32": "v3_atomic_fp32",
}
#: Dimensions of a tensor's rows, heads, sequences and splits, if there is an argument for its
#: stride: LSE has none for its rows.
_DIMENSIONS: Mapping[str, Mapping[str, int]] = {
    **{
        name: {"": -3, "nhead_": -2, "batch_": 0}
        for name in ("q", "k", "v", "o", "do", "dq", "dk", "dv", "knew", "vnew")
    },
    "lse": {"nhead_": -2, "batch_": 0},
    "bias": {"": 1, "nhead_": 0},
    "dbias": {"": -2, "nhead_": -3, "batch_": 0},
    "lse_acc": {"nhead_": -2, "batch_": 1, "split_": 0},
    "o_acc": {"": -2, "nhead_": -3, "batch_": 1, "split_": 0},
    "dq_acc": {"": 3, "nhead_": 2, "batch_": 1, "split_": 0},
}


def sizes(problem: AttentionProblem) -> dict[str, int]:
    """Return the sizes of a problem; of group mode, seqlen_q and seqlen_k are sums."""
    total = sum if problem.is_group_mode else max
    return {
        "batch": problem.batch,
        "nhead_q": problem.nhead_q,
        "nhead_k": problem.nhead_k,
        "hdim_q": problem.hdim_q,
        "hdim_v": problem.hdim_v,
        "seqlen_q": total(problem.seqlen_q),
        "seqlen_k": total(problem.seqlen_k),
        "max_seqlen_q": max(problem.seqlen_q),
        "max_seqlen_k": max(problem.seqlen_k),
        "num_splits": problem.num_splits,
    }


def dispatch_arguments(problem: AttentionProblem) -> dict[str, int | None]:
    """Return the members of `a`, the arguments, that conditions of a dispatch read."""
    pointers = ("cu_seqlen_q_ptr", "cu_seqlen_k_ptr", "seqlen_k_ptr")
    paged = problem.layout.page_block_size or None
    windows = {name: getattr(problem, name) for name in ("window_size_left", "window_size_right")}
    return {**sizes(problem), **windows, "block_table_ptr": paged, **dict.fromkeys(pointers)}


def entry_values(
    problem: AttentionProblem, arch: str, parameters: Collection[str]
) -> dict[str, Scalar]:
    """Return the values of a problem, but for addresses.

    Parameters are the entry point's behind its arguments, as in plan.json.
    """
    values: dict[str, Scalar] = {**sizes(problem), **page_sizes(problem)}
    values |= _strides(problem, buffers(problem, arch))
    if problem.direction != "fwd_splitkv":
        del values["num_splits"]
    if problem.direction != "bwd":
        del values["max_seqlen_k"]
    if problem.seqlen_knew:
        del values["max_seqlen_q"], values["seqlen_k"]
        return values | {
            "q_dtype_str": problem.dtype,
            "rope_type": [*ROPE_TYPES].index(problem.rope_type),
            "seqlen_q": problem.seqlen_q[0],
            "seqlen_knew": problem.seqlen_knew,
            "rotary_dim": problem.rotary_dim,
            "has_mask": problem.mask_type != "no",
        }
    values |= {
        "is_group_mode": problem.is_group_mode,
        "mask_type": [*MASK_TYPES].index(problem.mask_type),
        "bias_type": [*BIAS_TYPES].index(problem.bias_type),
        "window_size_left": problem.window_size_left,
        "window_size_right": problem.window_size_right,
    }
    if problem.has_sink:
        values["has_sink"] = True
    renamed: dict[str, Scalar] = {"q_dtype_str": problem.dtype}
    # Split-KV and paged prefill have neither dropout nor assembly kernels.
    if problem.direction not in ("fwd_splitkv", "pagedkv_prefill"):
        dropped = problem.dropout
        renamed["use_ext_asm"] = problem.use_asm
        values["p_drop"] = dropped.probability if dropped else 0.0
        values["drop_seed"] = dropped.seed if dropped else 0
        values["drop_offset"] = dropped.offset if dropped else 0
        if problem.direction == "bwd":
            values["p_undrop"] = dropped.undropped if dropped else 1.0
        else:
            values["s_randval"] = False
    if problem.use_asm or problem.direction == "bwd":
        values["how_v3_bf16_cvt"] = problem.how_v3_bf16_cvt
    if problem.direction == "bwd":
        renamed["deterministic"] = problem.deterministic
        renamed["is_v3_atomic_fp32"] = problem.is_v3_atomic_fp32
        values |= {"scale": problem.softmax_scale, "has_dbias": problem.has_dbias}
        values["is_store_randval"] = False
    else:
        values["scale_s"] = problem.softmax_scale
        if not takes_descales(parameters):
            values |= {"scale_p": 1.0, "scale_o": 1.0}
        values |= {"logits_soft_cap": problem.logits_soft_cap, "has_lse": problem.return_lse}
    if problem.direction == "fwd":
        values["min_seqlen_q"] = problem.min_seqlen_q
    return values | {n if n in parameters else _NEWER[n]: v for n, v in renamed.items()}


def takes_descales(parameters: Collection[str]) -> bool:
    """Whether an entry point takes factors of its inputs, as trees of 2026 do.

    Those of earlier trees take factors of static quantization, for P and O.
    """
    return "q_dtype_str" not in parameters


def _strides(problem: AttentionProblem, of: Mapping[str, Buffer]) -> dict[str, int]:
    """Return stride_q, nhead_stride_q, batch_stride_q and those of other tensors."""
    found: dict[str, int] = {}
    for name, buffer in of.items():
        # A backward has other names for the strides of LSE, which are those of D, too.
        word = "lsed" if (name, problem.direction) == ("lse", "bwd") else name
        strides = {
            f"{kind}stride_{word}": buffer.strides[at]
            for kind, at in _DIMENSIONS.get(name, {}).items()
        }
        batch = f"batch_stride_{word}"
        if name in ("k", "v") and problem.layout.page_block_size:
            strides[batch] = problem.layout.page_block_size * buffer.strides[0]
        elif name == "bias":
            # The same for each sequence, and, with a single head, for each head.
            strides[batch] = 0
            if buffer.shape[0] == 1:
                strides["nhead_stride_bias"] = 0
        elif name == "alibi_slopes":
            strides["stride_bias"] = buffer.shape[1] if problem.batched_alibi_slopes else 0
        elif name == "dq_acc" and not problem.is_v3_atomic_fp32:
            pass  # Kernels that accumulate in 16 bits find each sequence by it.
        elif batch in strides and problem.is_group_mode and not problem.seqlen_knew:
            strides[batch] = 0
        found |= strides
    return found


def address_names(name: str) -> str:
    """Return the argument that holds a buffer's address."""
    return "bias_ptr" if name == "alibi_slopes" else f"{name}_ptr"
