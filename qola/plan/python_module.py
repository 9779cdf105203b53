"""Modules of AITER that Python imports and that need no PyTorch: what is compiled of them.

They have neither kernel instances nor generators; each is a handful of sources on pybind11.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.missing_headers import Includer, missing_headers
from qola.aiter.module_kinds import sources
from qola.aiter.preprocess import defined_by
from qola.aiter.tree import ModuleConfig
from qola.errors import Finding, PlanError
from qola.folder import Folder
from qola.plan.model import PlannedFile, PythonModule
from qola.plan.module_entry import nowhere
from qola.plan.request import Module, ResolvedRequest


def plan_python_module(resolved: ResolvedRequest, module: Module, output: Folder) -> PythonModule:
    """Plan a module and copy its sources to <module>/sources.

    Raises:
        PlanError: the entry asks for what a plan does not follow, or leaves no source.
    """
    tree, config = resolved.request.tree, module.config
    files = tuple(sources(tree, config, module.spec.drop_srcs))
    _check(config, files, resolved.place(module.spec, "name"))
    texts = {path: (tree.root / path).read_text(encoding="utf-8") for path in files}
    planned = []
    for path, text in texts.items():
        # cc_library takes no .cu file.
        file = f"{config.name}/sources/{Path(path).stem}.cpp"
        planned.append(PlannedFile(Path(path).stem, file, output.write(file, text)))
    dirs = include_dirs(tree, config)
    macros = defined_by(config.flags_hip)
    includers = [Includer(path, text) for path, text in texts.items()]
    missing = missing_headers(tree.root, dirs, includers, macros)
    if missing:
        raise PlanError(nowhere(config.name, found.place, found.name) for found in missing)
    roots = sorted({name for text in texts.values() for name, _ in includes(text)})
    headers = closure(tree.root, dirs, roots)
    name = config.md_name or config.name
    return PythonModule(
        name=config.name,
        # Python finds a module by its file's name, so it has no namespace before it.
        library=f"{name}.so",
        symbol=f"PyInit_{name}",
        copts=config.flags_hip,
        sources=tuple(planned),
        include_dirs=tuple(d for d in dirs if any(h.startswith(f"{d}/") for h in headers)),
        headers=headers,
        inputs=tuple(sorted({*files, *headers})),
    )


def _check(config: ModuleConfig, files: Sequence[str], place: str) -> None:
    """Refuse a module that is more, or less, than C++ sources for Python."""
    doubtful = {
        "generators": ", ".join(call.script for call in config.generators),
        "no sources": "" if files else "none left",
        "two sources of one name": ", ".join(files)
        if len({Path(path).stem for path in files}) < len(files)
        else "",
        "an executable": "is_standalone" if config.is_standalone else "",
        "not a Python module": "" if config.is_python_module else "is_python_module is False",
    }
    if any(doubtful.values()):
        raise PlanError(
            Finding(
                place,
                f"{config.name}: {what} ({found})",
                "a Python module of C++ sources, which is all that can be planned beside attention",
                "remove it from the manifest",
            )
            for what, found in doubtful.items()
            if found
        )


def export_list(symbol: str) -> str:
    """Linker version script that lets one C symbol out, and nothing else."""
    return f"{{\n  global:\n    {symbol};\n  local:\n    *;\n}};\n"
