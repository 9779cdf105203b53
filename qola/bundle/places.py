"""Names of files that several parts of a bundle have to agree on."""

from __future__ import annotations


def archive_name(namespace: str) -> str:
    """File name of the static library with all modules of a namespace, which may be empty."""
    return f"libqola_{namespace}.a" if namespace else "libqola.a"
