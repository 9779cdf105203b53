"""The compiler command of the pinned SDK, for QOLA_COMPILER."""

from __future__ import annotations

from pathlib import Path


def compiler_of(sdk: Path) -> list[str]:
    """Return the compiler command of an SDK, which may be in any directory.

    rules_hip/rocm/toolchain.bzl uses these options for actions.
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
