"""examples/jax_plugin: handlers of XLA's FFI that link a manifest's library."""

from __future__ import annotations

from tests.e2e.nested_bazel import QOLA, bazel


def test_the_plugin_builds() -> None:
    """Prevents: XLA's headers, or a library's own, that only this repository's targets find."""
    with bazel(QOLA / "examples/jax_plugin") as consumer:
        consumer.run("build", "//:plugin.so")
        plugin = (consumer.workspace / "bazel-bin/plugin.so").read_bytes()
    # A symbol that it exports, and a library that it needs.
    assert b"\0qola_example_attention\0" in plugin
    assert b"\0attention_libmha_fwd.so\0" in plugin
