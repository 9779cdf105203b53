"""Contents of registers, LDS and scratch memory that nothing has written."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from gfxemu.arrays import F32, U32, Array
from gfxemu.launch import UNWRITTEN, Options
from gfxemu.tests.programs import DESCRIPTOR, END, load, wait
from qola_base.formats import BF8, FP8, decoded

#: v_lshlrev_b32 v1, 2, v0; ds_read_b32 v3, v1; scratch_load_dword v4, off, off offset:8
_LOADS = (0x24020082, 0xD86C0000, 0x03000001, 0xDC504008, 0x047F0000, wait(vm=0, lgkm=0))
#: v_mul_f32 v2, 0, v9; v_mul_f32 v3, 0, v3; v_mul_f32 v4, 0, v4; v_mul_f32 v5, 0, s40
_PRODUCTS = (0x0A041280, 0x0A060680, 0x0A080880, 0xD1050005, 0x00005080)
#: global_store_dwordx4 v1, v[2:5], s[2:3]
_STORE = (0xDC7C8000, 0x00020201, END)


def products_with_zero(options: Options, groups: int) -> Array:
    """Multiply 0 with a vector register, LDS, scratch memory and a scalar register; in each lane.

    A workgroup overwrites the products of the one before.
    """
    # v_accvgpr_write a2, s40; v_accvgpr_read v9, a2
    moves = [0xD3D94002, 0x18000028, 0xD3D84009, 0x18000102]
    # ds_write_b32 v1, v0, and scratch_store_dword off, v0, off offset:8: for the next workgroup
    stores = [0xD81A0000, 0x00000001, 0xDC704008, 0x007F0000]
    words = [*_LOADS, *moves, *_PRODUCTS, *stores, *_STORE]
    descriptor = replace(DESCRIPTOR, lds_bytes=256, scratch_bytes=16, rsrc1=7, rsrc3=7)
    device, module = load(words, descriptor, options=options)
    target = np.zeros(64 + 3, F32)
    address = struct.pack("<Q", device.map.own(target))
    device.launch(module, "test", (groups, 1, 1), (64, 1, 1), address)
    return target


@pytest.mark.parametrize("groups", [1, 3])
def test_zero_times_something_unwritten_is_nan(groups: int) -> None:
    """Prevents: a sum that passes although nothing initialises it, since 0 times it is 0."""
    # A workgroup at a time: none finds what the one before has left.
    options = Options(strict=True, waves=1)
    assert np.isnan(products_with_zero(options, groups)).all()


def test_the_initial_value_is_a_nan_of_each_float_type() -> None:
    """Prevents: a forgotten initialisation that only shows in some types of sums."""
    words = np.array([UNWRITTEN, UNWRITTEN], U32)
    for kind in (np.float16, np.float32, np.float64):
        assert np.isnan(words.view(kind)).all()
    # bf16 is the upper half of an f32.
    assert np.isnan(np.array([UNWRITTEN & 0xFFFF0000], U32).view(F32)).all()
    for format_ in (FP8, BF8):
        assert np.isnan(decoded(np.array([UNWRITTEN & 0xFF], np.uint8), format_)).all()


def test_values_of_the_launch_are_written_whatever_they_are() -> None:
    """Prevents: an argument of -1, or EXEC with all lanes, reported as never written."""
    # v_mov_b32 v2, s2 and s3, which are preloaded; s_mov_b64 s[6:7], exec
    words = [0x7E040202, 0x7E040203, 0xBE86017E, END]
    device, module = load(words, DESCRIPTOR, options=Options(strict=True, checked=True))
    arguments = struct.pack("<iI", -1, UNWRITTEN)
    assert device.launch(module, "test", (1, 1, 1), (64, 1, 1), arguments).faults == ()
