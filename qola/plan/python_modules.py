"""Modules that Python imports or calls: AITER's sources, with PyTorch's headers or without.

The kernel instances of an attention module are those of the library of its direction if the
module's flags do not change them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from qola.aiter.attention import is_attention
from qola.aiter.includes import closure, include_dirs, includes, reaching
from qola.aiter.preprocess import Macros, defined_by, lines, without_comments
from qola.aiter.tree import AiterTree, ModuleConfig
from qola.codegen.asm.path import code_objects
from qola.common.folder import Folder
from qola.common.layout import library_file
from qola.plan.generate import GeneratedModule, not_for_python, own_texts, planned_files
from qola.plan.inputs import find_headers, used_dirs
from qola.plan.model import HeaderSet, PlannedFile, PythonModule, TorchModule
from qola.plan.module_entry import entry_macros, refuse_missing, without_kernels
from qola.plan.request import ResolvedRequest
from qola_base.errors import Finding, PlanError

EXTENSION_NAME = "TORCH_EXTENSION_NAME"
"""Macro with a module's name. AITER's build defines it for modules without PyTorch, too."""

#: Defines the init function of a module, by pybind11's macro or directly.
_INIT = re.compile(r"\bPYBIND11_MODULE\s*\(\s*(\w+)|\bPyInit_(\w+)\s*\(")
#: Marks an exported C function in AITER's sources, by AITER's macros or directly.
_EXPORTED = re.compile(
    r"\bAITER_C(?:TYPES)?_\w+"
    r"|\bextern\s*\"C\"\s*__attribute__\(\(visibility\(\"default\"\)\)\)"
)
_GUARDED = r"^[ \t]*#[ \t]*ifndef[ \t]+{0}\s*\n[ \t]*#[ \t]*define[ \t]+{0}[ \t]+(\w+)[ \t]*$"
_DEFINED = r"^[ \t]*#[ \t]*define[ \t]+{0}[ \t]+(\w+)[ \t]*$"
#: Marks device code in a source: a kernel, or the launch of one.
_DEVICE = re.compile(r"__global__|__device__|<<<|hipLaunchKernel|launch_kernel|make_kernel")


#: Directories of PyTorch's headers. AITER has headers below torch/, too, which its tree has.
_TORCH_HEADERS = ("ATen/", "c10/", "torch/")
#: Flags that PyTorch's headers do not depend on: options of LLVM, warnings, and macros other than
#: those of PyTorch, pybind11 and Python. Clang refuses a header that was precompiled with other
#: flags of the language.
_WITHOUT_EFFECT_ON_TORCH = re.compile(
    r"-mllvm(=.*)?|-W[^lp].*|-ftemplate-depth=\d+"
    r"|-[DU](?!(AT|C10|CAFFE2|PY|PYBIND11|TORCH|USE)_)\w+(=.*)?"
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
    texts = own_texts(module, output)
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
        raise not_for_python(resolved, module, wrong)
    dirs = include_dirs(tree, config)
    refuse_missing(tree, module, texts, macros)
    roots = sorted({root for text in texts.values() for root, _ in includes(text)})
    headers = closure(tree.root, dirs, roots)
    namespace = resolved.request.manifest.namespace
    return PythonModule(
        name=config.name,
        # Python finds a module by the name of its file, which therefore has no namespace.
        library=f"{name}.so" if entries else library_file(namespace, name),
        symbol=f"PyInit_{name}" if entries else "",
        copts=copts,
        sources=planned_files(module.kernels.sources),
        include_dirs=used_dirs(dirs, headers),
        headers=headers,
        rocm=module.rocm,
        generated=module.generated_files,
        code_objects=code_objects(tree, config, resolved.archs, spec.hsa_subdirs, texts.values()),
        inputs=tuple(sorted({*module.tree_files, *headers})),
        source_copts=module.source_copts,
        batch_files=module.batch_files,
    )


def init_names(text: str, macros: Macros) -> Iterator[str]:
    """Yield the names of the modules that a source defines: X of PyInit_X.

    Code under a condition on unknown macros counts.
    """
    if "PYBIND11_MODULE" in text or "PyInit_" in text:
        read = (line for line in lines(text, macros) if line.counts is not False)
        code = "\n".join(line.text for line in read if not line.text.lstrip().startswith("#"))
        yield from (m[1] or m[2] for m in _INIT.finditer(code))


def python_exports(symbol: str) -> str:
    """Return the linker version script of a Python module.

    Args:
        symbol: the only exported symbol; "" for all C functions that AITER's sources mark.
    """
    if symbol:
        return f"{{\n  global:\n    {symbol};\n  local:\n    *;\n}};\n"
    # Unmarked functions are hidden already. Symbols of HIP and of C++ are hidden here.
    return "{\n  local:\n    _Z*;\n    __hip*;\n    qola*;\n};\n"


def plan_torch_module(
    resolved: ResolvedRequest,
    module: GeneratedModule,
    output: Folder,
    kernels: tuple[int, ...],
    entry_sources: tuple[PlannedFile, ...],
) -> tuple[TorchModule, list[HeaderSet]]:
    """Plan a torch module whose kernel instances were planned; return it with its header sets.

    Raises:
        PlanError: attention without a kernel, a header that does not exist, or no source with an
            init function for Python.
    """
    tree, config, name = resolved.request.tree, module.config, module.spec.name
    attention = is_attention(config.name)
    if attention and not module.kernels.kernels and not module.kernels.code_objects:
        raise PlanError(without_kernels(resolved, module))
    texts = {source.file: output.text(source.file) for source in module.kernels.sources}
    macros = entry_macros(tree, module, resolved.archs)
    read = texts if attention else own_texts(module, output)
    roots = {root for text in read.values() for root, _ in includes(text)}
    headers = [find_headers(tree, config, name, roots)]
    if module.batch_files:
        texts_of_batches = (
            output.text(file) for files in module.batch_files.values() for file in files
        )
        roots = {root for text in texts_of_batches for root, _ in includes(text)}
        headers.append(find_headers(tree, config, f"{name}.batches", roots))
    refuse_missing(tree, module, read, macros.known)
    init = {
        source.name
        for source in module.kernels.sources
        if EXTENSION_NAME in init_names(texts[source.file], macros.known)
    }
    if not init:
        raise PlanError(
            Finding(
                f"{name}.srcs",
                f"no source with {EXTENSION_NAME}, so that Python finds no function to call",
                f"a source with PYBIND11_MODULE({EXTENSION_NAME}, m)",
                "keep it (drop_srcs), or name it (srcs)",
            )
        )
    host_only = {
        source.name
        for source in module.kernels.sources
        if source.role in ("dispatch", "asm") or not _DEVICE.search(texts[source.file])
        # Sources of other modules may include kernels.
        if attention or source.name in init
    }
    library = library_file(resolved.request.manifest.namespace, config.md_name or name)
    objects = module.kernels.code_objects
    if not attention:
        subdirs = module.spec.hsa_subdirs
        objects = code_objects(tree, config, resolved.archs, subdirs, read.values())
    planned = TorchModule(
        name=name,
        entry=config.name,
        library=library,
        symbol=f"PyInit_{library.removesuffix('.so')}",
        receipt=module.spec.receipt,
        copts=config.flags_hip + macros.flags,
        kernels=kernels,
        sources=module.kernels.sources,
        host_only=tuple(sorted(host_only)),
        init=tuple(sorted(init)),
        headers=name,
        code_objects=objects,
        asm_tables=module.generated_files if attention else (),
        entry_sources=entry_sources,
        directions=module.kernels.directions,
        generated=() if attention else module.generated_files,
        source_copts={} if attention else module.source_copts,
        batch_files=module.batch_files,
        batch_headers=headers[1].name if module.batch_files else "",
        per_arch=module.per_arch,
        with_torch=_sources_with_torch(tree, module, output),
    )
    return planned, headers


def kernel_config(
    tree: AiterTree,
    config: ModuleConfig,
    library: ModuleConfig,
    headers: Iterable[HeaderSet],
    texts: Sequence[str],
) -> ModuleConfig:
    """Return the entry whose flags compile a torch module's kernel instances.

    It has the library's flags if the differing flags do not change the kernel instances. A macro
    changes nothing if neither sources nor headers name it, or if its value is the default that a
    header defines.
    """
    files = sorted({file for found in headers for file in found.files})
    read = [*(tree.text(file) for file in files), *texts]
    differing = sorted({*config.flags_hip} ^ {*library.flags_hip})
    macros_only = all(re.fullmatch(r"-D\w+(=\w*)?", flag) for flag in differing)
    if macros_only and all(_is_without_effect(flag, read) for flag in differing):
        return replace(config, flags_hip=library.flags_hip)
    return config


def _is_without_effect(flag: str, texts: Sequence[str]) -> bool:
    (name, value), *_ = defined_by([flag]).items()
    naming = [text for text in texts if name in text]
    naming = [text for text in naming if re.search(rf"\b{name}\b", without_comments(text))]
    if not naming:
        return True
    defaults = [m[1] for text in naming for m in re.finditer(_GUARDED.format(name), text, re.M)]
    if len(defaults) != 1:
        return False
    # The default may be a macro itself.
    defined = _DEFINED.format(defaults[0])
    values = {m[1] for text in naming for m in re.finditer(defined, text, re.M)}
    return value == defaults[0] or {value} == values


def _sources_with_torch(
    tree: AiterTree, module: GeneratedModule, output: Folder
) -> tuple[str, ...]:
    """Return the names of the sources that include PyTorch, with flags that do not change it."""
    config = module.config
    texts: dict[str, str] = defaultdict(str)
    for source in (*module.kernels.sources, *module.kernels.tables):
        # Files of several archs have the same name, and a batch reads only its own.
        files = module.batch_files.get(source.name, ()) or (source.file,)
        texts[source.name] += "\n".join(output.text(file) for file in files)
    found = reaching(tree.root, include_dirs(tree, config), texts, _TORCH_HEADERS)
    names = {source.name for source in module.kernels.sources if source.name in found}
    copts = module.source_copts
    return tuple(
        sorted(n for n in names if _without_effect_on_torch((*config.flags_hip, *copts.get(n, ()))))
    )


def _without_effect_on_torch(flags: Iterable[str]) -> bool:
    # The next argument is the value of -mllvm.
    pairs = pairwise(("", *flags))
    return all(
        _WITHOUT_EFFECT_ON_TORCH.fullmatch(flag) for before, flag in pairs if before != "-mllvm"
    )
