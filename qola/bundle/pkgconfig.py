"""pkg-config files of a bundle, one for each library. docs/cmake.md explains them."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping
from typing import Any

from qola.bundle.places import archive_name

DIRECTORY = "lib/pkgconfig"
"""Where a bundle has them; its path belongs into PKG_CONFIG_PATH."""

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
Cflags: -I${{includedir}}
Libs: {libs}
"""

_DESCRIPTIONS = {
    "libmha_fwd": "forward attention for AMD GPUs",
    "libmha_bwd": "backward attention for AMD GPUs",
}


def path_of(module: str) -> str:
    """Path of the file for an attention module below a bundle, such as qola-mha-fwd.pc."""
    return f"{DIRECTORY}/{_name(module)}.pc"


def texts(record: Mapping[str, Any], files: Collection[str]) -> dict[str, str]:
    """Return the files, texts by their paths below the bundle.

    Args:
        record: manifest.json as data.
        files: paths of the bundle's files; with the archive of all modules among them, there is
            one for it too.
    """
    found = {
        path_of(module["name"]): _text(
            record,
            _name(module["name"]),
            _DESCRIPTIONS[module["name"]],
            f"-L${{libdir}} -l:{posixpath.basename(module['library'])} -lamdhip64",
        )
        for module in record["modules"]
    }
    archive = archive_name(record["namespace"])
    if f"lib/{archive}" in files:
        found[f"{DIRECTORY}/qola-static.pc"] = _text(
            record,
            "qola-static",
            "attention for AMD GPUs, as one static library",
            # A linker reads archives from left to right: what is needed comes last.
            f"-L${{libdir}} -l:{archive} -lamdhip64 -lstdc++ -lm -lpthread -ldl",
        )
    return found


def _name(module: str) -> str:
    return f"qola-{module.removeprefix('lib').replace('_', '-')}"


def _text(record: Mapping[str, Any], name: str, description: str, libs: str) -> str:
    return _TEXT.format(
        qola=record["qola"],
        namespace=record["namespace"],
        archs=" ".join(record["archs"]),
        name=name,
        description=description,
        libs=libs,
    )
