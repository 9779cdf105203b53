"""Kernels from Python: configs and their rules, what a library has, runs of it, and a reference."""
