"""Registers the handlers of plugin.so: JAX imports the packages below jax_plugins at its start."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import jax


def initialize() -> None:
    """Register the handlers; JAX calls it."""
    library = ctypes.CDLL(str(Path(__file__).with_name("plugin.so")))
    target = jax.ffi.pycapsule(library.qola_example_attention)
    jax.ffi.register_ffi_target("qola_example_attention", target, platform="ROCM")


def attention(q: Any, k: Any, v: Any, scale: float) -> Any:
    """Return attention of float16 arrays [batch, seqlen, nhead, 32]."""
    batch, seqlen_q, nhead_q, _ = q.shape
    shapes = (
        jax.ShapeDtypeStruct((*q.shape[:3], v.shape[3]), q.dtype),
        jax.ShapeDtypeStruct((batch, nhead_q, seqlen_q), "float32"),
    )
    call = jax.ffi.ffi_call("qola_example_attention", shapes)
    out, _lse = call(q, k, v, scale=jax.numpy.float32(scale))
    return out
