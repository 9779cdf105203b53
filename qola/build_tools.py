"""The name under which ROCm/QoLA's users import what builds."""

from qola.api import build_kernels, checkout_aiter

__all__ = ["build_kernels", "checkout_aiter"]
