"""JAX attention in bfloat16, with the wheel of the quickstart manifest."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from runtime.tests.jax.on_emulator import Device, assert_close, compare, exact, random

pytest_plugins = ["runtime.tests.jax.fixtures"]

# bfloat16 has 8 bits of precision; the kernels round probabilities to bfloat16.
TOLERANCE = 2e-2

ARRAYS = [
    random(1, *shape, 128, seed=n, dtype=jnp.bfloat16)
    for n, shape in enumerate(((64, 2), (96, 1), (96, 1)))
]


@pytest.mark.parametrize("is_causal", [False, True])
def test_bfloat16_and_gradients_equal_those_of_jax(
    ops: Any, device: Device, is_causal: bool
) -> None:
    """Prevents: a kernel of another type reads bfloat16 data as float16."""
    compare(ops, ARRAYS, TOLERANCE, is_causal=is_causal)
    assert any("bwd" in launch.kernel.lower() for launch in device.launches)


def test_lengths_in_bfloat16(ops: Any, device: Device) -> None:
    """Prevents: strides of packed rows are correct for only one type."""
    options = {"key_value_seq_lengths": jnp.array([33], jnp.int32)}
    assert_close(ops.attention(*ARRAYS, **options), exact(*ARRAYS, **options), TOLERANCE)
