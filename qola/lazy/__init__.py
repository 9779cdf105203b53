"""Lazy libraries: dispatch without kernels, and what a kernel needs to be compiled later.

in: a plan and flags of a toolchain; out: the index and table of a lazy library.
"""
