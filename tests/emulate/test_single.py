"""A kernel by itself: the same while its code is, whatever lies around it."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from qola.code_object.reader import Argument, CodeObject, Descriptor, Kernel
from qola.emulate import single
from qola.emulate.decode import decode
from tests.emulate.programs import END, movk

DESCRIPTOR = Descriptor(64, 0, 24, 0x1100, 3, 5, 0, 0, 0, 0)
#: S_GETPC_B64, S_SWAPPC_B64 and S_CALL_B64.
ADDRESSED = [0xBE800000 | 4 << 16 | 28 << 8, 0xBE800000 | 30 << 8 | 2, 0xB0000000 | 21 << 23]
RDNA = [0xBE800000 | 4 << 16 | 71 << 8, 0xBE800000 | 73 << 8 | 2, 0xB0000000 | 20 << 23]


def code_object(words: list[int], before: int, arch: str = "gfx942") -> CodeObject:
    """A kernel behind some bytes of others."""
    own = struct.pack(f"<{len(words)}I", *words)
    arguments = (Argument("global_buffer", 0, 8),)
    descriptor = replace(DESCRIPTOR, entry=DESCRIPTOR.entry + before)
    kernel = Kernel("k", before, len(own), descriptor, arguments, 256)
    other = Kernel("other", 0, before, DESCRIPTOR, (), 256)
    text = 0, before + len(own)
    return CodeObject(arch, bytes(before) + own, {"k": kernel, "other": other}, text=text)


def test_what_lies_beside_does_not_count() -> None:
    """Prevents: kernels of a batch that are tried anew when one of them changed its length."""
    words = [movk(1, 7), END]
    one, again = (single.single(code_object(words, before), "k") for before in (8, 64))
    assert one == again
    assert one != single.single(code_object([movk(1, 8), END], 8), "k")
    assert len(one.image) == 8
    assert single.from_json(single.to_json(one)) == one


def test_a_constant_is_no_instruction() -> None:
    """Prevents: a kernel that is tried anew for a number that looks like one of these."""
    move = 0xBE800000 | 255  # s_mov_b32 s0, and a literal
    found = single.single(code_object([move, ADDRESSED[0], END], 64), "k")
    assert len(found.image) == 12


@pytest.mark.parametrize(
    ("arch", "word"),
    [*(("gfx942", w) for w in ADDRESSED), *((a, w) for a in ("gfx1100", "gfx1201") for w in RDNA)],
)
def test_a_kernel_that_knows_where_it_is_keeps_what_is_around_it(arch: str, word: int) -> None:
    """Prevents: constants beside the code, which a kernel finds by its own address, left out."""
    words = [word, END]
    one, other = (code_object(words, before, arch) for before in (8, 64))
    found = single.single(one, "k")
    assert found.image == one.image
    assert [*found.kernels] == ["k"]
    # Where functions are that it calls.
    assert found.text == one.text
    assert found != single.single(other, "k")
    assert single.from_json(single.to_json(found)) == found


def test_bytes_behind_an_instruction_do_not_count() -> None:
    """Prevents: an instruction taken for one that begins with the same bytes."""
    load = bytes.fromhex("020006c010000000")  # s_load_dwordx2, offset 16
    assert decode(load[:4])["offset"] == 0  # A kernel that ends within it
    assert decode(load)["offset"] == 16
    add = bytes.fromhex("02030402")
    scaled = bytes.fromhex("0000aed3")
    assert decode(add + bytes(4) + scaled).name == decode(add).name == "V_ADD_F32"
    assert decode(add + load).size == 4
