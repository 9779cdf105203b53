"""qola: one TOML manifest in, the AMD GPU attention libraries a framework needs out."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qola.build import build_kernels, checkout_aiter

__version__ = "0.1.0"

__all__ = ["__version__", "build_kernels", "checkout_aiter"]


def __getattr__(name: str) -> Any:
    """Import what builds only when it is asked for: repository rules import qola often."""
    if name in ("build_kernels", "checkout_aiter"):
        return getattr(importlib.import_module("qola.build"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
