"""The compiler of the pinned SDK, as QOLA_COMPILER takes it."""

from __future__ import annotations

from pathlib import Path


def compiler_of(sdk: Path) -> list[str]:
    """Return the command that compiles with the SDK in a directory, wherever that is.

    The same as rules/rocm/toolchain.bzl has for actions.
    """
    return [
        f"{sdk}/bin/clang++",
        "-no-canonical-prefixes",
        f"--sysroot={sdk}/sysroot",
        "--start-no-unused-arguments",
        f"--rocm-path={sdk}/rocm",
        f"-L{sdk}/rocm/lib",
        "--end-no-unused-arguments",
        f"-resource-dir={sdk}/resource",
    ]
