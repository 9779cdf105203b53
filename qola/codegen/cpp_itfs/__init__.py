"""AITER's second JIT, csrc/cpp_itfs: its own Python renders templates and names libraries."""
