"""Launches of small programs: registers that are set at the start, and who shares what."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from qola.emulate.arrays import U32
from qola.emulate.code_object import Argument, CodeObject, Descriptor, Kernel
from qola.emulate.faults import EmulationError
from qola.emulate.launch import Device, Module, Options
from tests.python.emulate.programs import END

#: The kernarg segment's address is in s0 and s1, and three words of it in s2 to s4.
DESCRIPTOR = Descriptor(0, 0, 0, 0, 0, 5 << 1, 0, 1 << 3, 3, 0)
#: v_mov_b32 v1, 0
ZERO = 0x7E020280


def load(
    words: Sequence[int],
    descriptor: Descriptor,
    arguments: tuple[Argument, ...] = (),
    options: Options | None = None,
) -> tuple[Device, Module]:
    """A code object with one kernel, on a device of its own."""
    image = struct.pack(f"<{len(words)}I", *words)
    kernel = Kernel("test", 0, len(image), descriptor, arguments, 1024)
    device = Device(options or Options(strict=True))
    return device, Module(device, CodeObject("gfx942", image, {"test": kernel}))


def test_hidden_arguments_are_preloaded_too() -> None:
    """Prevents: 0 in the SGPR of a preloaded argument that the caller does not give."""
    # v_mov_b32 v2, s4; global_store_dword v1, v2, s[2:3]
    words = [ZERO, 0x7E040204, 0xDC708000, 0x00020201, END]
    device, module = load(words, DESCRIPTOR, (Argument("hidden_block_count_x", 8, 4),))
    target = np.zeros(16, U32)
    address = device.map.own(target)
    device.launch(module, "test", (3, 1, 1), (64, 1, 1), struct.pack("<Q", address))
    assert target[0] == 3


@pytest.mark.parametrize("bit", [12, 14, 26])
def test_a_mode_of_the_descriptor_that_is_not_emulated_is_refused(bit: int) -> None:
    """Prevents: a kernel that asks for other rounding, or saturated f16, run without a word."""
    device, module = load([END], replace(DESCRIPTOR, rsrc1=1 << bit))
    with pytest.raises(EmulationError, match="unsupported"):
        device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"")
    # Denormals, DX10_CLAMP and IEEE change nothing.
    device, module = load([END], replace(DESCRIPTOR, rsrc1=0xF << 16 | 1 << 21 | 1 << 23))
    device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"")
