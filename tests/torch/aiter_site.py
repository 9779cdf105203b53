"""AITER's tree as an installed package, on a machine where ROCm's tools are scripts."""

from __future__ import annotations

from pathlib import Path

# On import, AITER merges these tables with pandas, unless a variable names a file.
_TABLES = ("BPRESHUFFLE", "BLOCKSCALE", "BLOCKSCALE_BPRESHUFFLE")


def write_tool(directory: Path, name: str, script: str) -> None:
    """Write a shell script into bin/ of a directory."""
    path = directory / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    path.chmod(0o755)


def install(directory: Path, tree: Path) -> None:
    """Create site/, a package directory that contains AITER, and bin/ with hipconfig."""
    for name in ("bin", "site"):
        (directory / name).mkdir()
    for name in ("aiter", "aiter_meta"):
        (directory / "site" / name).symlink_to(tree / name)
    write_tool(directory, "hipconfig", "echo 7.2.53211")


def variables(directory: Path) -> dict[str, str]:
    """Return the environment of a program that imports AITER from a directory of `install`."""
    tables = {f"AITER_CONFIG_GEMM_A8W8_{name}": str(directory / "none.csv") for name in _TABLES}
    return {**tables, "HOME": str(directory), "PATH": f"{directory}/bin:/usr/bin:/bin"}
