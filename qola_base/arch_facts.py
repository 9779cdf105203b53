"""Facts about the archs that qola reads code objects of, emulates or compiles Triton kernels for.

docs/internals/architecture.md#adding-an-arch lists the places that Starlark, C++ and Composable
Kernel need in addition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ArchFacts:
    """Facts about an arch, from LLVM's AMDGPUUsage and AMD's ISA documents.

    Attributes:
        machine: lowest byte of e_flags in its code objects (EF_AMDGPU_MACH).
        lanes: lanes of a wave, as compilers use it by default.
        lds_bytes: LDS of a workgroup.
        fp8: format of its floats of 8 bits; "" if it has none.
    """

    machine: int
    lanes: Literal[32, 64]
    lds_bytes: int
    fp8: Literal["", "fnuz", "ocp"]


ARCHS: Mapping[str, ArchFacts] = {
    "gfx90a": ArchFacts(0x3F, 64, 64 << 10, ""),
    "gfx942": ArchFacts(0x4C, 64, 64 << 10, "fnuz"),
    "gfx950": ArchFacts(0x4F, 64, 160 << 10, "ocp"),
    "gfx1100": ArchFacts(0x41, 32, 64 << 10, ""),
    "gfx1201": ArchFacts(0x4E, 32, 64 << 10, "ocp"),
    "gfx1250": ArchFacts(0x49, 32, 320 << 10, "ocp"),
}
