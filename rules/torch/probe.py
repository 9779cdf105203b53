"""Prints what a PyTorch says of itself, as JSON; {} where there is none.

Run by torch_repository.bzl, with the Python whose PyTorch is meant.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import sysconfig
from pathlib import Path


def probe() -> dict[str, object]:
    """Return what a module for this PyTorch has to be compiled with."""
    if importlib.util.find_spec("torch") is None:
        return {}
    torch = importlib.import_module("torch")

    root = Path(str(torch.__file__)).parent
    return {
        "cxx11_abi": int(torch._C._GLIBCXX_USE_CXX11_ABI),
        "fp4": hasattr(torch, "float4_e2m1fn_x2"),
        "hip": torch.version.hip or "",
        "libraries": sorted(path.name for path in (root / "lib").glob("lib*.so")),
        # Until PyTorch 2.8: a module with others does not see the types that PyTorch registers.
        "pybind11": {
            name: str(getattr(torch._C, f"_PYBIND11_{name}"))
            for name in ("BUILD_ABI", "COMPILER_TYPE", "STDLIB")
            if getattr(torch._C, f"_PYBIND11_{name}", None) is not None
        },
        "python": ".".join(map(str, sys.version_info[:2])),
        "python_include": sysconfig.get_path("include"),
        "root": str(root),
        "version": str(torch.__version__),
    }


if __name__ == "__main__":
    print(json.dumps(probe()))
