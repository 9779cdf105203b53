"""Lazy libraries: dispatch without kernels, and what a kernel needs to be compiled later."""
