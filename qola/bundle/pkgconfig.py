"""Writes a pkg-config file for each library of a bundle (docs/guide/cmake.md)."""

from __future__ import annotations

import posixpath

from qola.bundle.record import BundleRecord
from qola.common.layout import STATIC, TRITON, component_of, pkgconfig_file

_TEXT = """\
# Written by qola {qola}. Relative to this file, so that the bundle can be moved.
prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/include
namespace={namespace}
archs={archs}

Name: {name}
Description: {description}
Version: {qola}
Cflags: -isystem ${{includedir}}
Libs: {libs}
"""

_DESCRIPTIONS = {
    "libmha_fwd": "forward attention for AMD GPUs",
    "libmha_bwd": "backward attention for AMD GPUs",
    TRITON: "kernels in Triton for AMD GPUs, compiled ahead of time",
}


def texts(record: BundleRecord) -> dict[str, str]:
    """Return the texts of pkg-config files, by path in the bundle."""
    archs = {component_of(m["name"]): m["archs"] for m in record["modules"] if "archs" in m}
    libs = {
        component_of(module["name"]): (
            _DESCRIPTIONS[module["name"]],
            f"-l:{posixpath.basename(module['library'])} -lamdhip64",
        )
        for module in record["modules"]
    }
    if record["static"]:
        # A linker reads archives from left to right: dependencies come last.
        system = "-lamdhip64 -lstdc++ -lm -lpthread -ldl"
        libs[STATIC] = (
            "attention for AMD GPUs, as one static library",
            f"-l:{posixpath.basename(record['static']['path'])} {system}",
        )
    return {
        pkgconfig_file(component): _TEXT.format(
            qola=record["qola"],
            namespace=record["namespace"],
            archs=" ".join(archs.get(component, record["archs"])),
            name=posixpath.basename(pkgconfig_file(component)).removesuffix(".pc"),
            description=description,
            libs=f"-L${{libdir}} {options}",
        )
        for component, (description, options) in libs.items()
    }
