"""The list of emulated operations, and kernels that need only these operations."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from gfxemu import program
from gfxemu.decode import decode
from gfxemu.tests import hand_computed, programs
from qola_base.code_object.reader import CodeObject

GOLDEN = Path(__file__).with_name("emulated_operations.txt")


def test_list_of_emulated_operations_is_current() -> None:
    """Prevents: unnoticed changes of emulated operations; QOLA_UPDATE_GOLDEN=1 writes the list."""
    text = "".join(f"{name}\n" for name in hand_computed.covered())
    if os.environ.get("QOLA_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_assembly_kernels_are_covered(aiter_tree: Path) -> None:
    """Prevents: an assembly attention kernel with an instruction that the emulator lacks."""
    files = sorted(aiter_tree.glob("aiter_meta/hsa/gfx9*/fmha*/**/*.co"))
    assert files
    # All files take half a minute, and adjacent files differ little.
    for file in files[::8]:
        code_object = CodeObject.read(file.read_bytes(), str(file))
        for kernel in code_object.kernels.values():
            bound = program.Program(code_object, kernel)
            assert not programs.not_covered(bound), file


def test_two_mfma_are_not_decoded_as_a_scaled_mfma() -> None:
    """Prevents: two adjacent V_MFMA_*_F8F6F4 decoded as a scaled one, which has another prefix."""
    plain = struct.pack("<2I", 0xD3AE0034, 0x04D20914)
    scale = struct.pack("<2I", 0xD3AC0000, 0x18000000)
    name = "V_MFMA_F32_32X32X64_F8F6F4"
    assert (decode(plain * 2).name, decode(plain * 2).size) == (name, 8)
    assert decode(scale + plain).name == name.replace("MFMA", "MFMA_SCALE")


def test_undecodable_and_unsupported_words_are_reported() -> None:
    """Prevents: a kernel reported as covered although its code has unknown instructions."""
    # The last word is not an instruction; the word before can be decoded but not emulated.
    words = [programs.END, 0xBF800000 | 16 << 16, 0xFFFFFFFF]
    _, module = programs.load(words, programs.DESCRIPTOR)
    refused = programs.not_covered(module.program("test"))
    assert [text.split()[0] for text in refused] == ["+0x4", "+0x8"]
