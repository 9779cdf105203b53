"""Asks this machine which GPUs it has: what `native` among architectures means."""

from __future__ import annotations

import re
from pathlib import Path

from qola.errors import Finding, ToolchainError

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
"""Where AMD's kernel driver lists the machine's processors, a directory each."""


def native_archs(sysfs: Path = KFD_NODES) -> tuple[str, ...]:
    """Return the archs of this machine's GPUs, sorted, each once.

    To be called where `native` is asked for and nowhere else: the answer depends on the machine.

    Raises:
        ToolchainError: there is no AMD GPU, its driver is not loaded, or what it says is not
            understood.
    """
    try:
        files = sorted(sysfs.glob("*/properties"))
        versions = {version for file in files if (version := _version(file))}
    except OSError as error:
        # Containers may show the directory without the right to read it.
        raise _no_gpu(sysfs, f"{error.filename}: {error.strerror}") from None
    if not versions:
        raise _no_gpu(sysfs, f"{len(files)} nodes, no GPU among them" if files else "no nodes")
    return tuple(sorted(map(arch_of_version, versions)))


def arch_of_version(version: int) -> str:
    """Return the LLVM name of a gfx_target_version: 90402 is gfx942, 90010 is gfx90a.

    Args:
        version: major * 10000 + minor * 100 + stepping; LLVM writes the last two in hexadecimal.
    """
    major, rest = divmod(version, 10000)
    minor, stepping = divmod(rest, 100)
    return f"gfx{major}{minor:x}{stepping:x}"


def _version(properties: Path) -> int:
    """Return the gfx_target_version of a node: 0 for a CPU, and for a node that names none."""
    found = re.search(r"^gfx_target_version (\d+)$", properties.read_text("utf-8"), re.MULTILINE)
    return int(found[1]) if found else 0


def _no_gpu(sysfs: Path, found: str) -> ToolchainError:
    return ToolchainError(
        Finding(
            sysfs.as_posix(),
            found,
            "an AMD GPU whose driver (amdgpu, with KFD) is loaded: native was asked "
            "for, or no archs are named",
            'name the archs instead: --arch gfx950, or architectures = ["gfx950"] in the manifest',
        ),
        "native: no AMD GPU on this machine",
    )
