"""Numbers of registers, and how many a wave has.

Registers have the numbers of a 9-bit source operand, and a range more:

======== ==========================================================
0        SGPRs; 106 VCC, 124 M0, 125 NULL of RDNA, 126 EXEC
128      constants of the ISA
256      VGPRs
512      accumulation VGPRs
======== ==========================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LANES = 64
"""Lanes of a wave of CDNA."""
SGPRS = 128
VCC, M0, NULL, EXEC = 106, 124, 125, 126
#: The first generic addresses of the LDS and of a lane's scratch memory, which no allocation has;
#: the operands with them.
APERTURE, PRIVATE_APERTURE = 1 << 48, 2 << 48
APERTURES = {235: APERTURE, 237: PRIVATE_APERTURE}
VGPRS, AGPRS = 256, 512
#: In the field saddr: no register, the whole address is in vector registers.
OFF = 127

_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532)


def constant(number: int, kind: str = "u32") -> int | None:
    """The value of one of the ISA's constants as the bits of a type, None where it is not one."""
    if 128 <= number <= 192:
        return number - 128
    if 193 <= number <= 208:
        return (192 - number) & (2**64 - 1 if kind in ("u64", "i64", "f64") else 2**32 - 1)
    if 240 <= number <= 248:
        value = _FLOATS[number - 240]
        # For 32-bit integers, a float constant has the bits of an f32.
        float_type, bits_type = {
            "f16": (np.float16, np.uint16),
            "f64": (np.float64, np.uint64),
        }.get(kind, (np.float32, np.uint32))
        return int(np.array(value, float_type).view(bits_type))
    return None


@dataclass(frozen=True)
class Layout:
    """The vector registers of a wave: accumulation registers follow the others.

    Attributes:
        lanes: of a wave.
    """

    vgprs: int
    first_agpr: int
    lanes: int = LANES

    def row(self, number: int) -> int:
        """Return the row of a vector register, by its number."""
        return number - VGPRS if number < AGPRS else number - AGPRS + self.first_agpr


_SPECIAL = {VCC: "vcc_lo", VCC + 1: "vcc_hi", M0: "m0", EXEC: "exec_lo", EXEC + 1: "exec_hi"}


def name_of(number: int) -> str:
    """Return the name of a register by its number."""
    if number in _SPECIAL:
        return _SPECIAL[number]
    first = max(start for start in (0, VGPRS, AGPRS) if start <= number)
    return f"{'a' if first == AGPRS else 'v' if first else 's'}{number - first}"
