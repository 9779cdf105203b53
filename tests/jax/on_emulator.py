"""JAX's CPU build with a wheel's functions: handlers of host_handlers.cpp, and the emulator."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qola.emulate.hip import Hip

WHEEL = Path(os.environ["QOLA_TEST_WHEEL"])
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
HANDLERS = Path(os.environ["QOLA_TEST_HANDLERS"]).resolve()
PACKAGE = WHEEL.name.partition("-")[0]

jax.config.update("jax_num_cpu_devices", 2)


class Device(Hip):
    """The emulator, for which buffers of the running FFI call are memory of the device."""

    def __init__(self) -> None:
        super().__init__(FAKE, "gfx950")
        self.handlers = ctypes.CDLL(str(HANDLERS))
        self.handlers.noted_buffers.restype = ctypes.c_size_t

    def allocations(self) -> list[tuple[int, int]]:
        """Take the buffers for memory of the device, too."""
        pairs = (ctypes.c_uint64 * 64)()
        count = self.handlers.noted_buffers(pairs, ctypes.c_size_t(32))
        ours = {pairs[2 * n]: pairs[2 * n + 1] for n in range(count) if pairs[2 * n + 1]}
        return [*super().allocations(), *ours.items()]


def random(*shape: int, seed: int = 0, dtype: Any = jnp.float16) -> jax.Array:
    return jax.random.normal(jax.random.key(seed + sum(shape)), shape).astype(dtype)


def near(found: Any, wanted: Any, tolerance: float = 4e-3) -> None:
    def compare(one: jax.Array, right: jax.Array) -> None:
        assert one.shape == right.shape
        np.testing.assert_allclose(
            np.asarray(one, float), np.asarray(right, float), tolerance, tolerance
        )

    jax.tree.map(compare, found, wanted)


def exact(*arrays: jax.Array, **more: Any) -> Any:
    """Compute jax.nn's attention in float32."""
    wide = [array.astype(jnp.float32) for array in arrays]
    with jax.default_matmul_precision("float32"):
        return jax.nn.dot_product_attention(*wide, **more)


def gradients(function: Callable[..., Any], arrays: list[jax.Array], shape: Any = None) -> Any:
    """Return the gradients of a weighted sum of results."""

    def total(*given: jax.Array) -> jax.Array:
        out = function(*given)
        return (out.astype(jnp.float32) * random(*out.shape, seed=9)).sum()

    return jax.jit(jax.grad(total, tuple(range(len(arrays)))))(*arrays)


def compare(ops: Any, arrays: list[jax.Array], tolerance: float = 4e-3, **more: Any) -> None:
    """Compare results, and gradients with 2.5 times their tolerance, with jax.nn's."""
    near(jax.jit(partial(ops.attention, **more))(*arrays), exact(*arrays, **more), tolerance)
    found = gradients(partial(ops.attention, **more), arrays)
    assert [one.dtype for one in found] == [one.dtype for one in arrays]
    near(found, gradients(partial(exact, **more), arrays), 2.5 * tolerance)
