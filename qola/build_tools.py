"""ROCm/QoLA's name of `build_kernels` and `checkout_aiter`."""

from qola.api import build_kernels, checkout_aiter

__all__ = ["build_kernels", "checkout_aiter"]
