"""Writes the CMake package of a bundle for find_package(qola CONFIG) (docs/guide/cmake.md)."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable
from pathlib import Path

from qola.bundle.record import BundleRecord, PackRecord
from qola.common.layout import CMAKE_CONFIG, CMAKE_DIRECTORY, STATIC, cmake_file, component_of
from qola.common.version import docs_url

TARGETS = "qola-targets.cmake"
_TARGETS_FILE = Path(__file__).parents[1] / "cmake" / TARGETS

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


def package(record: BundleRecord) -> dict[str, str]:
    """Return the texts of a bundle's CMake package, by path in the bundle."""
    aiter = record["inputs"]["aiter"]
    archs = " ".join(map(_quoted, record["archs"]))
    config = _CONFIG.format(
        docs=docs_url("guide/cmake.md"),
        version=record["qola"],
        qola=_quoted(record["qola"]),
        namespace=_quoted(record["namespace"]),
        archs=archs,
        aiter=_quoted(aiter["version"] or aiter["id"] or ""),
        rocm=_quoted(record["inputs"]["toolchain"]["rocm_version"]),
        lazy="TRUE" if record["lazy"] else "FALSE",
        targets=TARGETS,
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
    files = {
        component_of(m["name"]): (m["library"], m["size"], m.get("archs"), m.get("packs", []))
        for m in record["modules"]
    }
    if static := record["static"]:
        files[STATIC] = (static["path"], static["size"], None, [])
    components = {
        cmake_file(component): _COMPONENT.format(
            version=record["qola"],
            component=component,
            file=_quoted(posixpath.basename(path)),
            size=size,
            archs=" ".join(map(_quoted, record["archs"] if own_archs is None else own_archs)),
        )
        + _packs(component, packs)
        for component, (path, size, own_archs, packs) in files.items()
    }
    return {
        CMAKE_CONFIG: config,
        f"{CMAKE_DIRECTORY}/qola-config-version.cmake": version,
        f"{CMAKE_DIRECTORY}/{TARGETS}": _TARGETS_FILE.read_text(encoding="utf-8"),
        **components,
    }


def _packs(component: str, packs: Iterable[PackRecord]) -> str:
    """Return the list of packs, from which an installed program selects its own."""
    names = " ".join(_quoted(posixpath.basename(pack["path"])) for pack in packs)
    return f"set(_qola_{component}_PACKS {names})\n" if names else ""


def _quoted(text: str) -> str:
    # CMake's escapes are JSON's, except for $ and ;.
    return json.dumps(text, ensure_ascii=False).replace("$", "\\$").replace(";", "\\;")
