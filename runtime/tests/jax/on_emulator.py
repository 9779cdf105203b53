"""JAX's CPU build with a wheel's functions, the handlers of host_handlers.cpp, and the emulator."""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import jax
import jax.numpy as jnp
import numpy as np

from gfxemu.hip import Hip

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
HANDLERS = Path(os.environ["QOLA_TEST_HANDLERS"]).resolve()

jax.config.update("jax_num_cpu_devices", 2)


class Device(Hip):
    """The emulator; buffers of the running FFI call count as device memory."""

    def __init__(self) -> None:
        super().__init__(FAKE, "gfx950")
        self._handlers: list[ctypes.CDLL] = []

    def load_package(self, site: Path, package: str) -> Any:
        """Import the JAX functions of a package; calls run on this device."""
        if str(site) not in sys.path:
            sys.path.insert(0, str(site))
        module = importlib.import_module(f"{package}.jax")
        # Copy the handlers for each package: they store the library names of only one package.
        handlers = Path(shutil.copy(HANDLERS, site / package))
        module._register(handlers, "cpu")
        self._handlers.append(ctypes.CDLL(str(handlers)))
        self._handlers[-1].noted_buffers.restype = ctypes.c_size_t
        return module

    def allocations(self) -> list[tuple[int, int]]:
        """Return device memory, including the buffers of the running FFI call."""
        buffers: dict[int, int] = {}
        for handlers in self._handlers:
            pairs = (ctypes.c_uint64 * 64)()
            count = handlers.noted_buffers(pairs, ctypes.c_size_t(32))
            buffers |= {pairs[2 * n]: pairs[2 * n + 1] for n in range(count) if pairs[2 * n + 1]}
        return [*super().allocations(), *buffers.items()]


def unpack(wheels: Iterable[Path], site: Path) -> None:
    """Unpack wheels into a directory in the way of pip."""
    for wheel in wheels:
        with ZipFile(wheel) as files:
            files.extractall(site)


def random(*shape: int, seed: int = 0, dtype: Any = jnp.float16) -> jax.Array:
    return jax.random.normal(jax.random.key(seed + sum(shape)), shape).astype(dtype)


def assert_close(actual: Any, expected: Any, tolerance: float = 4e-3) -> None:
    def compare(array: jax.Array, expected_array: jax.Array) -> None:
        assert array.shape == expected_array.shape
        np.testing.assert_allclose(
            np.asarray(array, float), np.asarray(expected_array, float), tolerance, tolerance
        )

    jax.tree.map(compare, actual, expected)


def exact(*arrays: jax.Array, **options: Any) -> Any:
    """Compute attention with jax.nn in float32."""
    wide = [array.astype(jnp.float32) for array in arrays]
    with jax.default_matmul_precision("float32"):
        return jax.nn.dot_product_attention(*wide, **options)


def gradients(function: Callable[..., Any], arrays: list[jax.Array], shape: Any = None) -> Any:
    """Return the gradients of a weighted sum of results."""

    def total(*arguments: jax.Array) -> jax.Array:
        out = function(*arguments)
        return (out.astype(jnp.float32) * random(*out.shape, seed=9)).sum()

    return jax.jit(jax.grad(total, tuple(range(len(arrays)))))(*arrays)


def compare(ops: Any, arrays: list[jax.Array], tolerance: float = 4e-3, **options: Any) -> None:
    """Compare results with jax.nn, and gradients with 2.5 times the tolerance."""
    assert_close(
        jax.jit(partial(ops.attention, **options))(*arrays), exact(*arrays, **options), tolerance
    )
    actual = gradients(partial(ops.attention, **options), arrays)
    assert [gradient.dtype for gradient in actual] == [gradient.dtype for gradient in arrays]
    assert_close(actual, gradients(partial(exact, **options), arrays), 2.5 * tolerance)
