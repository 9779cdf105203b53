"""Writes BUILD files, export lists and qola_config.h of a plan.

A BUILD file only contains calls of the macros of @qola//rules/private:generated.bzl.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qola.aiter.attention import is_attention
from qola.codegen.types import arch_sets
from qola.common.layout import FUNCTIONS, lazy_place
from qola.common.starlark import call, inline_list, string, string_list
from qola.common.version import __version__
from qola.manifest.constants import AITER
from qola.plan.model import (
    GeneratedSource,
    HeaderSet,
    KernelUnit,
    Plan,
    PlannedModule,
    PythonModule,
    TorchModule,
    TritonKernel,
)
from qola_base.errors import visible

_PYTHON_HEADERS = ("@qola_python//:headers", "@qola_python//:pybind11")
_ROCM_HEADERS = "@rocm//:headers"
_HOST_ONLY = ("dispatch", "asm")
#: A file in the root of the tree; attributes `tree` name it for its directory.
_TREE_LABEL = "@{repository}//:AITER.json"


Value = str | int | tuple[str, ...] | list[str] | Mapping[str, Any] | None


def _call(function: str, /, **arguments: Value) -> str:
    """Return a call with those arguments that are not None.

    Tuples are written in one line, other lists and dicts with a line for each item.
    """
    given = {name: _value(value, 4) for name, value in arguments.items() if value is not None}
    return call(function, given)


def _value(value: Any, indent: int) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, tuple):
        return inline_list(value)
    if isinstance(value, list):
        return string_list(value, indent)
    blank = " " * indent
    lines = [f"{blank}    {string(k)}: {_value(v, indent + 4)}," for k, v in value.items()]
    return "\n".join(["{", *lines, f"{blank}}}"])


def _file(source: str, calls: Sequence[str]) -> str:
    symbols = {"header_set", *(text.partition("(")[0] for text in calls)}
    loads = ", ".join(string(symbol) for symbol in sorted(symbols))
    header = (
        f"# Written by qola {__version__} from {visible(source)}.\n"
        "# Make it again: bazel fetch --force; do not edit."
    )
    return (
        "\n\n".join([header, f'load("@qola//rules/private:generated.bzl", {loads})', *calls]) + "\n"
    )


def _header_set(found: HeaderSet, aiter: str) -> str:
    return _call(
        "header_set",
        name=f"{found.name}.headers",
        headers=_of_tree(found.files, aiter),
        include_dirs=list(found.include_dirs),
        tree=_TREE_LABEL.format(repository=aiter),
    )


def _of_tree(files: Iterable[str], aiter: str) -> list[str]:
    """Return the labels of files of the tree."""
    return [f"@{aiter}//:{file}" for file in files]


def manifest_build_file(plan: Plan, *, source: str, aiter: str) -> str:
    """Return the BUILD file of a manifest's repository.

    Args:
        source: the manifest's path, for the first line.
        aiter: repository of the AITER tree.
    """
    used = {unit.headers for unit in plan.units}
    calls = [
        _call(
            "bundle_files",
            name="bundle_files",
            configs=_of_tree(plan.configs, aiter),
            license_files=_of_tree(plan.licenses, aiter),
            tree=_TREE_LABEL.format(repository=aiter),
        ),
        *(_header_set(found, aiter) for found in plan.header_sets if found.name in used),
    ]
    calls += [_kernel_unit(plan, unit) for unit in plan.units]
    for module in plan.modules:
        calls += _module(plan, module, aiter)
    for python in plan.python_modules:
        calls += _python_module(plan, python, aiter)
    for torch in plan.torch_modules:
        calls += _torch_module(plan, torch, aiter)
    calls += map(_triton_kernel, plan.triton)
    if plan.triton:
        calls.append(_triton_library(plan))
    libraries = sorted(module.name for module in plan.modules)
    if libraries or plan.triton:
        calls.append(
            _call(
                "manifest_targets",
                name=plan.name,
                modules=tuple(libraries),
                triton=":triton_library" if plan.triton else None,
                version=__version__,
            )
        )
    if plan.manifest.get("mode") == AITER:
        calls += _aiter_targets(plan)
    elif plan.torch_modules:
        calls.append(_torch_wheel(plan))
    return _file(source, calls)


def _module(plan: Plan, module: PlannedModule, aiter: str) -> list[str]:
    name = module.name
    own = _by_archs(plan, module, [kernel.name for kernel in plan.kernels_of(module)])
    linked = _by_archs(plan, module, plan.compiled_as(module))
    domain = f"{name}/include/qola_asm_domain.h"
    uses_domain = module.code_objects and not module.asm_tables
    return [
        _header_set(replace(plan.header_set(module.headers), name=name), aiter),
        _call(
            "public_headers",
            name=f"{name}.public_headers",
            config="include/qola_config.h",
            declarations=module.public_header.file,
            headers=f":{name}.headers",
        ),
        _call(
            "module_library",
            name=name,
            archs=plan.archs,
            asm_domain=domain if uses_domain else None,
            asm_tables=[table.file for table in module.asm_tables] or None,
            bundle_files=":bundle_files",
            code_objects=_code_objects(plan.archs, module, aiter),
            copts=list(module.copts),
            entry_source=module.entry_source.file,
            export_list=f"{name}.exports",
            file=module.library,
            headers=f":{name}.headers",
            host_only=tuple(sorted({s.name for s in module.sources if s.role in _HOST_ONLY})),
            kernel_headers=[
                f":{headers}.headers"
                for headers in sorted({unit.headers for unit in plan.units_of(module)})
            ],
            kernel_names=module.kernel_names.file,
            kernels=own,
            linked=linked if linked != own else None,
            max_bytes=plan.manifest.get("max_bytes"),
            namespace=plan.namespace,
            place=lazy_place(plan.namespace, name),
            plan="plan.json",
            public_headers=f":{name}.public_headers",
            sources=_by_arch_set(plan.archs, module.sources),
            stubs=[stub.file for stub in module.stubs],
            tree=_TREE_LABEL.format(repository=aiter),
        ),
    ]


def _kernel_unit(plan: Plan, unit: KernelUnit) -> str:
    kernels = sorted((plan.kernels[index] for index in unit.kernels), key=lambda k: k.name)
    entries: dict[str, list[str]] = {}
    for kernel in kernels:
        entries.setdefault(kernel.entry, []).append(kernel.name)
    batches = {b.name: [plan.kernels[index].name for index in b.kernels] for b in unit.batches}
    named_after_group = unit.name == f"{unit.module}/{unit.kernel_group}"
    return _call(
        "kernel_unit",
        name=unit.name,
        batches=batches or None,
        copts=list(unit.copts),
        directory=unit.module,
        entries=dict(sorted(entries.items())),
        headers=f":{unit.headers}.headers",
        kernels={kernel.name: kernel.archs for kernel in kernels},
        kernel_group=None if named_after_group else unit.kernel_group,
    )


def _python_module(plan: Plan, module: PythonModule, aiter: str) -> list[str]:
    name = module.name
    return [
        _header_set(HeaderSet(name, module.include_dirs, module.headers), aiter),
        _call(
            "python_module",
            name=name,
            archs=plan.archs,
            **_module_attributes(plan, module, aiter),
            plan="plan.json",
            sources={s.name: s.file for s in sorted(module.sources, key=lambda s: s.name)},
            deps=list(_PYTHON_HEADERS if module.symbol and not module.call else ()),
            rocm_headers=_ROCM_HEADERS if module.rocm else None,
        ),
    ]


def _torch_module(plan: Plan, module: TorchModule, aiter: str) -> list[str]:
    name = module.name
    return [
        *(
            _header_set(replace(plan.header_set(found), name=target), aiter)
            for found, target in ((module.headers, name), (module.batch_headers, f"{name}.batches"))
            if found
        ),
        _call(
            "torch_module",
            name=name,
            archs=plan.archs,
            batch_headers=f":{name}.batches.headers" if module.batch_headers else None,
            asm_files=True if module.code_objects and not is_attention(module.entry) else None,
            asm_tables=[table.file for table in module.asm_tables] or None,
            **_module_attributes(plan, module, aiter),
            host_only=module.host_only,
            init=module.init,
            kernels=_by_archs(plan, module, plan.compiled_as(module)),
            per_arch=True if module.per_arch else None,
            plan="plan.json",
            sources=_by_arch_set(plan.archs, module.sources, per_arch=module.per_arch),
            torch="@qola_torch",
            with_torch=module.with_torch,
        ),
    ]


def _module_attributes(
    plan: Plan, module: PythonModule | TorchModule, aiter: str
) -> Mapping[str, Value]:
    """Return the attributes that the rules of both kinds of Python modules have."""
    return {
        "batch_files": {name: list(files) for name, files in module.batch_files.items()} or None,
        "bundle_files": ":bundle_files",
        "code_objects": _code_objects(plan.archs, module, aiter),
        "copts": list(module.copts),
        "export_list": f"{module.name}.exports",
        "file": module.library,
        "generated": [found.file for found in module.generated] or None,
        "headers": f":{module.name}.headers",
        "names": plan.further_names(module.name) or None,
        "source_copts": {name: list(flags) for name, flags in module.source_copts.items()} or None,
    }


def _aiter_targets(plan: Plan) -> list[str]:
    names = [module.name for module in plan.python_modules if not module.call]
    names += [module.name for module in plan.torch_modules]
    functions = sorted(f":{module.name}" for module in plan.functions)
    libraries = _call(
        "function_libraries",
        name=FUNCTIONS,
        libraries=functions,
        tags=("manual",),
        visibility=("//visibility:public",),
    )
    targets = _call(
        "aiter_targets",
        name=plan.name,
        functions=f":{FUNCTIONS}" if functions else None,
        modules=sorted(names),
        version=__version__,
    )
    return [libraries, targets] if functions else [targets]


def _torch_wheel(plan: Plan) -> str:
    return _call(
        "qola_torch_wheel",
        name="torch_wheel",
        modules=sorted(f":{module.name}" for module in plan.torch_modules),
        package=f"qola_{plan.name}_torch",
        tags=("manual",),
        version=__version__,
        visibility=("//visibility:public",),
    )


def _triton_library(plan: Plan) -> str:
    files = {"bundle_files": ":bundle_files", "config": "include/qola_config.h"}
    return _call(
        "qola_triton_library",
        name="triton_library",
        kernels=[f":{kernel.name}" for kernel in plan.triton],
        manifest=files | {"plan": "plan.json"},
        namespace=plan.namespace,
        tags=("manual",),
        visibility=("//visibility:public",),
    )


def _triton_kernel(kernel: TritonKernel) -> str:
    root = "@qola//qola/triton:" if kernel.own else ""
    source, *deps = (root + file.file for file in kernel.files)
    return _call(
        "qola_triton_kernel",
        name=kernel.name,
        src=source,
        archs=kernel.archs,
        choices={name: list(values) for name, values in sorted(kernel.choices.items())},
        function=kernel.function,
        signature=dict(sorted(kernel.signature.items())) or None,
        tags=("manual",),
        timeout=kernel.timeout or None,
        visibility=("//visibility:public",),
        deps=tuple(deps),
    )


def _code_objects(
    archs: Sequence[str], module: PlannedModule | PythonModule | TorchModule, aiter: str
) -> dict[str, dict[str, str]] | None:
    if not module.code_objects:
        return None
    found: dict[str, dict[str, str]] = {arch: {} for arch in archs}
    for code_object in sorted(module.code_objects, key=lambda found: found.file):
        found[code_object.arch][f"@{aiter}//:{code_object.file}"] = code_object.key
    return found


def _by_archs(
    plan: Plan, module: PlannedModule | TorchModule, names: Sequence[str]
) -> dict[str, list[str]]:
    """Return labels of a module's kernels by their archs, which are separated by spaces.

    Args:
        names: for each kernel instance its own name, or that of its batch.
    """
    units = plan.unit_by_kernel(module)
    found: dict[str, dict[str, None]] = {}
    for index, name in zip(module.kernels, names, strict=True):
        archs = " ".join(plan.kernels[index].archs)
        found.setdefault(archs, {})[f":{units[index].name}/{name}"] = None
    order = [" ".join(chosen) for chosen in arch_sets(plan.archs)]
    return {key: [*found[key]] for key in order if key in found}


def _by_arch_set(
    archs: Sequence[str], sources: Sequence[GeneratedSource], *, per_arch: bool = False
) -> dict[str, dict[str, str]]:
    """Return files of sources by name, for each set of archs that a library can have.

    Args:
        per_arch: a library has the sources of each of its archs instead.
    """
    ordered = sorted(sources, key=lambda source: source.name)
    sets = [(arch,) for arch in archs] if per_arch else arch_sets(archs)
    return {
        " ".join(chosen): {s.name: s.file for s in ordered if s.archs in ((), chosen)}
        for chosen in sets
    }


def export_list(namespace: str) -> str:
    """Return the linker version script that exports the namespace and its C functions only.

    Patterns below extern "C++" match demangled symbols, so entry points of any signature match.
    Type information has the prefix "typeinfo for" there, and is hidden.
    """
    scope = f"qola::{namespace}" if namespace else "qola"
    prefix = f"qola_{namespace}_mha_" if namespace else "qola_mha_"
    return (
        f'{{\n  global:\n    extern "C++" {{\n      {scope}::*;\n    }};\n    {prefix}*;\n'
        "  local:\n    *;\n};\n"
    )


def config_header(plan: Plan, *, source: str) -> str:
    """Return qola_config.h: namespace, macros and signatures of one manifest's libraries."""
    lines = [
        f"// Written by qola {__version__} from {visible(source)}.",
        "// A source that includes this header speaks to the libraries of this manifest.",
        "#pragma once",
        "",
        "// Their namespace below qola::, for QOLA_NS(function) of qola_common.h.",
        f"#define QOLA_NAMESPACE {plan.namespace}" if plan.namespace else "// None: qola:: itself.",
    ]
    macros = {name: value for module in plan.modules for name, value in module.macros.items()}
    if macros:
        lines += ["", "// What the libraries are compiled with and AITER's headers ask for."]
    for name, value in sorted(macros.items()):
        lines += [f"#ifndef {name}", f"#define {name} {value}".rstrip(), "#endif"]
    lines += ["", "// The functions of the libraries, and how many parameters each takes."]
    lines += [
        f"#define QOLA_{entry.name.upper()}_PARAMETERS {entry.parameters}"
        for module in plan.modules
        for entry in module.entries
    ]
    order = plan.manifest.get("order", {})
    for direction in ("forward", "backward"):
        if direction in order:
            lines += ["", f"// Which kernels come first, for qola_order.hpp: {direction}."]
            listed = ", ".join(f"Kind::{kind}" for kind in order[direction])
            lines.append(f"#define QOLA_ORDER_{direction.upper()} {listed}")
    return "\n".join(lines) + "\n"
