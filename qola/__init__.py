"""qola: one TOML manifest in, the AMD GPU attention libraries a framework needs out."""

import importlib
from typing import TYPE_CHECKING, Any

from qola.common.version import __version__

if TYPE_CHECKING:
    from qola.api import (
        AiterOptions,
        BuildOptions,
        BuildRequest,
        BuildResult,
        BuildSpec,
        Forms,
        PrebuiltOptions,
        build_kernels,
        checkout_aiter,
    )

__all__ = [
    "AiterOptions",
    "BuildOptions",
    "BuildRequest",
    "BuildResult",
    "BuildSpec",
    "Forms",
    "PrebuiltOptions",
    "__version__",
    "build_kernels",
    "checkout_aiter",
]


def __getattr__(name: str) -> Any:
    """Import qola.api on demand: repository rules import qola often."""
    if name in __all__:
        return getattr(importlib.import_module("qola.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
