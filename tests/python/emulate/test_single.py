"""A kernel by itself: the same while its code is, whatever lies around it."""

from __future__ import annotations

import struct
from dataclasses import replace

from qola.emulate import single
from qola.emulate.code_object import Argument, CodeObject, Descriptor, Kernel
from tests.python.emulate.programs import END, movk

DESCRIPTOR = Descriptor(64, 0, 24, 0x1100, 3, 5, 0, 0, 0, 0)
GETPC = 0xBE800000 | 4 << 16 | 28 << 8


def code_object(words: list[int], before: int) -> CodeObject:
    """A kernel behind some bytes of others."""
    own = struct.pack(f"<{len(words)}I", *words)
    arguments = (Argument("global_buffer", 0, 8),)
    descriptor = replace(DESCRIPTOR, entry=DESCRIPTOR.entry + before)
    kernel = Kernel("k", before, len(own), descriptor, arguments, 256)
    other = Kernel("other", 0, before, DESCRIPTOR, (), 256)
    return CodeObject("gfx942", bytes(before) + own, {"k": kernel, "other": other})


def test_what_lies_beside_does_not_count() -> None:
    """Prevents: kernels of a batch that are tried anew when one of them changed its length."""
    words = [movk(1, 7), END]
    one, again = (single.single(code_object(words, before), "k") for before in (8, 64))
    assert one == again
    assert one != single.single(code_object([movk(1, 8), END], 8), "k")
    assert len(one.image) == 8
    assert single.from_json(single.to_json(one)) == one


def test_a_kernel_that_knows_where_it_is_keeps_what_is_around_it() -> None:
    """Prevents: constants beside the code, which a kernel finds by its own address, left out."""
    words = [GETPC, END]
    one, other = (code_object(words, before) for before in (8, 64))
    found = single.single(one, "k")
    assert found.image == one.image
    assert [*found.kernels] == ["k"]
    assert found != single.single(other, "k")
    assert single.from_json(single.to_json(found)) == found
