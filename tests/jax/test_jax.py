"""The JAX functions of a wheel on the emulator: results and gradients against jax.nn's."""

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

from tests.jax.on_emulator import Device, compare, exact, gradients, near, random

pytest_plugins = ["tests.jax.fixtures"]

D = 32


def qkv(heads_q: int, heads_k: int, rows_q: int, rows_k: int, batch: int = 2) -> list[jax.Array]:
    shapes = ((rows_q, heads_q), (rows_k, heads_k), (rows_k, heads_k))
    return [random(batch, *shape, D, seed=n) for n, shape in enumerate(shapes)]


def test_attention_and_its_gradients_are_those_of_jax(ops: Any, device: Device) -> None:
    """Prevents: strides, scales or heads that reach a kernel as others; dK and dV of one head."""
    compare(ops, qkv(4, 2, 64, 96), scale=0.3)
    assert any("bwd" in launch.kernel.lower() for launch in device.launches)


def test_a_bias_and_its_gradient(ops: Any, device: Device) -> None:
    """Prevents: a bias of another head or sequence, and a gradient that is not summed up."""
    arrays = qkv(2, 2, 32, 64)
    key = jax.random.key(1)
    # The library's kernels with a bias drop, too: none of 2^32 numbers is below this rate's bound.
    more = {"dropout_rate": 1e-9, "dropout_key": key}
    for shape in ((2, 2, 32, 64), (1, 2, 1, 64)):
        given = [*arrays, random(*shape)]
        near(ops.attention(*given, **more), exact(*given))
        near(gradients(partial(ops.attention, **more), given), gradients(exact, given), 1e-2)
    mask = jnp.tril(jnp.ones((32, 64), bool), 3)[None, None]
    near(ops.attention(*arrays, mask=mask, **more), exact(*arrays, mask=mask))


def test_masks_begin_top_left(ops: Any, device: Device) -> None:
    """Prevents: another diagonal than JAX's, or a window that is none."""
    arrays = qkv(2, 1, 64, 96)
    near(ops.attention(*arrays, is_causal=True), exact(*arrays, is_causal=True))
    for window, causal in (((8, 3), False), (5, False), ((8, 3), True)):
        more = {"local_window_size": window, "is_causal": causal}
        near(ops.attention(*arrays, **more), exact(*arrays, **more))
    out, lse = ops.attention(*arrays, is_causal=True, return_residual=True)
    right, residual = exact(*arrays, is_causal=True, return_residual=True)
    near((out, lse), (right, residual))


def test_lengths(ops: Any, device: Device) -> None:
    """Prevents: rows of another sequence, and rows of none that are not 0."""
    lengths = {
        "query_seq_lengths": jnp.array([40, 64], jnp.int32),
        "key_value_seq_lengths": jnp.array([96, 33], jnp.int32),
    }
    arrays = qkv(2, 1, 64, 96)
    compare(ops, arrays, is_causal=True, **lengths)
    # Each row sees a key.
    compare(ops, arrays, local_window_size=(31, 3), **lengths)
    only_k = {"key_value_seq_lengths": lengths["key_value_seq_lengths"]}
    near(ops.attention(*arrays, is_causal=True, **only_k), exact(*arrays, is_causal=True, **only_k))
    out, lse = ops.attention(*arrays, is_causal=True, return_residual=True, **lengths)
    assert (out.shape, lse.shape) == ((2, 64, 2, D), (2, 64, 2))
    seen = exact(*arrays, is_causal=True, return_residual=True, **lengths)[1]
    near(lse[0, :40], seen[0, :40])
    near(lse[1], seen[1])


def test_vmap_extends_the_batch(ops: Any, device: Device) -> None:
    """Prevents: a launch for each element, or one that reads those of another one."""
    q, k, v = (random(3, 2, 32, 2, D, seed=n) for n in range(3))
    near(jax.vmap(ops.attention)(q, k, v), jax.vmap(exact)(q, k, v))
    assert len(device.launches) == 1
    # Without a batch, and with a key and a value for all.
    found = jax.vmap(ops.attention, (0, None, None))(q[0], k[0, 0], v[0, 0])
    near(found, jax.vmap(exact, (0, None, None))(q[0], k[0, 0], v[0, 0]))
    # The gradient of each element, and of a sum over elements.
    per_element = jax.vmap(lambda *given: gradients(ops.attention, list(given)))
    near(per_element(q, k, v), jax.vmap(lambda *g: gradients(exact, list(g)))(q, k, v), 1e-2)
    mapped = [partial(jax.vmap(one, (0, None, 0))) for one in (ops.attention, exact)]
    given = [q, k[0], v]
    near(gradients(mapped[0], given), gradients(mapped[1], given), 2e-2)


def test_vmap_of_lengths(ops: Any, device: Device) -> None:
    """Prevents: lengths that belong to another element."""
    q, k, v = (random(2, 2, 32, 2, D, seed=n) for n in range(3))
    lengths = jnp.array([[7, 32], [19, 1]], jnp.int32)

    def one(function: Any, *given: jax.Array) -> Any:
        return function(*given[:3], is_causal=True, key_value_seq_lengths=given[3])

    near(
        jax.vmap(partial(one, ops.attention))(q, k, v, lengths),
        jax.vmap(partial(one, exact))(q, k, v, lengths),
    )


def test_dropout(ops: Any, device: Device) -> None:
    """Prevents: a key that changes nothing, and gradients of other elements than were dropped."""
    q, k, v = qkv(2, 2, 32, D)
    bias = jnp.zeros((1, 1, 32, 32), jnp.float16)
    # With the identity as value, results are the probabilities.
    seen = jnp.broadcast_to(jnp.eye(D, dtype=jnp.float16)[:, None], v.shape)

    def attention(key: Any, value: jax.Array) -> Any:
        return ops.attention(q, k, value, bias, dropout_rate=0.5, dropout_key=key)

    keys = jax.random.split(jax.random.key(3), 2)
    first, second = (np.asarray(attention(key, seen), float) for key in keys)
    again = np.asarray(attention(keys[0], seen), float)
    assert (first == again).all()
    assert (first != second).any()
    whole = np.asarray(exact(q, k, seen), float)
    kept = first != 0
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_allclose(first[kept], 2 * whole[kept], 1e-2, 4e-3)
    # d(sum)/dV of each key: the sum of its kept probabilities over the rows of query.
    dv = jax.grad(lambda value: attention(keys[0], value).astype(jnp.float32).sum())(v)
    np.testing.assert_allclose(
        np.asarray(dv[..., 0], float), first.sum(1).transpose(0, 2, 1), 2e-2, 2e-2
    )
    # vmap over keys: a call for each.
    both = np.asarray(jax.vmap(attention, (0, None))(keys, seen), float)
    assert (both == np.stack([first, second])).all()


def shard(function: Any, *specs: Any, out: Any) -> Any:
    """Return a function whose arguments are shards for two devices."""
    mesh = Mesh(np.array(jax.devices()), ("x",))
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=out))


@pytest.mark.parametrize("spec", [P("x"), P(None, None, "x")], ids=["batch", "heads"])
def test_shards_of_batch_and_heads(ops: Any, device: Device, spec: Any) -> None:
    """Prevents: the sharding that the guide describes does not compute the same, or no gradient."""
    arrays = qkv(4, 2, 32, 32)
    sharded = shard(ops.attention, spec, spec, spec, out=spec)
    near(sharded(*arrays), exact(*arrays))
    ops.attention(*arrays).block_until_ready()
    # Half of the batch, or of the heads, on each device.
    *halves, whole = (math.prod(launch.grid) for launch in device.launches)
    assert halves == [whole / 2, whole / 2]
    near(gradients(sharded, arrays), gradients(exact, arrays), 1e-2)


def test_shards_with_arrays_for_all_devices(ops: Any, device: Device) -> None:
    """Prevents: arguments that must all be shards; a gradient of one device's part."""
    batch = P("x")
    q, k, v = qkv(2, 1, 32, 64)
    length = jnp.array([33], jnp.int32)
    # A key and a value of one sequence, for both devices.
    one = partial(ops.attention, is_causal=True, key_value_seq_lengths=length)
    shared = shard(one, batch, P(), P(), out=batch)
    whole = partial(exact, is_causal=True, key_value_seq_lengths=length.repeat(2))

    def repeated(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return whole(q, k.repeat(2, 0), v.repeat(2, 0))

    arrays = [q, k[:1], v[:1]]
    near(shared(*arrays), repeated(*arrays))
    near(gradients(shared, arrays), gradients(repeated, arrays), 2e-2)

    # A bias for both devices, and a dropout key for each.
    def dropping(*given: jax.Array) -> Any:
        key = jax.random.fold_in(jax.random.key(1), jax.lax.axis_index("x"))
        return ops.attention(*given, dropout_rate=1e-9, dropout_key=key)

    arrays = [*qkv(2, 2, 32, 32), random(1, 2, 32, 32)]
    biased = shard(dropping, batch, batch, batch, P(), out=batch)
    near(gradients(biased, arrays), gradients(exact, arrays), 2e-2)


def test_export_and_scan(ops: Any, device: Device) -> None:
    """Prevents: a program that cannot be exported; loops that JAX cannot differentiate."""
    q, k, v = qkv(2, 2, 32, 32)
    allowed = [jax.export.DisabledSafetyCheck.custom_call(f"{ops._SPACE}_mha_fwd")]
    exported = jax.export.export(jax.jit(ops.attention), disabled_checks=allowed)(q, k, v)
    near(exported.call(q, k, v), exact(q, k, v))

    def layers(attention: Any, *given: jax.Array) -> jax.Array:
        def layer(x: jax.Array, _: None) -> Any:
            return jax.checkpoint(attention)(x, *given[1:]).astype(x.dtype), None

        return jax.lax.scan(layer, given[0], length=2)[0]

    found = gradients(partial(layers, ops.attention), [q, k, v])
    near(found, gradients(partial(layers, exact), [q, k, v]), 1e-2)


def test_arguments_are_those_of_jax(ops: Any) -> None:
    """Prevents: a call of jax.nn.dot_product_attention that has another meaning, or none."""
    own = inspect.signature(ops.attention).parameters
    for name, theirs in inspect.signature(jax.nn.dot_product_attention).parameters.items():
        if name == "implementation":
            assert name not in own
            continue
        assert (own[name].kind, own[name].default) == (theirs.kind, theirs.default)
    positional = [name for name, one in own.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert positional == ["query", "key", "value", "bias", "mask"]


Q, K, V = (jnp.zeros((2, 32, 2, D), jnp.float16) for _ in range(3))


@pytest.mark.parametrize(
    ("given", "more", "said"),
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
def test_what_does_not_fit_is_named(
    ops: Any, device: Device, given: Any, more: dict[str, Any], said: str
) -> None:
    """Prevents: memory read beyond an array, or an error that does not say of which."""
    with pytest.raises(ValueError, match=said):
        ops.attention(*given, **more)
    assert device.launches == []


def test_a_problem_without_a_kernel_is_an_error_of_tracing(ops: Any, device: Device) -> None:
    """Prevents: a program that compiles, and fails when it runs."""
    q, k, v = (one.astype(jnp.bfloat16) for one in (Q, K, V))
    with pytest.raises(RuntimeError, match=r"no kernel .*dtype=2.*library's \d+ kernels: fmha_"):
        jax.eval_shape(ops.attention, q, k, v)
    with pytest.raises(RuntimeError, match="dropout: expected a number"):
        jax.eval_shape(
            partial(ops.attention, dropout_rate=1.0, dropout_key=jax.random.key(0)), Q, K, V
        )

    def total(*given: jax.Array) -> jax.Array:
        return ops.attention(*given, deterministic=True).sum()

    with pytest.raises(RuntimeError, match=r"mha_bwd: no kernel .*deterministic=1"):
        jax.make_jaxpr(jax.grad(total))(Q, K, V)
    assert device.launches == []
