"""Kernels from Python: configs and their rules, the kernels of a library, runs and a reference.

Names are imported from their modules on first use, since most of these need NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qola.attention import (
        AttentionProblem,
        Layout,
        ProblemError,
        make_problem,
        parse_lines,
        parse_words,
    )
    from qola.build.programs import NotBuiltError
    from qola.emulate.launch import Options
    from qola.fmha import reference
    from qola.fmha.build import BuiltKernel, build_configs, build_libraries
    from qola.fmha.gpu import DeviceRun, RunError
    from qola.fmha.manifest import make_manifest
    from qola.fmha.observe import observe_archs, observe_kernels
    from qola.fmha.registry import Entry, Registry, RegistryError
    from qola.fmha.runner import Run, Runner
    from qola.kernel.archs import Archs
    from qola.kernel.config import ConfigError, KernelConfig, Tile
    from qola.kernel.rules import RULES, InvalidError, check, validate
    from qola.reference.dropout import Dropout
    from qola.reference.masks import Mask

__all__ = [
    "RULES",
    "Archs",
    "AttentionProblem",
    "BuiltKernel",
    "ConfigError",
    "DeviceRun",
    "Dropout",
    "Entry",
    "InvalidError",
    "KernelConfig",
    "Layout",
    "Mask",
    "NotBuiltError",
    "Options",
    "ProblemError",
    "Registry",
    "RegistryError",
    "Run",
    "RunError",
    "Runner",
    "Tile",
    "build_configs",
    "build_libraries",
    "check",
    "make_manifest",
    "make_problem",
    "observe_archs",
    "observe_kernels",
    "parse_lines",
    "parse_words",
    "reference",
    "validate",
]

_MODULES = {
    "qola.attention": (
        *("AttentionProblem", "Layout", "ProblemError", "make_problem"),
        *("parse_lines", "parse_words"),
    ),
    "qola.build.programs": ("NotBuiltError",),
    "qola.emulate.launch": ("Options",),
    "qola.fmha.build": ("BuiltKernel", "build_configs", "build_libraries"),
    "qola.fmha.gpu": ("DeviceRun", "RunError"),
    "qola.fmha.manifest": ("make_manifest",),
    "qola.fmha.observe": ("observe_archs", "observe_kernels"),
    "qola.fmha.registry": ("Entry", "Registry", "RegistryError"),
    "qola.fmha.runner": ("Run", "Runner"),
    "qola.kernel.archs": ("Archs",),
    "qola.kernel.config": ("ConfigError", "KernelConfig", "Tile"),
    "qola.kernel.rules": ("RULES", "InvalidError", "check", "validate"),
    "qola.reference.dropout": ("Dropout",),
    "qola.reference.masks": ("Mask",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "reference":
        return importlib.import_module("qola.fmha.reference")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
