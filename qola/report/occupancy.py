"""How many waves of a kernel a SIMD can hold, from the registers and the LDS that it takes."""

from __future__ import annotations

from typing import Literal

from qola_base.arch_facts import ARCHS

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


# Bytes. AMDGPUUsage, GRANULATED_LDS_SIZE: 128 words from GFX7 on, 320 words for GFX950.
LDS_GRANULE = {"gfx90a": 128 * 4, "gfx942": 128 * 4, "gfx950": 320 * 4}


def occupancy(arch: str, registers: int, lds: int, workgroup: int) -> tuple[int, Limit] | None:
    """Return how many waves a SIMD can hold and the resource that limits them.

    The limit is ``waves`` if the SIMD is full. The result is None for an arch without rules here.

    Args:
        registers: vector registers of a lane, all kinds together.
        lds: bytes of a workgroup.
        workgroup: the most work-items of a workgroup.
    """
    if arch not in LDS_GRANULE:
        return None
    by_registers = REGISTERS // _up(max(registers, 1), REGISTER_GRANULE)
    waves: int = WAVES
    limit: Limit = "waves"
    if by_registers < waves:
        waves, limit = by_registers, "registers"
    if lds:
        workgroups = ARCHS[arch].lds_bytes // _up(lds, LDS_GRANULE[arch])
        # The waves of all workgroups go to the SIMDs in turn; the one that has most counts.
        by_lds = -(-workgroups * -(-workgroup // LANES) // SIMDS)
        if by_lds < waves:
            waves, limit = by_lds, "LDS"
    return waves, limit


def _up(number: int, granule: int) -> int:
    return -(-number // granule) * granule
