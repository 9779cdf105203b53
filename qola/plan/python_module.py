"""Modules of AITER without PyTorch: Python imports them, or calls their C functions (ctypes)."""

from __future__ import annotations

import re

from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.missing_headers import Includer, missing_headers
from qola.aiter.preprocess import defined_by
from qola.codegen.asm.embed_all import code_objects
from qola.errors import Finding, PlanError
from qola.folder import Folder
from qola.layout import library_file
from qola.plan.further import own_files, sources_of
from qola.plan.generated import GeneratedModule
from qola.plan.model import PythonModule
from qola.plan.module_entry import nowhere
from qola.plan.request import ResolvedRequest

#: What makes the function that Python calls of a module it imports.
_IMPORTED = re.compile(r"\bPYBIND11_MODULE\b|\bPyInit_")
#: What marks a function that leaves a library, in AITER's sources: its macros, or what they are.
_EXPORTED = re.compile(
    r"\bAITER_C(?:TYPES)?_\w+"
    r"|\bextern\s*\"C\"\s*__attribute__\(\(visibility\(\"default\"\)\)\)"
)


def plan_python_module(
    resolved: ResolvedRequest, module: GeneratedModule, output: Folder
) -> PythonModule:
    """Plan a module whose sources were generated.

    Raises:
        PlanError: no source is left, nothing leaves it, or a header is nowhere.
        CodegenError: it asks for code objects that no arch of the manifest has.
    """
    tree, config, spec = resolved.request.tree, module.config, module.spec
    folder = output.below(spec.name)
    texts = {f"{spec.name}/{file}": text for file, text in own_files(module, folder).items()}
    imported = any(_IMPORTED.search(text) for text in texts.values())
    doubtful = ""
    if not module.kernels.sources:
        doubtful = "no sources (none left)"
    elif not imported and not any(_EXPORTED.search(text) for text in texts.values()):
        doubtful = "neither a function for Python nor one of C that leaves the library"
    if doubtful:
        raise PlanError(
            Finding(
                resolved.place(spec, "name"),
                f"{config.name}: {doubtful}",
                "a module that Python imports, or whose C functions it calls",
                "remove it from the manifest",
            )
        )
    dirs = include_dirs(tree, config)
    includers = [Includer(place, text) for place, text in texts.items()]
    generated = frozenset(module.kernels.headers)
    missing = missing_headers(tree.root, dirs, includers, defined_by(config.flags_hip), generated)
    if missing:
        raise PlanError(nowhere(config.name, found.place, found.name) for found in missing)
    headers = closure(
        tree.root, dirs, sorted({name for text in texts.values() for name, _ in includes(text)})
    )
    name = config.md_name or config.name
    namespace = resolved.request.manifest.namespace
    return PythonModule(
        name=config.name,
        # Python finds a module by its file's name, so it has no namespace before it.
        library=f"{name}.so" if imported else library_file(namespace, name),
        symbol=f"PyInit_{name}" if imported else "",
        copts=config.flags_hip,
        sources=sources_of(module),
        include_dirs=tuple(d for d in dirs if any(h.startswith(f"{d}/") for h in headers)),
        headers=headers,
        rocm=module.rocm,
        generated=module.generated_files,
        code_objects=code_objects(tree, config, resolved.archs, spec.hsa_subdirs),
        inputs=tuple(sorted({*module.tree_files, *headers})),
    )


def export_list(symbol: str) -> str:
    """Linker version script of a Python module.

    Args:
        symbol: the one that leaves it; "" for all C functions that AITER's sources mark.
    """
    if symbol:
        return f"{{\n  global:\n    {symbol};\n  local:\n    *;\n}};\n"
    # What is not marked is hidden; HIP's own, and C++, is nobody's to call.
    return "{\n  local:\n    _Z*;\n    __hip*;\n    qola*;\n};\n"
