"""JAX functions for this package's libraries: attention on AMD GPUs, forward and backward.

`attention` has the interface of jax.nn.dot_product_attention, and works under jit, grad, vmap and
shard_map. It calls the FFI targets `<package>_mha_fwd` and `<package>_mha_bwd` of platform ROCM.
Tracing loads the libraries and finds the kernels, so it needs a GPU, too.
"""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from . import _c

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.custom_batching import custom_vmap
    from jax.custom_derivatives import SymbolicZero
except ImportError as error:
    raise ImportError(f"{__name__} needs JAX 0.7 or later: {error}") from error

__all__ = ["attention"]

Array = Any

_SPACE = (__package__ or "qola").replace(".", "_")
_ENTRIES = ("mha_fwd", "mha_bwd")
_DTYPES = {"float16": _c.FP16, "bfloat16": _c.BF16, "float32": _c.FP32}
#: Stands for an address in a query, which only tests whether there is one.
_SOME_ADDRESS = 64


def attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Array | None = None,
    key_value_seq_lengths: Array | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    dropout_rate: float = 0.0,
    dropout_key: Array | None = None,
    deterministic: bool = False,
    return_residual: bool = False,
) -> Any:
    """Compute attention like jax.nn.dot_product_attention.

    Args:
        query: [batch, seqlen_q, nhead_q, hdim_q], or without batch.
        key: [batch, seqlen_k, nhead_k, hdim_q]; nhead_k is a divisor of nhead_q.
        value: [batch, seqlen_k, nhead_k, hdim_v]; hdim_v may differ if the library has kernels.
        bias: added to the scores, in query's dtype; broadcast to [batch, nhead_q, seqlen_q,
            seqlen_k]. It has a gradient.
        mask: booleans, True for visible keys, broadcast like bias. It needs kernels with a bias.
            A row of query that sees no key has no defined result.
        scale: factor of the scores; None: 1 / sqrt(hdim_q).
        is_causal: causal mask from the top left.
        query_seq_lengths: int32 [batch], rows of query per sequence. Results of the others are 0.
        key_value_seq_lengths: int32 [batch], at least 1: rows of key and value per sequence.
        local_window_size: visible keys before and after the diagonal from the top left, or one
            number for both.
        dropout_rate: dropout probability.
        dropout_key: a key of jax.random for the dropout.
        deterministic: compute bitwise reproducible gradients.
        return_residual: also return the log-sum-exp of the scores, float32 [batch, seqlen_q,
            nhead_q]. It has no gradient.

    Raises:
        RuntimeError: at trace time: the library has no kernel for the problem; lists its kernels.
        ValueError: shapes, dtypes or arguments are inconsistent.
    """
    if scale == 0:
        raise ValueError("scale: 0, expected another number, or None for 1 / sqrt(dim)")
    if bool(dropout_rate) != (dropout_key is not None):
        raise ValueError("dropout_rate and dropout_key: expected both, or none of them")
    arrays = {"query": query, "key": key, "value": value, "bias": bias, "mask": mask}
    without_batch = jnp.ndim(query) == 3
    arrays = {n: _with_4_dimensions(n, a) for n, a in arrays.items() if a is not None}
    q, k, v = arrays["query"], arrays["key"], arrays["value"]
    lengths = {
        "query_seq_lengths": query_seq_lengths,
        "key_value_seq_lengths": key_value_seq_lengths,
    }
    lengths = {n: None if one is None else jnp.asarray(one) for n, one in lengths.items()}
    _check(arrays, lengths)
    whole = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    lengths_q, lengths_k = lengths.values()
    added = _bias(arrays, lengths_k, q.dtype, whole)
    if added is not None:
        # Kernels have either a bias or lengths. Rows of no sequence are computed, and hidden below.
        lengths_k = None
    numbers = _Numbers(
        *_mask(is_causal, local_window_size),
        scale=float(scale or 0.0),
        dropout=float(dropout_rate),
        deterministic=bool(deterministic),
        group=added is None and (lengths_q is not None or lengths_k is not None),
    )
    rng = None if dropout_key is None else _seed_and_offset(dropout_key)
    tensors = _varying_alike(_Tensors(q, k, v, added, lengths_q, lengths_k, rng))
    out, lse = _attention(numbers, bool(return_residual), tensors)
    out = out[0] if without_batch else out
    if not return_residual:
        return out
    lse = jax.lax.stop_gradient(lse).swapaxes(1, 2)
    return out, lse[0] if without_batch else lse


class _Numbers(NamedTuple):
    """The part of a problem that is known without its arrays."""

    mask: int
    window_left: int
    window_right: int
    scale: float
    dropout: float
    deterministic: bool
    group: bool


class _Tensors(NamedTuple):
    """The arrays of a problem.

    Attributes:
        q, k, v: [batch, seqlen, nhead, hdim].
        bias: [batch or 1, nhead_q or 1, seqlen_q, seqlen_k].
        lengths_q, lengths_k: int32 [batch].
        rng: uint32 [2, 2], seed and offset of the dropout in words.
    """

    q: Array
    k: Array
    v: Array
    bias: Array | None
    lengths_q: Array | None
    lengths_k: Array | None
    rng: Array | None


def _varying_alike(arrays: Any, like: Any = ()) -> Any:
    """Cast arrays to vary over the same axes of shard_map, which FFI calls require.

    The gradient of an array that was the same on all devices is thus summed up over them.

    Args:
        arrays: a tree of arrays.
        like: a tree of further arrays whose axes count.
    """
    axes: set[Any] = set().union(*map(_axes_of, jax.tree.leaves((arrays, like))))

    def cast(array: Array) -> Array:
        missing = tuple(axes - _axes_of(array))
        if not missing:
            return array
        if hasattr(jax.lax, "pcast"):
            return jax.lax.pcast(array, missing, to="varying")
        return jax.lax.pvary(array, missing)

    return jax.tree.map(cast, arrays)


def _axes_of(array: Array) -> frozenset[Any]:
    """Return the axes of shard_map over which an array varies; none without its check_vma."""
    kind = jax.typeof(array)
    # The field of JAX 0.10.
    manual = getattr(kind, "manual_axis_type", None)
    return frozenset(kind.vma if manual is None else manual.varying)


def _with_4_dimensions(name: str, array: Array) -> Array:
    array = jnp.asarray(array)
    if array.ndim not in (3, 4):
        raise ValueError(f"{name} has {array.ndim} dimensions, expected 4, or 3 without batch")
    return array if array.ndim == 4 else array[None]


def _check(arrays: dict[str, Array], lengths: dict[str, Array | None]) -> None:
    """Check dtypes and shapes of arrays; the C functions check the numbers."""
    q, k, v = arrays["query"], arrays["key"], arrays["value"]
    if q.dtype.name not in _DTYPES:
        raise ValueError(f"query is {q.dtype}, expected one of {', '.join(_DTYPES)}")
    wanted = {
        "key": (q.shape[0], *k.shape[1:3], q.shape[3]),
        "value": (*k.shape[:3], v.shape[3]),
    }
    for name, shape in wanted.items():
        array = arrays[name]
        if array.dtype != q.dtype:
            raise ValueError(f"{name} is {array.dtype}, expected {q.dtype}, as query")
        if array.shape != shape:
            raise ValueError(f"{name} is {array.shape}, expected {shape}")
    if q.shape[2] % k.shape[2]:
        raise ValueError(f"key has {k.shape[2]} heads, expected a divisor of {q.shape[2]}")
    whole = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    for name in arrays.keys() & {"bias", "mask"}:
        if any(n not in (1, m) for n, m in zip(arrays[name].shape, whole, strict=True)):
            raise ValueError(f"{name} is {arrays[name].shape}, expected {whole}, or 1 in places")
    if "mask" in arrays and arrays["mask"].dtype != bool:
        raise ValueError(f"mask is {arrays['mask'].dtype}, expected bool; bias is added to scores")
    for name, one in lengths.items():
        if one is not None and (one.shape != q.shape[:1] or one.dtype != jnp.int32):
            raise ValueError(f"{name} is {one.dtype}{one.shape}, expected int32{q.shape[:1]}")


def _mask(is_causal: bool, window: int | tuple[int, int] | None) -> tuple[int, int, int]:
    """Return mask, window_left and window_right of the C functions."""
    if window is None:
        return (_c.MASK_CAUSAL_TOP_LEFT if is_causal else _c.MASK_NONE), 0, 0
    left, right = (window, window) if isinstance(window, int) else window
    if min(left, right) < 0:
        raise ValueError(f"local_window_size: {window}, expected numbers of at least 0")
    return _c.MASK_WINDOW_TOP_LEFT, left, 0 if is_causal else right


def _bias(
    arrays: dict[str, Array], lengths_k: Array | None, dtype: Any, whole: tuple[int, ...]
) -> Array | None:
    """Return bias, mask and, with one of them, the lengths of keys as one bias."""
    if not arrays.keys() & {"bias", "mask"}:
        return None
    seen = [arrays["mask"]] if "mask" in arrays else []
    if lengths_k is not None:
        seen.append(jnp.arange(whole[3]) < lengths_k[:, None, None, None])
    bias = jnp.asarray(arrays.get("bias", jnp.zeros((1, 1, 1, 1))), dtype)
    for one in seen:
        bias = jnp.where(one, bias, -jnp.inf)
    # Kernels need all rows; batch and head may be broadcast.
    return jnp.broadcast_to(bias, (*bias.shape[:2], *whole[2:]))


def _seed_and_offset(key: Array) -> Array:
    bits = jax.random.bits(key, (2, 2), jnp.uint32)
    # Below 2^62 each: the low word comes first.
    return bits & jnp.array([0xFFFFFFFF, 0x3FFFFFFF], jnp.uint32)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _differentiable(
    numbers: _Numbers, with_lse: bool, tensors: _Tensors
) -> tuple[Array, Array | None]:
    """Return results [batch, seqlen_q, nhead_q, hdim_v] and LSE [batch, nhead_q, seqlen_q]."""
    out, lse = _batched(partial(_forward, numbers, with_lse))(tensors)
    return _hide(out, tensors.lengths_q, 1), _hide(lse, tensors.lengths_q, 2)


def _keep(numbers: _Numbers, with_lse: bool, tensors: _Tensors) -> Any:
    # Each leaf is a CustomVJPPrimal.
    values = _Tensors(*(None if one is None else one.value for one in tensors))
    out, lse = _differentiable(numbers, True, values)
    bias_grad = tensors.bias is not None and tensors.bias.perturbed
    # A static truth value among the kept arrays: a tuple is one, and None is the other.
    return (out, lse if with_lse else None), (values, out, lse, () if bias_grad else None)


def _gradients(numbers: _Numbers, _with_lse: bool, kept: Any, seen: Any) -> tuple[_Tensors]:
    tensors, out, lse, bias_grad = kept
    d_out = seen[0]
    if isinstance(d_out, SymbolicZero):
        d_out = jnp.zeros(d_out.shape, d_out.dtype)
    d_out = _hide(d_out, tensors.lengths_q, 1)
    if not numbers.group and tensors.lengths_q is not None:
        # The backward computes rows of no sequence, too. With this LSE their probabilities are 0:
        # with that of hidden rows they could be infinite, and the gradients of valid keys NaN.
        lse = _hide(lse, tensors.lengths_q, 2, jnp.inf)
    backward = _batched(partial(_backward, numbers, bias_grad is not None))
    dq, dk, dv, d_bias = backward(tensors, out, lse, d_out)
    nhead_k = tensors.k.shape[2]
    if d_bias is not None:
        places = [n for n in (0, 1) if tensors.bias.shape[n] != d_bias.shape[n]]
        d_bias = d_bias.astype(jnp.float32).sum(places, keepdims=True).astype(tensors.bias.dtype)
    elif tensors.bias is not None:
        d_bias = _varying_alike(jnp.zeros_like(tensors.bias), tensors.q)
    gradients = _Tensors(
        _hide(dq, tensors.lengths_q, 1),
        _hide(_summed(dk, nhead_k), tensors.lengths_k, 1),
        _hide(_summed(dv, nhead_k), tensors.lengths_k, 1),
        d_bias,
        None,
        None,
        None,
    )
    return (gradients,)


_differentiable.defvjp(_keep, _gradients, symbolic_zeros=True)
_attention = jax.jit(_differentiable, static_argnums=(0, 1))


def _hide(array: Array | None, lengths: Array | None, axis: int, value: float = 0) -> Array | None:
    """Replace rows that belong to no sequence by a value: kernels do not write them."""
    if array is None or lengths is None:
        return array
    rows = jax.lax.broadcasted_iota(jnp.int32, array.shape, axis)
    return jnp.where(rows < lengths.reshape(-1, *[1] * (array.ndim - 1)), array, value)


def _summed(gradient: Array, heads: int) -> Array:
    """Sum up the gradients of the heads of Q that share one head of K."""
    batch, rows, nhead_q, hdim = gradient.shape
    if nhead_q == heads:
        return gradient
    parts = gradient.astype(jnp.float32).reshape(batch, rows, heads, nhead_q // heads, hdim)
    return parts.sum(3).astype(gradient.dtype)


def _batched(function: Any) -> Any:
    """Return a function of tensors and further arrays for which vmap extends the batch.

    With dropout, vmap calls the function for each of its elements: a call has one seed.
    """
    call = custom_vmap(function)

    def fold(size: int, batched: Any, *given: Any) -> Any:
        arrays, shape = jax.tree.flatten(given)
        # An unmapped bias that is the same for the whole batch remains so.
        tensors, marks = given[0], batched[0]
        shared = tensors.bias is not None and not marks.bias and tensors.bias.shape[0] == 1
        mapped = [
            one if mark else jnp.broadcast_to(one, (size, *one.shape))
            for one, mark in zip(arrays, jax.tree.leaves(batched), strict=True)
        ]
        given = jax.tree.unflatten(shape, mapped)
        if tensors.rng is not None:
            found = jax.lax.map(lambda one: call(*one), given)
        else:
            batch = given[0].q.shape[1]
            folded = [_fold_batch(one, batch) for one in mapped]
            first, *others = jax.tree.unflatten(shape, folded)
            if shared:
                first = first._replace(bias=tensors.bias)
            found = call(first, *others)
            found = jax.tree.map(lambda one: one.reshape(size, batch, *one.shape[1:]), found)
        return found, jax.tree.map(lambda _: True, found)

    call.def_vmap(fold)
    return call


def _fold_batch(array: Array, batch: int) -> Array:
    """Join the first two dimensions; only a bias has another batch than `batch`, which is 1."""
    array = jnp.broadcast_to(array, (array.shape[0], batch, *array.shape[2:]))
    return array.reshape(-1, *array.shape[2:])


def _forward(numbers: _Numbers, with_lse: bool, tensors: _Tensors) -> tuple[Array, Array | None]:
    batch, seqlen_q, nhead_q, _ = tensors.q.shape

    def call(stores_lse: bool) -> list[Array]:
        call = _Call("mha_fwd", numbers, tensors)
        shape = (batch, seqlen_q, nhead_q, tensors.v.shape[3])
        call.rows("o", call.result("o", shape, tensors.q.dtype))
        if stores_lse:
            call.lse(call.result("lse", call.lse_shape, jnp.float32))
        return call.launch()

    try:
        out, *lse = call(with_lse)
    except _c.NoKernelError:
        if with_lse:
            raise
        # Libraries for training only have kernels that store LSE.
        out, *_ = call(True)
    if not with_lse:
        return out, None
    # [nhead_q, batch * seqlen_q] with lengths.
    return out, lse[0] if lse[0].ndim == 3 else lse[0].reshape(-1, batch, seqlen_q).swapaxes(0, 1)


def _backward(
    numbers: _Numbers, bias_grad: bool, tensors: _Tensors, out: Array, lse: Array, d_out: Array
) -> tuple[Array, Array, Array, Array | None]:
    """Return gradients of Q, K and V, these with the heads of Q, and of the whole bias."""
    batch, seqlen_q, nhead_q, _ = tensors.q.shape

    def call(stores_d_bias: bool) -> list[Array]:
        call = _Call("mha_bwd", numbers, tensors)
        for name, array in (("o", out), ("d_o", d_out)):
            call.argument(name, array)
            call.rows(name, array)
        found = lse.swapaxes(0, 1).reshape(call.lse_shape) if numbers.group else lse
        call.argument("lse", found)
        call.lse(found)
        for name, like in (("dq", tensors.q), ("dk", tensors.k), ("dv", tensors.v)):
            shape = (*like.shape[:2], nhead_q, like.shape[3])
            call.rows(name, call.result(name, shape, like.dtype))
        if stores_d_bias:
            whole = (batch, nhead_q, seqlen_q, tensors.k.shape[1])
            call.heads("d_bias", call.result("d_bias", whole, tensors.q.dtype))
        return call.launch()

    try:
        dq, dk, dv, *d_bias = call(bias_grad)
    except _c.NoKernelError:
        if bias_grad or tensors.bias is None:
            raise
        # The library may only have kernels that store the gradient of the bias.
        dq, dk, dv, *_ = call(True)
    return dq, dk, dv, d_bias[0] if bias_grad else None


class _Call:
    """A call of a C function: the problem, and its arguments and results by field."""

    def __init__(self, entry: str, numbers: _Numbers, tensors: _Tensors) -> None:
        q, k, v = tensors.q, tensors.k, tensors.v
        batch, seqlen_q, nhead_q, hdim_q = q.shape
        self._entry = entry
        self._arguments: list[tuple[int, Array]] = []
        self._results: list[tuple[int, jax.ShapeDtypeStruct]] = []
        self._group = numbers.group
        self.args = _c.Arguments(
            dtype=_DTYPES[q.dtype.name],
            mask=numbers.mask,
            group=int(numbers.group),
            deterministic=int(numbers.deterministic),
            batch=batch,
            nhead_q=nhead_q,
            nhead_k=k.shape[2],
            seqlen_q=seqlen_q,
            seqlen_k=k.shape[1],
            hdim_q=hdim_q,
            hdim_v=v.shape[3],
            window_left=numbers.window_left,
            window_right=numbers.window_right,
            scale=numbers.scale,
            dropout=numbers.dropout,
        )
        for name, array in (("q", q), ("k", k), ("v", v)):
            self.argument(name, array)
            self.rows(name, array)
        self.lse_shape: tuple[int, ...] = (batch, nhead_q, seqlen_q)
        if numbers.group:
            self._sequences(tensors)
        if tensors.bias is not None:
            self.args.bias_type = _c.BIAS_ELEMENTWISE
            self.argument("bias", tensors.bias)
            self.heads("bias", tensors.bias)
        if tensors.rng is not None:
            self.argument("drop_seed_ptr", tensors.rng[0])
            self.argument("drop_offset_ptr", tensors.rng[1])

    def _sequences(self, tensors: _Tensors) -> None:
        """Set starts and lengths: each sequence has the rows of its batch element as padding."""
        batch, seqlen_q, nhead_q, _ = tensors.q.shape
        lengths = {"q": tensors.lengths_q, "k": tensors.lengths_k}
        for name, rows in (("q", seqlen_q), ("k", tensors.k.shape[1])):
            setattr(self.args, f"seqlen_{name}", batch * rows)
            setattr(self.args, f"max_seqlen_{name}", rows)
            starts = jnp.arange(batch + 1, dtype=jnp.int32) * rows
            self.argument(f"seqstart_{name}", starts)
            one = lengths[name]
            whole = jnp.full((batch,), rows, jnp.int32)
            self.argument(f"seqlens_{name}", whole if one is None else one)
        self.lse_shape = (nhead_q, batch * seqlen_q)

    def argument(self, name: str, array: Array) -> None:
        """Pass an array as the pointer or the tensor of a field."""
        self._arguments.append((getattr(_c.Arguments, name).offset, array))

    def result(self, name: str, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        """Return the shape of a result, whose address becomes that of a field."""
        found = jax.ShapeDtypeStruct(shape, dtype)
        self._results.append((getattr(_c.Arguments, name).offset, found))
        return found

    def rows(self, name: str, array: Any) -> None:
        """Set the strides of [batch, row, head, dim]."""
        _, rows, heads, dim = array.shape
        to = getattr(self.args, name)
        to.stride_row, to.stride_head = heads * dim, dim
        to.stride_batch = 0 if self._group else rows * heads * dim

    def heads(self, name: str, array: Any) -> None:
        """Set the strides of [batch or 1, head or 1, row, dim]."""
        batch, heads, rows, dim = array.shape
        to = getattr(self.args, name)
        to.stride_row = dim
        to.stride_head = 0 if heads == 1 else rows * dim
        to.stride_batch = 0 if batch == 1 else heads * rows * dim

    def lse(self, array: Any) -> None:
        """Set the strides of LSE."""
        self.args.lse.stride_head = array.shape[-1]
        self.args.lse.stride_batch = 0 if self._group else array.shape[1] * array.shape[2]

    def launch(self) -> list[Array]:
        """Check that a kernel serves the problem, and return the results of its launch.

        Raises:
            NoKernelError: the library has no kernel for the problem.
            RuntimeError: the library refused the problem.
        """
        query = _c.Arguments.from_buffer_copy(self.args)
        for offset, _ in (*self._arguments, *self._results):
            ctypes.c_void_p.from_buffer(query, offset).value = _SOME_ADDRESS
        size = _c.entry(self._entry).find(query)
        wanted = len(self._results)
        if size:
            self.args.workspace_size = size
            self.result("workspace", (size,), jnp.uint8)
        places = [offset for offset, _ in (*self._arguments, *self._results)]
        call = jax.ffi.ffi_call(
            f"{_SPACE}_{self._entry}", tuple(shape for _, shape in self._results)
        )
        arrays = _varying_alike([array for _, array in self._arguments])
        results = call(
            *arrays,
            problem=np.frombuffer(bytes(self.args), np.int64),
            places=np.array(places, np.int64),
        )
        # JAX 0.7 marks results as varying itself, JAX 0.10 does not.
        return list(_varying_alike(results[:wanted], arrays))


def _register(handlers: Path, platform: str) -> None:
    """Register the FFI targets of this package, and name its libraries to the handlers."""
    library = ctypes.CDLL(str(handlers))
    set_library = library.qola_jax_set_library
    set_library.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p]
    for direction, name in enumerate(_ENTRIES):
        path, prefix = _c.library_of(name)
        if path is None:
            continue
        set_library(direction, str(path).encode(), f"{prefix}{name}".encode())
        target = jax.ffi.pycapsule(getattr(library, f"qola_jax_{name}"))
        jax.ffi.register_ffi_target(f"{_SPACE}_{name}", target, platform=platform)


_register(Path(__file__).with_name("qola_jax.so"), "ROCM")
