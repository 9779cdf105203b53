"""Modules without PyTorch: Python imports them, or calls their C functions with ctypes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.preprocess import Macros, defined_by, lines
from qola.codegen.asm.later import code_objects
from qola.errors import Finding, PlanError
from qola.folder import Folder
from qola.layout import library_file
from qola.plan.generate import GeneratedModule, own_texts
from qola.plan.model import PlannedFile, PythonModule
from qola.plan.module_entry import refuse_missing
from qola.plan.request import ResolvedRequest

EXTENSION_NAME = "TORCH_EXTENSION_NAME"
"""Macro with a module's name. AITER's build defines it for modules without PyTorch, too."""

#: Defines the init function of a module, by pybind11's macro or directly.
_INIT = re.compile(r"\bPYBIND11_MODULE\s*\(\s*(\w+)|\bPyInit_(\w+)\s*\(")
#: Marks an exported C function in AITER's sources, by AITER's macros or directly.
_EXPORTED = re.compile(
    r"\bAITER_C(?:TYPES)?_\w+"
    r"|\bextern\s*\"C\"\s*__attribute__\(\(visibility\(\"default\"\)\)\)"
)


def plan_python_module(
    resolved: ResolvedRequest, module: GeneratedModule, output: Folder
) -> PythonModule:
    """Plan a module whose sources were generated.

    Raises:
        PlanError: it has no sources or exports nothing, Python would not find its init function, or
            a header does not exist.
    """
    tree, config, spec = resolved.request.tree, module.config, module.spec
    texts = own_texts(module, output.below(spec.name))
    macros = defined_by(config.flags_hip)
    name = config.md_name or config.name
    entries = {entry for text in texts.values() for entry in init_names(text, macros)}
    copts = config.flags_hip
    if EXTENSION_NAME in entries and EXTENSION_NAME not in macros:
        copts += (f"-D{EXTENSION_NAME}={name}",)
        macros[EXTENSION_NAME] = name
    found = {macros.get(entry) or entry for entry in entries}
    wrong = ""
    if not module.kernels.sources:
        wrong = "no sources (none left)"
    elif not entries and not any(_EXPORTED.search(text) for text in texts.values()):
        wrong = "neither a function for Python nor one of C that leaves the library"
    elif entries and name not in found:
        wrong = f"PyInit_{', PyInit_'.join(sorted(found))}, while Python calls PyInit_{name}"
    if wrong:
        raise PlanError(
            Finding(
                resolved.place(spec, "name"),
                f"{config.name}: {wrong}",
                "a module that Python imports, or whose C functions it calls",
                "remove it from the manifest",
            )
        )
    dirs = include_dirs(tree, config)
    refuse_missing(tree, module, texts, dirs, macros)
    roots = sorted({root for text in texts.values() for root, _ in includes(text)})
    headers = closure(tree.root, dirs, roots)
    namespace = resolved.request.manifest.namespace
    return PythonModule(
        name=config.name,
        # Python finds a module by the name of its file, which therefore has no namespace.
        library=f"{name}.so" if entries else library_file(namespace, name),
        symbol=f"PyInit_{name}" if entries else "",
        copts=copts,
        sources=tuple(
            PlannedFile(Path(source.name).stem, f"{spec.name}/{source.file}", source.sha256)
            for source in module.kernels.sources
        ),
        include_dirs=tuple(d for d in dirs if any(h.startswith(f"{d}/") for h in headers)),
        headers=headers,
        rocm=module.rocm,
        generated=module.generated_files,
        code_objects=code_objects(tree, config, resolved.archs, spec.hsa_subdirs),
        inputs=tuple(sorted({*module.tree_files, *headers})),
    )


def init_names(text: str, macros: Macros) -> Iterator[str]:
    """Yield the names of the modules that a source defines: X of PyInit_X.

    Code under a condition on unknown macros counts.
    """
    if "PYBIND11_MODULE" in text or "PyInit_" in text:
        read = (line for line in lines(text, macros) if line.counts is not False)
        code = "\n".join(line.text for line in read if not line.text.lstrip().startswith("#"))
        yield from (m[1] or m[2] for m in _INIT.finditer(code))


def export_list(symbol: str) -> str:
    """Return the linker version script of a Python module.

    Args:
        symbol: the only exported symbol; "" for all C functions that AITER's sources mark.
    """
    if symbol:
        return f"{{\n  global:\n    {symbol};\n  local:\n    *;\n}};\n"
    # Unmarked functions are hidden already. Symbols of HIP and of C++ are hidden here.
    return "{\n  local:\n    _Z*;\n    __hip*;\n    qola*;\n};\n"
