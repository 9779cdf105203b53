"""JAX's CPU build with a wheel's functions: handlers of host_handlers.cpp, and the emulator."""

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

from qola.emulate.hip import Hip

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
HANDLERS = Path(os.environ["QOLA_TEST_HANDLERS"]).resolve()

jax.config.update("jax_num_cpu_devices", 2)


class Device(Hip):
    """The emulator, for which buffers of the running FFI call are memory of the device."""

    def __init__(self) -> None:
        super().__init__(FAKE, "gfx950")
        self._handlers: list[ctypes.CDLL] = []

    def load_package(self, site: Path, package: str) -> Any:
        """Import the JAX functions of a package, whose calls run on this device."""
        if str(site) not in sys.path:
            sys.path.insert(0, str(site))
        found = importlib.import_module(f"{package}.jax")
        # A copy for each package: the library keeps the names of one package's libraries.
        own = Path(shutil.copy(HANDLERS, site / package))
        found._register(own, "cpu")
        self._handlers.append(ctypes.CDLL(str(own)))
        self._handlers[-1].noted_buffers.restype = ctypes.c_size_t
        return found

    def allocations(self) -> list[tuple[int, int]]:
        """Take the buffers for memory of the device, too."""
        ours: dict[int, int] = {}
        for handlers in self._handlers:
            pairs = (ctypes.c_uint64 * 64)()
            count = handlers.noted_buffers(pairs, ctypes.c_size_t(32))
            ours |= {pairs[2 * n]: pairs[2 * n + 1] for n in range(count) if pairs[2 * n + 1]}
        return [*super().allocations(), *ours.items()]


def unpack(wheels: Iterable[Path], site: Path) -> None:
    """Unpack wheels into a directory, as pip does."""
    for wheel in wheels:
        with ZipFile(wheel) as files:
            files.extractall(site)


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
