"""The name under which ROCm/QoLA's users import what builds."""

from qola.build import build_kernels, checkout_aiter

__all__ = ["build_kernels", "checkout_aiter"]
