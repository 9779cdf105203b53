"""Words for a kernel: what `qola.kernel.config` has."""

from __future__ import annotations

from qola.kernel.config import FAMILIES, ConfigError, KernelConfig

__all__ = ["FAMILIES", "ConfigError", "KernelConfig"]
