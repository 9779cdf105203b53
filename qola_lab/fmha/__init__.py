"""Kernels from Python: configs and their rules, the kernels of a library, runs and a reference.

Names are imported from their modules on first use, since most of these need NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gfxemu.launch import Options
    from qola.build.programs import NotBuiltError
    from qola.kernel.archs import Archs
    from qola.kernel.config import ConfigError, KernelConfig, Tile
    from qola.kernel.rules import RULES, InvalidError, check, validate
    from qola_lab.fmha import reference
    from qola_lab.fmha.build import BuiltKernel, build_configs, build_libraries
    from qola_lab.fmha.gpu import DeviceRun, RunError
    from qola_lab.fmha.manifest import make_manifest
    from qola_lab.fmha.observe import observe_archs, observe_kernels
    from qola_lab.fmha.registry import Entry, Registry, RegistryError
    from qola_lab.fmha.runner import Run, Runner
    from qola_lab.problems import (
        AttentionProblem,
        Layout,
        ProblemError,
        make_problem,
        parse_lines,
        parse_words,
    )
    from qola_lab.reference.dropout import Dropout
    from qola_lab.reference.masks import Mask

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
    "qola_lab.problems": (
        *("AttentionProblem", "Layout", "ProblemError", "make_problem"),
        *("parse_lines", "parse_words"),
    ),
    "qola.build.programs": ("NotBuiltError",),
    "gfxemu.launch": ("Options",),
    "qola_lab.fmha.build": ("BuiltKernel", "build_configs", "build_libraries"),
    "qola_lab.fmha.gpu": ("DeviceRun", "RunError"),
    "qola_lab.fmha.manifest": ("make_manifest",),
    "qola_lab.fmha.observe": ("observe_archs", "observe_kernels"),
    "qola_lab.fmha.registry": ("Entry", "Registry", "RegistryError"),
    "qola_lab.fmha.runner": ("Run", "Runner"),
    "qola.kernel.archs": ("Archs",),
    "qola.kernel.config": ("ConfigError", "KernelConfig", "Tile"),
    "qola.kernel.rules": ("RULES", "InvalidError", "check", "validate"),
    "qola_lab.reference.dropout": ("Dropout",),
    "qola_lab.reference.masks": ("Mask",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "reference":
        return importlib.import_module("qola_lab.fmha.reference")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
