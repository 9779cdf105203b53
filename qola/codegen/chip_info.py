"""Stands in for AITER's `chip_info` while its generators run.

AITER's own asks `rocminfo`, needs PyTorch's build helpers and takes the architecture from the
environment. Generators only need to know for which architectures assembly (v3) kernels exist.
None are embedded yet: the list is empty, the entry points are generated without a call into v3,
and `is_v3_api_check` answers -1 ("not served") without a launch.
"""

from __future__ import annotations


def get_gfx_list() -> list[str]:
    """Return the architectures the v3 path is generated for: none."""
    return []
