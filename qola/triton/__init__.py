"""Kernels in Triton, compiled ahead of time: docs/guide/triton.md."""
