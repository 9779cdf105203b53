"""Attention in float64, forward and backward, and limits of the errors of kernels.

Depends on NumPy only.
"""
