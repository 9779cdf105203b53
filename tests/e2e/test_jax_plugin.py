"""examples/jax_plugin: XLA FFI handlers that link the library of a manifest."""

from __future__ import annotations

from tests.e2e.nested_bazel import QOLA, bazel


def test_the_plugin_builds() -> None:
    """Prevents: only targets of this repository find XLA's headers or the headers of a library."""
    with bazel(QOLA / "examples/jax_plugin") as consumer:
        consumer.run("build", "//:plugin.so")
        plugin = (consumer.workspace / "bazel-bin/plugin.so").read_bytes()
    # The first name is an exported symbol, the second a needed library.
    assert b"\0qola_example_attention\0" in plugin
    assert b"\0attention_libmha_fwd.so\0" in plugin
