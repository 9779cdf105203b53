"""Empty stand-ins for packages that AITER imports and that a Python may lack.

Only Triton kernels, tables and references of tests use these packages. PyTorch is imported first.
"""

import importlib.util
import sys
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock

import torch._dynamo  # noqa: F401


class Absent:
    """Finds stand-ins for missing packages, after all installed packages."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        """Find a missing package, or a module of it."""
        if name.partition(".")[0] not in ("einops", "pandas", "psutil", "triton"):
            return None
        return importlib.util.spec_from_loader(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """Return a module with every attribute; calls of attributes do nothing."""
        module = types.ModuleType(spec.name)
        vars(module)["__getattr__"] = lambda name: MagicMock()
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave the module empty."""


sys.meta_path.append(Absent())
