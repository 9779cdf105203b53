"""Writes BUILD files, export lists and qola_config.h of a plan.

A BUILD file only contains calls of the macros of @qola//rules/private:generated.bzl.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from qola.codegen.types import arch_sets
from qola.errors import visible
from qola.layout import lazy_place
from qola.plan.model import (
    GeneratedSource,
    HeaderSet,
    KernelInstance,
    Plan,
    PlannedModule,
    PythonModule,
    TorchModule,
    TritonKernel,
)
from qola.starlark import call
from qola.starlark import dict_of_lists as _dict_of_lists
from qola.starlark import inline_list as _inline
from qola.starlark import string as _string
from qola.starlark import string_dict as _string_dict
from qola.starlark import string_list as _list
from qola.version import __version__

_PYTHON_HEADERS = ("@qola_python//:headers", "@qola_python//:pybind11")
_ROCM_HEADERS = "@qola_rocm//:headers"
#: A file in the root of the tree; attributes `tree` name it for its directory.
_TREE_LABEL = "@{repository}//:AITER.json"


def _call(function: str, /, **arguments: str | None) -> str:
    """Return a call with those arguments that are not None."""
    return call(function, {name: text for name, text in arguments.items() if text is not None})


def _file(source: str, symbols: Iterable[str], calls: Iterable[str]) -> str:
    loads = ", ".join(_string(symbol) for symbol in sorted(set(symbols)))
    header = (
        f"# Written by qola {__version__} from {visible(source)}.\n"
        "# Make it again: bazel fetch --force; do not edit."
    )
    return (
        "\n\n".join([header, f'load("@qola//rules/private:generated.bzl", {loads})', *calls]) + "\n"
    )


def _header_set(name: str, found: HeaderSet, aiter: str, **more: str) -> str:
    return _call(
        "header_set",
        name=_string(name),
        headers=_of_tree(found.files, aiter),
        include_dirs=_list(found.include_dirs, 4),
        tree=_string(_TREE_LABEL.format(repository=aiter)),
        **more,
    )


def _of_tree(files: Iterable[str], aiter: str) -> str:
    """Return the labels of files of the tree."""
    return _list((f"@{aiter}//:{file}" for file in files), 4)


def _bundle_files(plan: Plan, aiter: str) -> str:
    return _call(
        "bundle_files",
        name=_string("bundle_files"),
        configs=_of_tree(plan.configs, aiter),
        license_files=_of_tree(plan.licenses, aiter),
        tree=_string(_TREE_LABEL.format(repository=aiter)),
    )


def manifest_build_file(plan: Plan, *, source: str, aiter: str) -> str:
    """Return the BUILD file of a manifest's repository.

    Args:
        source: the manifest's path, for the first line.
        aiter: repository of the AITER tree.
    """
    calls = [_bundle_files(plan, aiter)]
    used = {kernel.headers for kernel in plan.kernels}
    calls += [
        _header_set(f"{h.name}.headers", h, aiter) for h in plan.header_sets if h.name in used
    ]
    for owner in plan.with_kernels:
        calls += _kernel_instances(plan, owner)
    for module in plan.modules:
        calls += _module(plan, module, aiter)
    for python in plan.python_modules:
        calls += _python_module(plan, python, aiter)
    for torch in plan.torch_modules:
        calls += _torch_module(plan, torch, aiter)
    calls += _triton_targets(plan)
    symbols = ["bundle_files", "header_set"]
    symbols += ["kernel_instances"] if plan.kernels else []
    names = sorted(module.name for module in plan.modules)
    if names or plan.triton:
        calls.append(
            _call(
                "manifest_targets",
                name=_string(plan.name),
                modules=_inline(names),
                triton=_string(":triton_library") if plan.triton else None,
                version=_string(__version__),
            )
        )
        symbols += ["manifest_targets"]
        symbols += ["module_library", "public_headers"] if names else []
    symbols += ["python_module"] if plan.python_modules else []
    if plan.torch_modules:
        calls.append(_torch_wheel(plan))
        symbols += ["torch_module", "qola_torch_wheel"]
    symbols += ["qola_triton_kernel", "qola_triton_library"] if plan.triton else []
    return _file(source, symbols, calls)


def _module(plan: Plan, module: PlannedModule, aiter: str) -> list[str]:
    name = module.name
    kernels = plan.kernels_of(module)
    own = _by_arch(plan, {kernel.name: kernel for kernel in kernels})
    linked = _by_arch(plan, dict(zip(plan.compiled_as(module), kernels, strict=True)))
    host_only = {s.name for s in module.sources if s.role in ("dispatch", "asm")}
    return [
        _header_set(f"{name}.headers", plan.header_set(module.headers), aiter),
        _call(
            "public_headers",
            name=_string(f"{name}.public_headers"),
            config=_string("include/qola_config.h"),
            declarations=_string(module.public_header.file),
            headers=_string(f":{name}.headers"),
        ),
        _call(
            "module_library",
            name=_string(name),
            archs=_inline(plan.archs),
            **_asm_headers(module),
            bundle_files=_string(":bundle_files"),
            **_code_objects(plan.archs, module, aiter),
            copts=_list(module.copts, 4),
            entry_source=_string(module.entry_source.file),
            export_list=_string(f"{name}.exports"),
            file=_string(module.library),
            headers=_string(f":{name}.headers"),
            host_only=_inline(sorted(host_only)),
            kernel_headers=_list(_kernel_headers(kernels), 4),
            kernel_names=_string(module.kernel_names.file),
            kernels=_dict_of_lists(own),
            linked=_dict_of_lists(linked) if linked != own else None,
            namespace=_string(plan.namespace),
            place=_string(lazy_place(plan.namespace, name)),
            plan=_string("plan.json"),
            public_headers=_string(f":{name}.public_headers"),
            sources=_dict_of_dicts(_by_arch_set(plan.archs, module.sources)),
            stubs=_list((stub.file for stub in module.stubs), 4),
            tree=_string(_TREE_LABEL.format(repository=aiter)),
        ),
    ]


def _kernel_instances(plan: Plan, module: PlannedModule | TorchModule) -> list[str]:
    """Return the calls that declare the kernel instances of a module, one for each group."""
    groups: dict[str, list[KernelInstance]] = {}
    for kernel in sorted(plan.kernels_of(module), key=lambda kernel: kernel.name):
        groups.setdefault(_group(plan, kernel), []).append(kernel)
    batches: dict[str, dict[str, list[str]]] = {}
    for batch in plan.batches:
        members = [plan.kernels[index] for index in batch.kernels]
        names = batches.setdefault(_group(plan, members[0]), {})
        names[batch.name] = [member.name for member in members]
    return [
        _kernel_group(plan, module.name, group, kernels, batches.get(group, {}))
        for group, kernels in sorted(groups.items())
    ]


def _kernel_group(
    plan: Plan,
    module: str,
    group: str,
    kernels: Sequence[KernelInstance],
    batches: Mapping[str, Sequence[str]],
) -> str:
    package = kernels[0].package
    entries: dict[str, list[str]] = {}
    for kernel in kernels:
        entries.setdefault(kernel.entry, []).append(kernel.name)
    archs = [f"        {_string(k.name)}: {_inline(k.archs)}," for k in kernels]
    return _call(
        "kernel_instances",
        name=_string(group),
        batches=_dict_of_lists(dict(sorted(batches.items()))) if batches else None,
        copts=_list(plan.packages[package].copts, 4),
        directory=_string(module),
        entries=_dict_of_lists(dict(sorted(entries.items()))),
        headers=_string(f":{kernels[0].headers}.headers"),
        kernels="\n".join(["{", *archs, "    }"]),
        **({} if group.endswith(f"/{package}") else {"package": _string(package)}),
    )


def _python_module(plan: Plan, module: PythonModule, aiter: str) -> list[str]:
    name = module.name
    headers = HeaderSet(name, module.include_dirs, module.headers)
    return [
        _header_set(f"{name}.headers", headers, aiter),
        _call(
            "python_module",
            name=_string(name),
            archs=_inline(plan.archs),
            bundle_files=_string(":bundle_files"),
            **_code_objects(plan.archs, module, aiter),
            copts=_list(module.copts, 4),
            export_list=_string(f"{name}.exports"),
            file=_string(module.library),
            **_generated(module),
            headers=_string(f":{name}.headers"),
            plan=_string("plan.json"),
            sources=_string_dict({s.name: s.file for s in module.sources}),
            deps=_list(_PYTHON_HEADERS if module.symbol else (), 4),
            rocm_headers=_string(_ROCM_HEADERS) if module.rocm else None,
        ),
    ]


def _torch_module(plan: Plan, module: TorchModule, aiter: str) -> list[str]:
    name = module.name
    kernels = plan.kernels_of(module)
    linked = _by_arch(plan, dict(zip(plan.compiled_as(module), kernels, strict=True)))
    return [
        _header_set(f"{name}.headers", plan.header_set(module.headers), aiter),
        _call(
            "torch_module",
            name=_string(name),
            archs=_inline(plan.archs),
            **_asm_tables(module),
            bundle_files=_string(":bundle_files"),
            **_code_objects(plan.archs, module, aiter),
            copts=_list(module.copts, 4),
            export_list=_string(f"{name}.exports"),
            file=_string(module.library),
            **_generated(module),
            headers=_string(f":{name}.headers"),
            host_only=_inline(module.host_only),
            init=_inline(module.init),
            kernels=_dict_of_lists(linked),
            plan=_string("plan.json"),
            sources=_dict_of_dicts(_by_arch_set(plan.archs, module.sources)),
            torch=_string("@qola_torch"),
        ),
    ]


def _torch_wheel(plan: Plan) -> str:
    return _call(
        "qola_torch_wheel",
        name=_string("torch_wheel"),
        modules=_list(sorted(f":{module.name}" for module in plan.torch_modules), 4),
        package=_string(f"qola_{plan.name}_torch"),
        tags=_inline(["manual"]),
        version=_string(__version__),
        visibility=_inline(["//visibility:public"]),
    )


def _triton_targets(plan: Plan) -> list[str]:
    """Return the calls that declare the kernels in Triton and their library."""
    if not plan.triton:
        return []
    library = _call(
        "qola_triton_library",
        name=_string("triton_library"),
        kernels=_list((f":{kernel.name}" for kernel in plan.triton), 4),
        manifest=_string_dict(
            {
                "bundle_files": ":bundle_files",
                "config": "include/qola_config.h",
                "plan": "plan.json",
            }
        ),
        namespace=_string(plan.namespace),
        tags=_inline(["manual"]),
        visibility=_inline(["//visibility:public"]),
    )
    return [*map(_triton_kernel, plan.triton), library]


def _triton_kernel(kernel: TritonKernel) -> str:
    root = "@qola//qola/triton:" if kernel.own else ""
    source, *deps = (root + file.file for file in kernel.files)
    return _call(
        "qola_triton_kernel",
        name=_string(kernel.name),
        src=_string(source),
        archs=_inline(kernel.archs),
        choices=_dict_of_lists(dict(sorted(kernel.choices.items()))),
        function=_string(kernel.function),
        signature=_string_dict(kernel.signature) if kernel.signature else None,
        tags=_inline(["manual"]),
        timeout=str(kernel.timeout) if kernel.timeout else None,
        visibility=_inline(["//visibility:public"]),
        deps=_inline(deps),
    )


def _generated(module: PythonModule | TorchModule) -> dict[str, str]:
    if not module.generated:
        return {}
    return {"generated": _list((found.file for found in module.generated), 4)}


def _asm_tables(module: PlannedModule | TorchModule) -> dict[str, str]:
    if not module.asm_tables:
        return {}
    return {"asm_tables": _list((table.file for table in module.asm_tables), 4)}


def _asm_headers(module: PlannedModule) -> dict[str, str]:
    if tables := _asm_tables(module):
        return tables
    if not module.code_objects:
        return {}
    return {"asm_domain": _string(f"{module.name}/include/qola_asm_domain.h")}


def _code_objects(
    archs: Sequence[str], module: PlannedModule | PythonModule | TorchModule, aiter: str
) -> dict[str, str]:
    if not module.code_objects:
        return {}
    found: dict[str, dict[str, str]] = {arch: {} for arch in archs}
    for code_object in module.code_objects:
        found[code_object.arch][f"@{aiter}//:{code_object.file}"] = code_object.key
    return {"code_objects": _dict_of_dicts(found)}


def _kernel_headers(kernels: Iterable[KernelInstance]) -> list[str]:
    """Return the labels of the kernel instances' header sets."""
    return [f":{name}.headers" for name in sorted({kernel.headers for kernel in kernels})]


def _group(plan: Plan, kernel: KernelInstance) -> str:
    """Return the label prefix of the kernel instances with the same flags and headers."""
    package = f"{kernel.module}/{kernel.package}"
    same = kernel.headers == plan.packages[kernel.package].headers
    return package if same else f"{package}.{kernel.headers}"


def _by_arch(plan: Plan, named: Mapping[str, KernelInstance]) -> dict[str, list[str]]:
    """Return labels by their archs, which are separated by spaces.

    Args:
        named: names of targets, each with a kernel instance of its archs and package.
    """
    found: dict[str, list[str]] = {}
    for name, kernel in named.items():
        found.setdefault(" ".join(kernel.archs), []).append(f":{_group(plan, kernel)}/{name}")
    order = [" ".join(chosen) for chosen in arch_sets(plan.archs)]
    return {key: found[key] for key in order if key in found}


def _by_arch_set(
    archs: Sequence[str], sources: Sequence[GeneratedSource]
) -> dict[str, dict[str, str]]:
    """Return files of sources by name, for each set of archs that a library can have."""
    return {
        " ".join(chosen): {s.name: s.file for s in sources if s.archs in ((), chosen)}
        for chosen in arch_sets(archs)
    }


def _dict_of_dicts(items: Mapping[str, Mapping[str, str]]) -> str:
    lines = []
    for key, values in items.items():
        inner = [f"            {_string(k)}: {_string(v)}," for k, v in sorted(values.items())]
        lines += [f"        {_string(key)}: {{", *inner, "        },"]
    return "\n".join(["{", *lines, "    }"])


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
