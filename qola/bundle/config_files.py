"""Writes the files by which CMake and pkg-config find a bundle (docs/guide/cmake.md).

CMake's package is for find_package(qola CONFIG); pkg-config has a file for each library.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from pathlib import Path

from qola.bundle.record import BundleRecord
from qola.common.layout import (
    CMAKE_CONFIG,
    CMAKE_DIRECTORY,
    STATIC,
    TRITON,
    cmake_file,
    component_of,
    pkgconfig_file,
)
from qola.common.version import docs_url

_TARGETS = "qola-targets.cmake"
_TARGETS_FILE = Path(__file__).parents[1] / "cmake" / _TARGETS

_CONFIG = """\
# Written by qola {version}: describes this bundle. See {docs}.
# Everything is relative to this file, so that the bundle can be moved.
set(qola_VERSION {qola})
set(qola_NAMESPACE {namespace})
set(qola_ARCHS {archs})
set(qola_AITER_VERSION {aiter})
set(qola_ROCM_VERSION {rocm})
set(qola_LAZY {lazy})
get_filename_component(qola_PREFIX "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)

include("${{CMAKE_CURRENT_LIST_DIR}}/{targets}")
_qola_package()
"""

# One file per component: qola build installs modules one after another into one directory, and
# their archs may differ.
_COMPONENT = """\
# Written by qola {version}: the component {component} of this bundle.
set(_qola_{component}_FILE {file})
set(_qola_{component}_SIZE {size})
set(qola_{component}_ARCHS {archs})
"""

# A single version has the meaning of CMake's SameMinorVersion or SameMajorVersion.
_VERSION = """\
# Written by qola {version}: which versions of qola's CMake package this one can stand in for.
set(PACKAGE_VERSION {qola})
set(_qola_wanted "{wanted}")
set(PACKAGE_VERSION_COMPATIBLE FALSE)
if(PACKAGE_FIND_VERSION_RANGE)
  if(PACKAGE_VERSION VERSION_GREATER_EQUAL PACKAGE_FIND_VERSION_MIN
     AND ((PACKAGE_FIND_VERSION_RANGE_MAX STREQUAL "INCLUDE"
           AND PACKAGE_VERSION VERSION_LESS_EQUAL PACKAGE_FIND_VERSION_MAX)
          OR (PACKAGE_FIND_VERSION_RANGE_MAX STREQUAL "EXCLUDE"
              AND PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION_MAX)))
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
  endif()
elseif(_qola_wanted VERSION_EQUAL "{own}"
       AND PACKAGE_VERSION VERSION_GREATER_EQUAL PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
# The libraries are for 64 bits; CMake knows no size before a language is enabled.
if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  string(APPEND PACKAGE_VERSION " (64 bits)")
  set(PACKAGE_VERSION_UNSUITABLE TRUE)
endif()
"""

_PKGCONFIG = """\
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
    "mha_fwd": "forward attention for AMD GPUs",
    "mha_bwd": "backward attention for AMD GPUs",
    TRITON: "kernels in Triton for AMD GPUs, compiled ahead of time",
    STATIC: "attention for AMD GPUs, as one static library",
}

# A linker reads archives from left to right: dependencies come last.
_OF_ARCHIVE = " -lstdc++ -lm -lpthread -ldl"


def texts(record: BundleRecord) -> dict[str, str]:
    """Return the texts of a bundle's files for CMake and pkg-config, by path in the bundle."""
    files = _cmake_package(record)
    for module in record["modules"]:
        name, archs = component_of(module["name"]), module.get("archs", record["archs"])
        packs = [pack["path"] for pack in module.get("packs", [])]
        files |= _component_files(record, name, module["library"], module["size"], archs, packs)
    if static := record["static"]:
        files |= _component_files(record, STATIC, static["path"], static["size"], record["archs"])
    return files


def _cmake_package(record: BundleRecord) -> dict[str, str]:
    aiter = record["inputs"]["aiter"]
    config = _CONFIG.format(
        docs=docs_url("guide/cmake.md"),
        version=record["qola"],
        qola=_quoted(record["qola"]),
        namespace=_quoted(record["namespace"]),
        archs=_quoted(*record["archs"]),
        aiter=_quoted(aiter["version"] or aiter["id"] or ""),
        rocm=_quoted(record["inputs"]["toolchain"]["rocm_version"]),
        lazy="TRUE" if record["lazy"] else "FALSE",
        targets=_TARGETS,
    )
    # Until 1.0, minor versions may be incompatible.
    major, minor = record["qola"].split(".")[:2]
    breaking = {"MAJOR": major, "MINOR": minor} if major == "0" else {"MAJOR": major}
    version = _VERSION.format(
        version=record["qola"],
        qola=_quoted(record["qola"]),
        wanted=".".join(f"${{PACKAGE_FIND_VERSION_{part}}}" for part in breaking),
        own=".".join(breaking.values()),
    )
    return {
        CMAKE_CONFIG: config,
        f"{CMAKE_DIRECTORY}/qola-config-version.cmake": version,
        f"{CMAKE_DIRECTORY}/{_TARGETS}": _TARGETS_FILE.read_text(encoding="utf-8"),
    }


def _component_files(
    record: BundleRecord,
    name: str,
    library: str,
    size: int,
    archs: Sequence[str],
    packs: Sequence[str] = (),
) -> dict[str, str]:
    """Return the files of a component; an installed program selects one of its packs."""
    file, package = posixpath.basename(library), posixpath.basename(pkgconfig_file(name))
    names = _quoted(*map(posixpath.basename, packs))
    return {
        cmake_file(name): _COMPONENT.format(
            version=record["qola"],
            component=name,
            file=_quoted(file),
            size=size,
            archs=_quoted(*archs),
        )
        + (f"set(_qola_{name}_PACKS {names})\n" if packs else ""),
        pkgconfig_file(name): _PKGCONFIG.format(
            qola=record["qola"],
            namespace=record["namespace"],
            archs=" ".join(archs),
            name=package.removesuffix(".pc"),
            description=_DESCRIPTIONS[name],
            libs=f"-L${{libdir}} -l:{file} -lamdhip64{_OF_ARCHIVE if name == STATIC else ''}",
        ),
    }


def _quoted(*texts: str) -> str:
    # CMake's escapes are JSON's, except for $ and ;.
    quoted = (json.dumps(text, ensure_ascii=False) for text in texts)
    return " ".join(quoted).replace("$", "\\$").replace(";", "\\;")
