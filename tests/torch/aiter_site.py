"""AITER of a tree as an installed package, on a machine where ROCm's tools are scripts."""

from __future__ import annotations

from pathlib import Path

# Tables that AITER merges with pandas when it is imported, unless one is named.
_TABLES = ("BPRESHUFFLE", "BLOCKSCALE", "BLOCKSCALE_BPRESHUFFLE")


def write_tool(directory: Path, name: str, script: str) -> None:
    """Write a program into bin/ of a directory."""
    path = directory / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    path.chmod(0o755)


def install(directory: Path, tree: Path) -> None:
    """Create site/, a directory for packages with AITER in it, and bin/ with hipconfig."""
    for name in ("bin", "site"):
        (directory / name).mkdir()
    for name in ("aiter", "aiter_meta"):
        (directory / "site" / name).symlink_to(tree / name)
    write_tool(directory, "hipconfig", "echo 7.2.53211")


def variables(directory: Path) -> dict[str, str]:
    """Return the variables of a program that imports AITER from a directory of `install`."""
    tables = {f"AITER_CONFIG_GEMM_A8W8_{name}": str(directory / "none.csv") for name in _TABLES}
    return {**tables, "HOME": str(directory), "PATH": f"{directory}/bin:/usr/bin:/bin"}
