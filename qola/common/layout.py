"""Shared names of a bundle's files, of Bazel's actions, and of qola's own patches."""

from __future__ import annotations

from pathlib import Path

from qola.common.packages import QOLA

STATIC = "static"
"""Component of the archive of all modules."""

CMAKE_DIRECTORY = "lib/cmake/qola"
"""Directory of a bundle's CMake package, where find_package looks."""

CMAKE_CONFIG = f"{CMAKE_DIRECTORY}/qola-config.cmake"
"""Main file of the CMake package."""

TRITON = "triton"
"""Module and component of the library of a manifest's Triton kernels."""


OWN_PATCHES = "qola:patches"
"""A patches_dir that names qola's own patches (docs/guide/health.md#proven-faults)."""


def patches_folder(patches_dir: str | Path, folder: Path) -> Path:
    """Return the directory of a patches_dir, which is relative to `folder`, or of OWN_PATCHES."""
    if str(patches_dir) == OWN_PATCHES:
        return QOLA / "aiter/patches"
    return folder / patches_dir


def component_of(module: str) -> str:
    """Return the CMake component of a module: mha_fwd for libmha_fwd."""
    return module.removeprefix("lib")


def pkgconfig_file(component: str) -> str:
    """Return a component's pkg-config file: lib/pkgconfig/qola-mha-fwd.pc for mha_fwd."""
    return f"lib/pkgconfig/qola-{component.replace('_', '-')}.pc"


def cmake_file(component: str) -> str:
    """Return the path of a component's CMake file."""
    return f"{CMAKE_DIRECTORY}/qola-{component}.cmake"


def component_files(component: str) -> tuple[str, ...]:
    """Return the paths of the files that describe only this component."""
    return (cmake_file(component), pkgconfig_file(component))


def library_file(namespace: str, module: str) -> str:
    """Return a library's file name: <namespace>_<module>.so, or <module>.so without namespace."""
    return f"{namespace}_{module}.so" if namespace else f"{module}.so"


def triton_file(namespace: str) -> str:
    """Return the file name of the library of Triton kernels, as qola_triton_library makes it."""
    return f"{namespace or 'qola'}_{TRITON}.so"


def archive_file(namespace: str) -> str:
    """Return the file name of a static archive, as rules/private/static.bzl makes it."""
    return f"libqola_{namespace}.a" if namespace else "libqola.a"


def lazy_place(namespace: str, module: str) -> str:
    """Return the directory of a lazy library's sources, relative to the parent of lib/."""
    return "/".join(["share/qola", *([namespace] if namespace else []), module])


RECORD = "manifest.json"
"""File that describes an output directory."""

CONFIGS = "configs"
"""Directory of AITER's tuning tables; ROCm/QoLA uses the same."""

AITER_JIT = "aiter_jit"
"""Directory of the modules that AITER's own Python imports, for AITER_JIT_DIR."""

FUNCTIONS = "functions"
"""Target and component of all functions of AITER's second JIT, csrc/cpp_itfs."""


def function_file(library: str) -> str:
    """Return where AITER's second JIT looks for a function's library, below AITER_ROOT_DIR.

    Args:
        library: its file name, <name>.so.
    """
    return f"build/{library.removesuffix('.so')}/lib.so"


WHEELS = "dist"
"""Directory of Python wheels in an output directory."""


SBOM = "sbom.spdx.json"

KERNEL_COMPILE = "QolaCompile"
"""Mnemonic of the action that compiles kernel instances, or a source of a torch module."""


def action_name(mnemonic: str, label: str, output: str) -> str:
    """Return the name of a Bazel action for people.

    Args:
        label: label of its target, whose name without the package serves for most actions.
        output: its first output. One target compiles all kernels, so it names their compiles:
            <kernel instance or batch>.pic.o.
    """
    if mnemonic == KERNEL_COMPILE and output.endswith(".pic.o"):
        return output.rpartition("/")[2].removesuffix(".pic.o")
    return label.rpartition(":")[2]
