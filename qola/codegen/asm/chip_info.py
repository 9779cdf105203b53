"""Stands in for AITER's `chip_info` while its generators run.

AITER's own asks `rocminfo`, needs PyTorch's build helpers and takes the architecture from the
environment. Generators only need to know for which architectures assembly (v3) kernels exist. With
none, the entry points are generated without a call into v3, and `is_v3_api_check` answers -1 ("not
served") without a launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType


def chip_info(archs: Sequence[str]) -> ModuleType:
    """Return the module that generators import as `chip_info`.

    Args:
        archs: the architectures the v3 path is generated for.
    """
    module = ModuleType("chip_info")
    vars(module)["get_gfx_list"] = lambda: list(archs)
    return module
