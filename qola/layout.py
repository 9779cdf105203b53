"""Names that several packages agree on: of a bundle's files, and of Bazel's actions."""

from __future__ import annotations

STATIC = "static"
"""The component that is the archive of all modules."""

CMAKE_DIRECTORY = "lib/cmake/qola"
"""Where a bundle has its CMake package; find_package looks there below each prefix."""

CMAKE_CONFIG = f"{CMAKE_DIRECTORY}/qola-config.cmake"
"""The file that makes it one."""


TRITON = "triton"
"""The module, and component, that is the library of a manifest's kernels in Triton."""


def component_of(module: str) -> str:
    """Component of the CMake package that is a module: mha_fwd for libmha_fwd."""
    return module.removeprefix("lib")


def pkgconfig_file(component: str) -> str:
    """Path of a component's pkg-config file: lib/pkgconfig/qola-mha-fwd.pc for mha_fwd."""
    return f"lib/pkgconfig/qola-{component.replace('_', '-')}.pc"


def cmake_file(component: str) -> str:
    """Path of the file that says what the CMake package has to know of a component."""
    return f"{CMAKE_DIRECTORY}/qola-{component}.cmake"


def component_files(component: str) -> tuple[str, ...]:
    """Paths of the files that speak of a component, and of no other."""
    return (cmake_file(component), pkgconfig_file(component))


def library_file(namespace: str, module: str) -> str:
    """File name of a library: <namespace>_<module>.so, or <module>.so without a namespace."""
    return f"{namespace}_{module}.so" if namespace else f"{module}.so"


def triton_file(namespace: str) -> str:
    """File name of the library of kernels in Triton, as triton_library makes it."""
    return f"{namespace or 'qola'}_{TRITON}.so"


def archive_file(namespace: str) -> str:
    """File name of a static archive, as rules/private/static.bzl makes it."""
    return f"libqola_{namespace}.a" if namespace else "libqola.a"


def lazy_place(namespace: str, module: str) -> str:
    """Directory of a lazy library's sources, relative to the one above the library's."""
    return "/".join(["share/qola", *([namespace] if namespace else []), module])


RECORD = "manifest.json"
"""File that says what is in an output directory."""

CONFIGS = "configs"
"""Directory of AITER's tuning tables, which ROCm/QoLA installs, too."""

WHEELS = "dist"
"""Directory of Python wheels in an output directory."""


SBOM = "sbom.spdx.json"

KERNEL_COMPILE = "QolaCompile"
"""Mnemonic of the action that compiles a batch of kernel instances, or one of them alone."""


def action_name(mnemonic: str, label: str, output: str) -> str:
    """Return the name by which people know an action of Bazel's.

    Args:
        label: of its target, whose name without the package is the answer for most actions.
        output: the first file it writes. One target compiles all kernels, so their compiles are
            known by it: <kernel instance or batch>.pic.o.
    """
    if mnemonic == KERNEL_COMPILE and output.endswith(".pic.o"):
        return output.rpartition("/")[2].removesuffix(".pic.o")
    return label.rpartition(":")[2]
