"""Modules of AITER without PyTorch: Python imports them, or calls their C functions (ctypes)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.missing_headers import Includer, missing_headers
from qola.aiter.preprocess import Macros, defined_by, lines
from qola.codegen.asm.later import code_objects
from qola.errors import Finding, PlanError
from qola.folder import Folder
from qola.layout import library_file
from qola.plan.further import own_files, sources_of
from qola.plan.generated import GeneratedModule
from qola.plan.model import PythonModule
from qola.plan.module_entry import refuse_missing
from qola.plan.request import ResolvedRequest

EXTENSION_NAME = "TORCH_EXTENSION_NAME"
"""Macro for a module's name. AITER's build defines it, whether a module includes PyTorch or not."""

#: The function that Python calls when it imports a module: by pybind11's macro, or as it is.
_ENTRY = re.compile(r"\bPYBIND11_MODULE\s*\(\s*(\w+)|\bPyInit_(\w+)\s*\(")
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
        PlanError: no source is left, nothing leaves it, Python would not find its function, or a
            header is nowhere.
        CodegenError: it asks for code objects that no arch of the manifest has.
    """
    tree, config, spec = resolved.request.tree, module.config, module.spec
    folder = output.below(spec.name)
    texts = {f"{spec.name}/{file}": text for file, text in own_files(module, folder).items()}
    macros = defined_by(config.flags_hip)
    name = config.md_name or config.name
    entries = {entry for text in texts.values() for entry in entry_names(text, macros)}
    imported = bool(entries)
    copts = config.flags_hip
    if EXTENSION_NAME in entries and EXTENSION_NAME not in macros:
        copts += (f"-D{EXTENSION_NAME}={name}",)
        macros[EXTENSION_NAME] = name
    found = {macros.get(entry) or entry for entry in entries}
    doubtful = ""
    if not module.kernels.sources:
        doubtful = "no sources (none left)"
    elif not imported and not any(_EXPORTED.search(text) for text in texts.values()):
        doubtful = "neither a function for Python nor one of C that leaves the library"
    elif imported and name not in found:
        doubtful = f"PyInit_{', PyInit_'.join(sorted(found))}, while Python calls PyInit_{name}"
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
    missing = missing_headers(tree.root, dirs, includers, macros, generated)
    refuse_missing(tree, config.name, missing)
    headers = closure(
        tree.root, dirs, sorted({name for text in texts.values() for name, _ in includes(text)})
    )
    namespace = resolved.request.manifest.namespace
    return PythonModule(
        name=config.name,
        # Python finds a module by its file's name, so it has no namespace before it.
        library=f"{name}.so" if imported else library_file(namespace, name),
        symbol=f"PyInit_{name}" if imported else "",
        copts=copts,
        sources=sources_of(module),
        include_dirs=tuple(d for d in dirs if any(h.startswith(f"{d}/") for h in headers)),
        headers=headers,
        rocm=module.rocm,
        generated=module.generated_files,
        code_objects=code_objects(tree, config, resolved.archs, spec.hsa_subdirs),
        inputs=tuple(sorted({*module.tree_files, *headers})),
    )


def entry_names(text: str, macros: Macros) -> Iterator[str]:
    """Yield the names in a source under which Python imports a module: X of PyInit_X.

    Args:
        macros: those known. A name under a condition on others counts.
    """
    if "PYBIND11_MODULE" in text or "PyInit_" in text:
        read = (line for line in lines(text, macros) if line.counts is not False)
        code = "\n".join(line.text for line in read if not line.text.lstrip().startswith("#"))
        yield from (m[1] or m[2] for m in _ENTRY.finditer(code))


def export_list(symbol: str) -> str:
    """Linker version script of a Python module.

    Args:
        symbol: the one that leaves it; "" for all C functions that AITER's sources mark.
    """
    if symbol:
        return f"{{\n  global:\n    {symbol};\n  local:\n    *;\n}};\n"
    # What is not marked is hidden; HIP's own, and C++, is nobody's to call.
    return "{\n  local:\n    _Z*;\n    __hip*;\n    qola*;\n};\n"
