"""Compare JAX functions of a wheel on the emulator with jax.nn: results and gradients."""

from __future__ import annotations

import inspect
import math
from functools import partial
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from runtime.tests.jax.on_emulator import Device, assert_close, compare, exact, gradients, random

pytest_plugins = ["runtime.tests.jax.fixtures"]

D = 32


def qkv(heads_q: int, heads_k: int, rows_q: int, rows_k: int, batch: int = 2) -> list[jax.Array]:
    shapes = ((rows_q, heads_q), (rows_k, heads_k), (rows_k, heads_k))
    return [random(batch, *shape, D, seed=n) for n, shape in enumerate(shapes)]


def test_attention_and_gradients_equal_those_of_jax(ops: Any, device: Device) -> None:
    """Prevents: wrong strides, scale or heads; dK and dV of only one query head."""
    compare(ops, qkv(4, 2, 64, 96), scale=0.3)
    assert any("bwd" in launch.kernel.lower() for launch in device.launches)


def test_a_bias_and_its_gradient(ops: Any, device: Device) -> None:
    """Prevents: a bias of another head or sequence, or a gradient that is not summed up."""
    arrays = qkv(2, 2, 32, 64)
    key = jax.random.key(1)
    # The library's bias kernels need dropout. At this rate, none of the 2^32 numbers is dropped.
    dropout = {"dropout_rate": 1e-9, "dropout_key": key}
    for shape in ((2, 2, 32, 64), (1, 2, 1, 64)):
        arguments = [*arrays, random(*shape)]
        assert_close(ops.attention(*arguments, **dropout), exact(*arguments))
        assert_close(
            gradients(partial(ops.attention, **dropout), arguments),
            gradients(exact, arguments),
            1e-2,
        )
    mask = jnp.tril(jnp.ones((32, 64), bool), 3)[None, None]
    assert_close(ops.attention(*arrays, mask=mask, **dropout), exact(*arrays, mask=mask))


def test_masks_begin_top_left(ops: Any, device: Device) -> None:
    """Prevents: another diagonal than JAX's, or an ignored window."""
    arrays = qkv(2, 1, 64, 96)
    assert_close(ops.attention(*arrays, is_causal=True), exact(*arrays, is_causal=True))
    for window, causal in (((8, 3), False), (5, False), ((8, 3), True)):
        options = {"local_window_size": window, "is_causal": causal}
        assert_close(ops.attention(*arrays, **options), exact(*arrays, **options))
    out, lse = ops.attention(*arrays, is_causal=True, return_residual=True)
    expected, residual = exact(*arrays, is_causal=True, return_residual=True)
    assert_close((out, lse), (expected, residual))


def test_lengths(ops: Any, device: Device) -> None:
    """Prevents: keys of another sequence, or nonzero output for padding."""
    lengths = {
        "query_seq_lengths": jnp.array([40, 64], jnp.int32),
        "key_value_seq_lengths": jnp.array([96, 33], jnp.int32),
    }
    arrays = qkv(2, 1, 64, 96)
    compare(ops, arrays, is_causal=True, **lengths)
    # With this window, each query row has a key.
    compare(ops, arrays, local_window_size=(31, 3), **lengths)
    only_k = {"key_value_seq_lengths": lengths["key_value_seq_lengths"]}
    assert_close(
        ops.attention(*arrays, is_causal=True, **only_k), exact(*arrays, is_causal=True, **only_k)
    )
    out, lse = ops.attention(*arrays, is_causal=True, return_residual=True, **lengths)
    assert (out.shape, lse.shape) == ((2, 64, 2, D), (2, 64, 2))
    expected = exact(*arrays, is_causal=True, return_residual=True, **lengths)[1]
    assert_close(lse[0, :40], expected[0, :40])
    assert_close(lse[1], expected[1])


def test_vmap_extends_the_batch(ops: Any, device: Device) -> None:
    """Prevents: a launch for each element, or an element that reads another element's data."""
    q, k, v = (random(3, 2, 32, 2, D, seed=n) for n in range(3))
    assert_close(jax.vmap(ops.attention)(q, k, v), jax.vmap(exact)(q, k, v))
    assert len(device.launches) == 1
    # Without a batch dimension, and with a shared key and value.
    actual = jax.vmap(ops.attention, (0, None, None))(q[0], k[0, 0], v[0, 0])
    assert_close(actual, jax.vmap(exact, (0, None, None))(q[0], k[0, 0], v[0, 0]))
    # The gradient of each element, and of a sum over elements.
    per_element = jax.vmap(lambda *arguments: gradients(ops.attention, list(arguments)))
    assert_close(
        per_element(q, k, v), jax.vmap(lambda *g: gradients(exact, list(g)))(q, k, v), 1e-2
    )
    mapped = [partial(jax.vmap(function, (0, None, 0))) for function in (ops.attention, exact)]
    arguments = [q, k[0], v]
    assert_close(gradients(mapped[0], arguments), gradients(mapped[1], arguments), 2e-2)


def test_vmap_of_lengths(ops: Any, device: Device) -> None:
    """Prevents: an element gets the lengths of another element."""
    q, k, v = (random(2, 2, 32, 2, D, seed=n) for n in range(3))
    lengths = jnp.array([[7, 32], [19, 1]], jnp.int32)

    def call(function: Any, *arguments: jax.Array) -> Any:
        return function(*arguments[:3], is_causal=True, key_value_seq_lengths=arguments[3])

    assert_close(
        jax.vmap(partial(call, ops.attention))(q, k, v, lengths),
        jax.vmap(partial(call, exact))(q, k, v, lengths),
    )


def test_dropout(ops: Any, device: Device) -> None:
    """Prevents: the key has no effect, or gradients use another dropout mask than the result."""
    q, k, v = qkv(2, 2, 32, D)
    bias = jnp.zeros((1, 1, 32, 32), jnp.float16)
    # With the identity as value, the results are the probabilities.
    identity = jnp.broadcast_to(jnp.eye(D, dtype=jnp.float16)[:, None], v.shape)

    def attention(key: Any, value: jax.Array) -> Any:
        return ops.attention(q, k, value, bias, dropout_rate=0.5, dropout_key=key)

    keys = jax.random.split(jax.random.key(3), 2)
    first, second = (np.asarray(attention(key, identity), float) for key in keys)
    again = np.asarray(attention(keys[0], identity), float)
    assert (first == again).all()
    assert (first != second).any()
    whole = np.asarray(exact(q, k, identity), float)
    kept = first != 0
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_allclose(first[kept], 2 * whole[kept], 1e-2, 4e-3)
    # d(sum)/dV of a key is the sum of its kept probabilities over the query rows.
    dv = jax.grad(lambda value: attention(keys[0], value).astype(jnp.float32).sum())(v)
    np.testing.assert_allclose(
        np.asarray(dv[..., 0], float), first.sum(1).transpose(0, 2, 1), 2e-2, 2e-2
    )
    # vmap over keys makes a call per key.
    both = np.asarray(jax.vmap(attention, (0, None))(keys, identity), float)
    assert (both == np.stack([first, second])).all()


def shard(function: Any, *specs: Any, out: Any) -> Any:
    """Return a function whose arguments are sharded over two devices."""
    mesh = Mesh(np.array(jax.devices()), ("x",))
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=out))


@pytest.mark.parametrize("spec", [P("x"), P(None, None, "x")], ids=["batch", "heads"])
def test_shards_of_batch_and_heads(ops: Any, device: Device, spec: Any) -> None:
    """Prevents: the sharding in the guide gives wrong results or gradients."""
    arrays = qkv(4, 2, 32, 32)
    sharded = shard(ops.attention, spec, spec, spec, out=spec)
    assert_close(sharded(*arrays), exact(*arrays))
    ops.attention(*arrays).block_until_ready()
    # Half of the batch, or of the heads, on each device.
    *halves, whole = (math.prod(launch.grid) for launch in device.launches)
    assert halves == [whole / 2, whole / 2]
    assert_close(gradients(sharded, arrays), gradients(exact, arrays), 1e-2)


def test_shards_with_arrays_for_all_devices(ops: Any, device: Device) -> None:
    """Prevents: all arguments must be sharded; a gradient covers only one device's part."""
    batch = P("x")
    q, k, v = qkv(2, 1, 32, 64)
    length = jnp.array([33], jnp.int32)
    # Both devices share the key and value of one sequence.
    attention = partial(ops.attention, is_causal=True, key_value_seq_lengths=length)
    shared = shard(attention, batch, P(), P(), out=batch)
    whole = partial(exact, is_causal=True, key_value_seq_lengths=length.repeat(2))

    def repeated(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return whole(q, k.repeat(2, 0), v.repeat(2, 0))

    arrays = [q, k[:1], v[:1]]
    assert_close(shared(*arrays), repeated(*arrays))
    assert_close(gradients(shared, arrays), gradients(repeated, arrays), 2e-2)

    # Both devices share a bias; each device has its dropout key.
    def dropping(*arguments: jax.Array) -> Any:
        key = jax.random.fold_in(jax.random.key(1), jax.lax.axis_index("x"))
        return ops.attention(*arguments, dropout_rate=1e-9, dropout_key=key)

    arrays = [*qkv(2, 2, 32, 32), random(1, 2, 32, 32)]
    biased = shard(dropping, batch, batch, batch, P(), out=batch)
    assert_close(gradients(biased, arrays), gradients(exact, arrays), 2e-2)


def test_export_and_scan(ops: Any, device: Device) -> None:
    """Prevents: a program cannot be exported, or JAX cannot differentiate a loop."""
    q, k, v = qkv(2, 2, 32, 32)
    allowed = [jax.export.DisabledSafetyCheck.custom_call(f"{ops._SPACE}_mha_fwd")]
    exported = jax.export.export(jax.jit(ops.attention), disabled_checks=allowed)(q, k, v)
    assert_close(exported.call(q, k, v), exact(q, k, v))

    def layers(attention: Any, *arguments: jax.Array) -> jax.Array:
        def layer(x: jax.Array, _: None) -> Any:
            return jax.checkpoint(attention)(x, *arguments[1:]).astype(x.dtype), None

        return jax.lax.scan(layer, arguments[0], length=2)[0]

    actual = gradients(partial(layers, ops.attention), [q, k, v])
    assert_close(actual, gradients(partial(layers, exact), [q, k, v]), 1e-2)


def test_arguments_equal_those_of_jax(ops: Any) -> None:
    """Prevents: a call of jax.nn.dot_product_attention fails or has another meaning."""
    parameters = inspect.signature(ops.attention).parameters
    for name, expected in inspect.signature(jax.nn.dot_product_attention).parameters.items():
        if name == "implementation":
            assert name not in parameters
            continue
        assert (parameters[name].kind, parameters[name].default) == (
            expected.kind,
            expected.default,
        )
    positional = [
        name
        for name, parameter in parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    assert positional == ["query", "key", "value", "bias", "mask"]


Q, K, V = (jnp.zeros((2, 32, 2, D), jnp.float16) for _ in range(3))


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ((Q, K[:1], V), {}, r"key is \(1, 32, 2, 32\), expected \(2, 32, 2, 32\)"),
        ((Q, K, V[:, :9]), {}, r"value is \(2, 9, 2, 32\), expected \(2, 32, 2, 32\)"),
        ((Q, K.astype(jnp.float32), V), {}, "key is float32, expected float16"),
        ((Q.astype(int), K, V), {}, "query is int32, expected one of"),
        ((Q[0, 0], K, V), {}, "query has 2 dimensions"),
        ((Q[:, :, :1], K, V), {}, "key has 2 heads, expected a divisor of 1"),
        ((Q, K, V, jnp.zeros((1, 3, 1, 1))), {}, r"bias is \(1, 3, 1, 1\)"),
        ((Q, K, V), {"mask": jnp.zeros((1, 1, 1, 1))}, "mask is float32, expected bool"),
        ((Q, K, V), {"query_seq_lengths": jnp.zeros(2)}, r"query_seq_lengths is float32\(2,\)"),
        ((Q, K, V), {"local_window_size": -1}, "local_window_size: -1"),
        ((Q, K, V), {"dropout_rate": 0.5}, "dropout_rate and dropout_key"),
        ((Q, K, V), {"scale": 0.0}, "scale: 0"),
    ],
)
def test_errors_name_the_wrong_argument(
    ops: Any, device: Device, arrays: Any, options: dict[str, Any], message: str
) -> None:
    """Prevents: a kernel reads beyond an array, or an error does not name the argument."""
    with pytest.raises(ValueError, match=message):
        ops.attention(*arrays, **options)
    assert device.launches == []


def test_a_problem_without_a_kernel_fails_in_tracing(ops: Any, device: Device) -> None:
    """Prevents: a program without a kernel compiles, and fails when it runs."""
    q, k, v = (array.astype(jnp.bfloat16) for array in (Q, K, V))
    with pytest.raises(RuntimeError, match=r"no kernel .*dtype=2.*library's \d+ kernels: fmha_"):
        jax.eval_shape(ops.attention, q, k, v)
    with pytest.raises(RuntimeError, match="dropout: expected a number"):
        jax.eval_shape(
            partial(ops.attention, dropout_rate=1.0, dropout_key=jax.random.key(0)), Q, K, V
        )

    def total(*arguments: jax.Array) -> jax.Array:
        return ops.attention(*arguments, deterministic=True).sum()

    with pytest.raises(RuntimeError, match=r"mha_bwd: no kernel .*deterministic=1"):
        jax.make_jaxpr(jax.grad(total))(Q, K, V)
    assert device.launches == []
