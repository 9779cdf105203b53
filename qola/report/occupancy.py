"""How many waves of a kernel a SIMD can hold, from the registers and the LDS that it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Limit = Literal["registers", "LDS", "waves"]

SIMDS = 4
"""SIMDs of a compute unit (CDNA3 ISA, 2.1)."""

LANES = 64
"""Work-items of a wave."""

REGISTERS = 512
"""Vector registers of a lane, those for matrices included (LLVM's AMDGPUUsage: "unified register
file" of GFX90A, GFX942, GFX950; getTotalNumVGPRs)."""

REGISTER_GRANULE = 8
"""They are given out in so many (AMDGPUUsage, GRANULATED_WORKITEM_VGPR_COUNT of GFX90A, GFX942)."""

WAVES = 8
"""Of a SIMD at most (LLVM's getMaxWavesPerEU for archs with such registers)."""


@dataclass(frozen=True)
class Lds:
    """The LDS of a compute unit, in bytes, and how many of them are given out at a time."""

    size: int
    granule: int


# Sizes: ISA documents of CDNA2, CDNA3 and CDNA4 (64 KiB, 64 KiB, 160 KiB); granules: AMDGPUUsage,
# GRANULATED_LDS_SIZE: 128 words from GFX7 on, 320 words for GFX950.
LDS = {
    "gfx90a": Lds(64 << 10, 128 * 4),
    "gfx942": Lds(64 << 10, 128 * 4),
    "gfx950": Lds(160 << 10, 320 * 4),
}


@dataclass(frozen=True)
class Occupancy:
    """How many waves of a kernel a SIMD can hold.

    Attributes:
        limit: what there would have to be more of; ``waves`` where it is full.
    """

    waves: int
    limit: Limit


def occupancy(arch: str, registers: int, lds: int, workgroup: int) -> Occupancy | None:
    """Return how many waves a SIMD can hold, None for an arch whose rules are not known here.

    Args:
        registers: vector registers of a lane, all kinds together.
        lds: bytes of a workgroup.
        workgroup: the most work-items of a workgroup.
    """
    if arch not in LDS:
        return None
    by_registers = REGISTERS // _up(max(registers, 1), REGISTER_GRANULE)
    waves: int = WAVES
    limit: Limit = "waves"
    if by_registers < waves:
        waves, limit = by_registers, "registers"
    if lds:
        workgroups = LDS[arch].size // _up(lds, LDS[arch].granule)
        # The waves of all workgroups go to the SIMDs in turn; the one that has most counts.
        by_lds = -(-workgroups * -(-workgroup // LANES) // SIMDS)
        if by_lds < waves:
            waves, limit = by_lds, "LDS"
    return Occupancy(waves, limit)


def _up(number: int, granule: int) -> int:
    return -(-number // granule) * granule
