"""Properties of instruction sets that the emulator runs, and the archs that have them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Isa:
    """An instruction set.

    Attributes:
        tables: tinygrad's name of its tables.
        lanes: of a wave.
        offset_bits: of the signed offset of a global or scratch access.
        scalar_offset_bits: of the signed offset of a scalar load.
        matrix_rows: rows of a result that lie next to each other in the registers of a lane.
        splits_depth: whether lanes with the same row of a matrix operand share its K.
        ids_in_ttmp: whether waves find their workgroup in TTMP registers, not behind user SGPRs.
    """

    tables: str
    lanes: int
    offset_bits: int
    scalar_offset_bits: int
    matrix_rows: int
    splits_depth: bool = True
    ids_in_ttmp: bool = False

    @property
    def is_rdna(self) -> bool:
        """Whether it is one of RDNA's.

        Their waves have no accumulation registers, and a result of 16 bits leaves the other half of
        its register unchanged.
        """
        return self.tables != "cdna"


CDNA = Isa("cdna", 64, 13, 21, matrix_rows=4)
"""CDNA2 to CDNA4, whose names and fields the emulator uses for all instruction sets."""

RDNA3 = Isa("rdna3", 32, 13, 21, matrix_rows=1, splits_depth=False)
"""RDNA3 in waves of 32 lanes."""

RDNA4 = Isa("rdna4", 32, 24, 24, matrix_rows=8, ids_in_ttmp=True)
"""RDNA4 in waves of 32 lanes."""

ISAS = {"gfx90a": CDNA, "gfx942": CDNA, "gfx950": CDNA, "gfx1100": RDNA3, "gfx1201": RDNA4}
"""The instruction set of each arch that is emulated."""
