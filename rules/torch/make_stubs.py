"""Writes the type stubs of a torch module; torch_wheel.bzl runs it with PyTorch's Python.

Usage: make_stubs.py SITE MODULE OUTPUT, where SITE is the directory that has pybind11-stubgen.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path


def main(site: Path, module: Path, output: Path) -> None:
    """Import a module and write what pybind11-stubgen makes of it."""
    name = module.name.removesuffix(".so")
    sys.path[:0] = [str(site), str(module.parent.absolute())]
    # It brings the libraries that the module is linked with.
    importlib.import_module("torch")
    stubgen = importlib.import_module("pybind11_stubgen")
    with tempfile.TemporaryDirectory() as directory:
        stubgen.main([name, "--output-dir", directory])
        output.write_bytes((Path(directory) / f"{name}.pyi").read_bytes())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
