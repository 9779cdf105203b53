"""Paths in a bundle that those who make it, install it and describe it have to agree on."""

from __future__ import annotations


def archive_file(namespace: str) -> str:
    """Path of the static library with all modules of a namespace, which may be empty."""
    return f"lib/libqola_{namespace}.a" if namespace else "lib/libqola.a"


def pkgconfig_name(module: str) -> str:
    """Name by which pkg-config knows the library of a module: qola-mha-fwd for libmha_fwd."""
    return f"qola-{module.removeprefix('lib').replace('_', '-')}"


def pkgconfig_file(name: str) -> str:
    """Path of the file of a pkg-config name."""
    return f"lib/pkgconfig/{name}.pc"
