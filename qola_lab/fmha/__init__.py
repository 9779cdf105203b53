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
    from qola.kernel.rules import InvalidError, check, validate
    from qola_lab.fmha import reference
    from qola_lab.fmha.build import build_configs, build_libraries, make_manifest
    from qola_lab.fmha.observe import observe_kernels
    from qola_lab.fmha.registry import Registry, RegistryError
    from qola_lab.fmha.runner import RunError, Runner
    from qola_lab.problems import (
        AttentionProblem,
        ProblemError,
        make_problem,
        parse_lines,
        parse_words,
    )

__all__ = [
    "Archs",
    "AttentionProblem",
    "ConfigError",
    "InvalidError",
    "KernelConfig",
    "NotBuiltError",
    "Options",
    "ProblemError",
    "Registry",
    "RegistryError",
    "RunError",
    "Runner",
    "Tile",
    "build_configs",
    "build_libraries",
    "check",
    "make_manifest",
    "make_problem",
    "observe_kernels",
    "parse_lines",
    "parse_words",
    "reference",
    "validate",
]

_MODULES = {
    "qola_lab.problems": (
        *("AttentionProblem", "ProblemError", "make_problem"),
        *("parse_lines", "parse_words"),
    ),
    "qola.build.programs": ("NotBuiltError",),
    "gfxemu.launch": ("Options",),
    "qola_lab.fmha.build": ("build_configs", "build_libraries", "make_manifest"),
    "qola_lab.fmha.observe": ("observe_kernels",),
    "qola_lab.fmha.registry": ("Registry", "RegistryError"),
    "qola_lab.fmha.runner": ("RunError", "Runner"),
    "qola.kernel.archs": ("Archs",),
    "qola.kernel.config": ("ConfigError", "KernelConfig", "Tile"),
    "qola.kernel.rules": ("InvalidError", "check", "validate"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "reference":
        return importlib.import_module("qola_lab.fmha.reference")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
