"""Names of a bundle's pkg-config files, for those who make a bundle and those who install it."""

from __future__ import annotations

STATIC = "qola-static"
"""Name by which pkg-config knows the archive of all modules."""


def pkgconfig_name(module: str) -> str:
    """Name by which pkg-config knows the library of a module: qola-mha-fwd for libmha_fwd."""
    return f"qola-{module.removeprefix('lib').replace('_', '-')}"


def pkgconfig_file(name: str) -> str:
    """Path of the file of a pkg-config name."""
    return f"lib/pkgconfig/{name}.pc"
