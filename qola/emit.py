"""Writes what Bazel reads, from the plan alone: BUILD files, export lists and qola_config.h.

A BUILD file holds calls of the macros of @qola//rules:defs.bzl and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from qola import __version__

_ENTRY_LABEL = "@qola//qola/cpp_itfs:{entry}.cpp"
_PYTHON_HEADERS = ("@qola_pip_pybind11//:headers", "@qola_python//:headers")
#: Stands for the tree in labels: its root's file, whose repository is the tree's.
_TREE_LABEL = "@{repository}//:AITER.json"


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _list(items: Iterable[str], indent: int) -> str:
    """A Starlark list of strings, one a line."""
    lines = [" " * (indent + 4) + _string(item) + "," for item in items]
    return "\n".join(["[", *lines, " " * indent + "]"]) if lines else "[]"


def _inline(items: Iterable[str]) -> str:
    return "[" + ", ".join(_string(item) for item in items) + "]"


def _call(function: str, arguments: Mapping[str, str]) -> str:
    lines = [f"    {name} = {value}," for name, value in arguments.items()]
    return "\n".join([f"{function}(", *lines, ")"])


def _file(source: str, symbols: Iterable[str], calls: Iterable[str]) -> str:
    loads = ", ".join(_string(symbol) for symbol in sorted(set(symbols)))
    header = (
        f"# Written by qola {__version__} from {source}.\n"
        "# Make it again: bazel fetch --force; do not edit."
    )
    return "\n\n".join([header, f'load("@qola//rules:defs.bzl", {loads})', *calls]) + "\n"


def _header_set(plan: Mapping[str, Any], headers: str, name: str, aiter: str) -> str:
    found = next(h for h in plan["header_sets"] if h["name"] == headers)
    return _call(
        "header_set",
        {
            "name": _string(name),
            "headers": _list((f"@{aiter}//:{file}" for file in found["files"]), 4),
            "include_dirs": _list(found["include_dirs"], 4),
            "tree": _string(_TREE_LABEL.format(repository=aiter)),
        },
    )


def manifest_build_file(plan: Mapping[str, Any], *, source: str, aiter: str) -> str:
    """BUILD file of a manifest's repository.

    Args:
        plan: plan.json as data.
        source: the manifest's path, for the first line.
        aiter: repository of the AITER tree; that of the kernels is named after it.
    """
    calls = []
    for module in plan["modules"]:
        name = module["name"]
        sources = {s["name"]: s["file"] for s in module["sources"]}
        sources["entry_point"] = _ENTRY_LABEL.format(entry=module["entry"])
        kernels = [plan["kernels"][index] for index in module["kernels"]]
        calls.append(_header_set(plan, module["headers"], f"{name}.headers", aiter))
        calls.append(
            _call(
                "public_headers",
                {
                    "name": _string(f"{name}.public_headers"),
                    "config": _string("include/qola_config.h"),
                    "headers": _string(f":{name}.headers"),
                },
            )
        )
        calls.append(
            _call(
                "module_library",
                {
                    "name": _string(name),
                    "archs": _inline(plan["archs"]),
                    "copts": _list(module["copts"], 4),
                    "export_list": _string(f"{name}.exports"),
                    "file": _string(module["library"]),
                    "headers": _string(f":{name}.headers"),
                    "kernels": _list(
                        (f"@qola_kernels_{aiter}//{k['package']}:{k['name']}" for k in kernels), 4
                    ),
                    "plan": _string("plan.json"),
                    "public_headers": _string(f":{name}.public_headers"),
                    "sources": _dict(sources),
                },
            )
        )
    python_modules = plan.get("python_modules", ())
    calls += [call for module in python_modules for call in _python_module(plan, module, aiter)]
    symbols = ["header_set"]
    symbols += ["module_library", "public_headers"] if plan["modules"] else []
    symbols += ["python_module"] if python_modules else []
    return _file(source, symbols, calls)


def _python_module(plan: Mapping[str, Any], module: Mapping[str, Any], aiter: str) -> list[str]:
    name = module["name"]
    return [
        _call(
            "header_set",
            {
                "name": _string(f"{name}.headers"),
                "headers": _list((f"@{aiter}//:{file}" for file in module["headers"]), 4),
                "include_dirs": _list(module["include_dirs"], 4),
                "tree": _string(_TREE_LABEL.format(repository=aiter)),
            },
        ),
        _call(
            "python_module",
            {
                "name": _string(name),
                "archs": _inline(plan["archs"]),
                "copts": _list(module["copts"], 4),
                "export_list": _string(f"{name}.exports"),
                "file": _string(module["library"]),
                "headers": _string(f":{name}.headers"),
                "plan": _string("plan.json"),
                "sources": _dict({s["name"]: s["file"] for s in module["sources"]}),
                "deps": _list(_PYTHON_HEADERS, 4),
            },
        ),
    ]


def _dict(items: Mapping[str, str]) -> str:
    lines = [f"        {_string(key)}: {_string(value)}," for key, value in sorted(items.items())]
    return "\n".join(["{", *lines, "    }"])


def kernel_build_file(
    plan: Mapping[str, Any],
    package: str,
    archs: Mapping[str, tuple[str, ...]],
    *,
    sources: str,
    aiter: str,
) -> str:
    """BUILD file of one package of the kernel repository.

    Args:
        plan: plan.json, as data, of a manifest that uses the package: flags and headers are
            those of all that do.
        package: its name.
        archs: archs of each kernel instance, in the order to write.
        sources: where it came from, for the first line.
        aiter: repository of the AITER tree.
    """
    settings = plan["packages"][package]
    lines = [f"        {_string(name)}: {_inline(a)}," for name, a in archs.items()]
    calls = [
        _header_set(plan, settings["headers"], "headers", aiter),
        _call(
            "kernel_instances",
            {
                "copts": _list(settings["copts"], 4),
                "headers": _string(":headers"),
                "kernels": "\n".join(["{", *lines, "    }"]),
            },
        ),
    ]
    return _file(sources, ["header_set", "kernel_instances"], calls)


def export_list(namespace: str) -> str:
    """Linker version script that lets the namespace out, and nothing else.

    Plain names below extern "C++" are matched against demangled symbols, so that entry points of
    any signature pass; type information is named "typeinfo for ..." there and stays inside.
    """
    scope = f"qola::{namespace}" if namespace else "qola"
    return (
        f'{{\n  global:\n    extern "C++" {{\n      {scope}::*;\n    }};\n  local:\n    *;\n}};\n'
    )


def config_header(plan: Mapping[str, Any], *, source: str) -> str:
    """Text of qola_config.h: the namespace and the signatures of one manifest's libraries."""
    namespace = plan["namespace"]
    nested = f" namespace {namespace} {{" if namespace else ""
    lines = [
        f"// Written by qola {__version__} from {source}.",
        "// A source that includes this header speaks to the libraries of this manifest.",
        "#pragma once",
        "",
        f"#define QOLA_NS ::qola{'::' + namespace if namespace else ''}",
        f"#define QOLA_NS_BEGIN namespace qola {{{nested}",
        f"#define QOLA_NS_END }}{' }' if namespace else ''}",
        "",
        "// Number of parameters of AITER's entry points, which tells their forms apart.",
    ]
    lines += [
        f"#define QOLA_{module['entry'].upper()}_PARAMETERS {module['parameters']}"
        for module in plan["modules"]
    ]
    return "\n".join(lines) + "\n"
