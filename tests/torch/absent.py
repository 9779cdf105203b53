"""Empty packages for those that AITER imports and that a Python may lack.

Only Triton's kernels, tables and references of tests need them. PyTorch is imported before.
"""

import importlib.util
import sys
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock

import torch._dynamo  # noqa: F401


class Absent:
    """Finds the packages, after all that is installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        """Find one of the packages, or a module in it."""
        if name.partition(".")[0] not in ("einops", "pandas", "psutil", "triton"):
            return None
        return importlib.util.spec_from_loader(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """Return a module whose names are all there, and do nothing."""
        module = types.ModuleType(spec.name)
        vars(module)["__getattr__"] = lambda name: MagicMock()
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave it empty."""


sys.meta_path.append(Absent())
