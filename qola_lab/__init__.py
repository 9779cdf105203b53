"""The laboratory: emulates, verifies and compares kernels of AITER (README.md)."""
