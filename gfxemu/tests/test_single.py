"""Extracting a kernel from a code object, so that other kernels do not change its digest."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from gfxemu import single
from gfxemu.decode import decode
from gfxemu.tests.programs import END, movk
from qola_base.code_object.reader import Argument, CodeObject, Descriptor, Kernel

DESCRIPTOR = Descriptor(64, 0, 24, 0x1100, 3, 5, 0, 0, 0, 0)
#: S_GETPC_B64, S_SWAPPC_B64 and S_CALL_B64.
ADDRESSED = [0xBE800000 | 4 << 16 | 28 << 8, 0xBE800000 | 30 << 8 | 2, 0xB0000000 | 21 << 23]
RDNA = [0xBE800000 | 4 << 16 | 71 << 8, 0xBE800000 | 73 << 8 | 2, 0xB0000000 | 20 << 23]


def code_object(words: list[int], before: int, arch: str = "gfx942") -> CodeObject:
    """Build a code object whose kernel follows some bytes of another kernel."""
    code = struct.pack(f"<{len(words)}I", *words)
    arguments = (Argument("global_buffer", 0, 8),)
    descriptor = replace(DESCRIPTOR, entry=DESCRIPTOR.entry + before)
    kernel = Kernel("k", before, len(code), descriptor, arguments, 256)
    other = Kernel("other", 0, before, DESCRIPTOR, (), 256)
    text = 0, before + len(code)
    return CodeObject(arch, bytes(before) + code, {"k": kernel, "other": other}, text=text)


def test_an_extracted_kernel_does_not_depend_on_others() -> None:
    """Prevents: all kernels of a batch emulated again because one of them changed its length."""
    words = [movk(1, 7), END]
    kernel, moved = (single.single(code_object(words, before), "k") for before in (8, 64))
    assert kernel == moved
    assert kernel != single.single(code_object([movk(1, 8), END], 8), "k")
    assert len(kernel.image) == 8
    assert single.from_json(single.to_json(kernel)) == kernel


def test_a_literal_is_not_decoded_as_an_instruction() -> None:
    """Prevents: a kernel emulated again because a literal looks like a call or jump."""
    move = 0xBE800000 | 255  # s_mov_b32 s0, and a literal
    found = single.single(code_object([move, ADDRESSED[0], END], 64), "k")
    assert len(found.image) == 12


@pytest.mark.parametrize(
    ("arch", "word"),
    [*(("gfx942", w) for w in ADDRESSED), *((a, w) for a in ("gfx1100", "gfx1201") for w in RDNA)],
)
def test_a_kernel_that_reads_its_address_keeps_the_whole_image(arch: str, word: int) -> None:
    """Prevents: missing constants or functions that a kernel addresses relative to its code."""
    words = [word, END]
    first, other = (code_object(words, before, arch) for before in (8, 64))
    found = single.single(first, "k")
    assert found.image == first.image
    assert [*found.kernels] == ["k"]
    # The range of functions that the kernel may call.
    assert found.text == first.text
    assert found != single.single(other, "k")
    assert single.from_json(single.to_json(found)) == found


def test_decoding_ignores_bytes_after_an_instruction() -> None:
    """Prevents: an instruction decoded as another one that begins with the same bytes."""
    load = bytes.fromhex("020006c010000000")  # s_load_dwordx2, offset 16
    assert decode(load[:4])["offset"] == 0  # The kernel ends within the instruction
    assert decode(load)["offset"] == 16
    add = bytes.fromhex("02030402")
    scaled = bytes.fromhex("0000aed3")
    assert decode(add + bytes(4) + scaled).name == decode(add).name == "V_ADD_F32"
    assert decode(add + load).size == 4
