"""Launches of small programs: initial contents, arguments, memory and limits."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from gfxemu.arrays import F32, U32
from gfxemu.faults import EmulationError
from gfxemu.launch import UNWRITTEN, Device, Module, Options
from gfxemu.tests.programs import DESCRIPTOR, END, addk, launch, load, movk, sopp, wait
from qola_base.code_object.reader import Argument, CodeObject, Kernel
from qola_base.formats import BF8, FP8, decoded

#: v_mov_b32 v1, 0
ZERO = 0x7E020280


@pytest.mark.parametrize("checked", [True, False])
def test_uninitialised_registers_are_reported_if_checked(checked: bool) -> None:
    """Prevents: waves that lose track of written registers when they diverge or join."""
    # Only the first wave, 64 > v0, writes v3; both read it, and s4, which the launch writes.
    branch = [0x7D9800C0, sopp("S_CBRANCH_VCCZ", 1), 0x7E060204]
    words = [*branch, 0x7E040303, END]
    result = launch(words, options=Options(checked=checked), block=(128, 1, 1))
    found = [(fault.kind, fault.pc, fault.wave, fault.detail) for fault in result.faults]
    wanted = ("uninitialised register", 12, 1, "v3 was never written")
    assert found == ([wanted] if checked else [])


def test_an_immediate_is_not_a_register() -> None:
    """Prevents: s_movk_i32 s4, 20 reported as a read of s20."""
    assert launch([0xB0040014, END], options=Options(strict=True, checked=True)).faults == ()


def test_hidden_arguments_are_preloaded_too() -> None:
    """Prevents: 0 in the SGPR of a preloaded hidden argument, which the caller does not pass."""
    # v_mov_b32 v2, s4; global_store_dword v1, v2, s[2:3]
    words = [ZERO, 0x7E040204, 0xDC708000, 0x00020201, END]
    device, module = load(words, DESCRIPTOR, (Argument("hidden_block_count_x", 8, 4),))
    target = np.zeros(16, U32)
    address = device.map.own(target)
    device.launch(module, "test", (3, 1, 1), (64, 1, 1), struct.pack("<Q", address))
    assert target[0] == 3


def test_the_dispatch_packet_has_the_sizes_of_the_launch() -> None:
    """Prevents: wrong sizes in kernels that read the dispatch packet, such as PyTorch's."""
    # The packet's address is in s0 and s1: s_load_dwordx4 s[8:11], s[0:1], 4
    # s_load_dwordx2 s[6:7], s[2:3], 0; then v_mov_b32 v2 to v5, s8 to s11
    words = [0xC00A0200, 4, 0xC0060181, 0, ZERO, wait(lgkm=0)]
    words += [0x7E040208, 0x7E060209, 0x7E08020A, 0x7E0A020B]
    # global_store_dwordx4 v1, v[2:5], s[6:7]
    words += [0xDC7C8000, 0x00060201, END]
    descriptor = replace(DESCRIPTOR, rsrc2=4 << 1, properties=1 << 1 | 1 << 3, preload_words=0)
    device, module = load(words, descriptor)
    target = np.zeros(16, U32)
    arguments = struct.pack("<Q", device.map.own(target))
    device.launch(module, "test", (3, 5, 1), (64, 2, 1), arguments)
    assert target[:4].tolist() == [64 | 2 << 16, 1, 192, 10]


@pytest.mark.parametrize("checked", [True, False])
def test_a_generic_pointer_reaches_the_workgroup_s_lds(checked: bool) -> None:
    """Prevents: a flat store to LDS that is lost, or that writes to another workgroup's LDS."""
    # v2 = v0 << 2; s_mov_b64 s[6:7], SHARED_BASE; v3 = s7; flat_store_dword v[2:3], v0
    words = [0x24040082, 0xBE8601EB, 0x7E060207, 0xDC700000, 0x00000002]
    # ds_read_b32 v4, v2; global_store_dword v2, v4, s[2:3]
    words += [0xD86C0000, 0x04000002, wait(lgkm=0), 0xDC708000, 0x00020402, END]
    target = np.zeros(64, U32)
    for lds in (256, 128):
        descriptor = replace(DESCRIPTOR, lds_bytes=lds)
        device, module = load(words, descriptor, options=Options(strict=True, checked=checked))
        arguments = struct.pack("<Q", device.map.own(target))
        if lds == 128:
            with pytest.raises(EmulationError, match="unmapped"):
                device.launch(module, "test", (2, 1, 1), (64, 1, 1), arguments)
        else:
            device.launch(module, "test", (2, 1, 1), (64, 1, 1), arguments)
            assert target.tolist() == list(range(64))


@pytest.mark.parametrize("bit", [12, 14, 26])
def test_a_mode_of_the_descriptor_that_is_not_emulated_is_refused(bit: int) -> None:
    """Prevents: a kernel with another rounding mode or saturated f16 that runs without an error."""
    with pytest.raises(EmulationError, match="unsupported"):
        launch([END], replace(DESCRIPTOR, rsrc1=1 << bit))
    # Denormals, DX10_CLAMP and IEEE do not change results.
    launch([END], replace(DESCRIPTOR, rsrc1=0xF << 16 | 1 << 21 | 1 << 23))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (0x020000D3, "no instruction.*: 0x020000d3"),  # a reserved register
        (0xFFFFFFFF, "no instruction.*: 0xffffffff"),
        (0xBF800000 | 40 << 16, "unsupported"),
    ],
)
def test_words_that_cannot_run_fail_when_executed(word: int, message: str) -> None:
    """Prevents: a kernel refused for data after its end; an unknown instruction skipped."""
    launch([END, word])
    with pytest.raises(EmulationError, match=rf"(?s)test\+0x4 .*{message}"):
        launch([ZERO, word, END])


def test_random_words_do_not_raise_other_errors() -> None:
    """Prevents: random words that raise another exception than EmulationError."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        words = [int(word) for word in rng.integers(1 << 32, size=16)]
        launch([END, *words])
        with pytest.raises(EmulationError):
            launch([*words, END], options=Options(limit=1000))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        # v_add_f32 v64, s8, v161; s_swappc_b64 s[7:8], s[4:5]
        (0x02814208 | 161 << 9, "v64 is beyond the 8 vector registers"),
        (0xBE871E04, "s7 is odd"),
    ],
)
def test_invalid_registers_are_faults(word: int, message: str) -> None:
    """Prevents: a traceback, instead of a fault with its instruction, for an invalid register."""
    with pytest.raises(EmulationError, match=message):
        launch([word, END])


@pytest.mark.parametrize(
    ("arch", "maximum"), [("gfx942", 64 << 10), ("gfx950", 160 << 10)], ids=["gfx942", "gfx950"]
)
def test_lds_and_scratch_beyond_the_device_are_refused(arch: str, maximum: int) -> None:
    """Prevents: gigabytes allocated because a descriptor requests them."""

    def launch_with(lds: int, dynamic: int, scratch: int) -> None:
        descriptor = replace(DESCRIPTOR, lds_bytes=lds, scratch_bytes=scratch)
        launch([END], descriptor, arch=arch, lds=dynamic)

    launch_with(maximum - 1024, 1024, (8191 << 10) // 64)
    for sizes in ((maximum + 1, 0, 0), (maximum, 4, 0), (0xFFFFFFFF, 0, 0)):
        with pytest.raises(EmulationError, match=f"of LDS, and a workgroup of {arch}"):
            launch_with(*sizes)
    for scratch in ((8191 << 10) // 64 + 1, 0xFFFFFFFF):
        with pytest.raises(EmulationError, match="of scratch memory, and a lane has at most"):
            launch_with(0, 0, scratch)


def test_the_instruction_limit_is_per_launch() -> None:
    """Prevents: a limit that restarts with each workgroup, or an error with another limit."""
    options = Options(limit=7, waves=1)
    launch([ZERO, END], options=options, grid=(3, 1, 1))
    with pytest.raises(EmulationError, match="more than 7 instructions"):
        launch([ZERO, END], options=options, grid=(4, 1, 1))


def test_calls_of_functions_outside_of_the_kernel() -> None:
    """Prevents: calls, such as those in printf and assert, that end a launch."""
    # The function ends with s_setpc_b64 s[4:5]. Another kernel is between it and its caller:
    # s_getpc_b64 s[2:3], then 16 less, and s_swappc_b64 s[4:5], s[2:3].
    function, other = [movk(1, 7), 0xBE801D04], [END]
    caller = [0xBE821C00, addk(2, -16), 0xBE841E02, END]
    words = [*function, *other, *caller]
    image = struct.pack(f"<{len(words)}I", *words)
    kernels = {
        "test": Kernel("test", 12, 16, DESCRIPTOR, (), 1024),
        "other": Kernel("other", 8, 4, DESCRIPTOR, (), 1024),
    }
    device = Device(Options(strict=True))
    module = Module(device, CodeObject("gfx942", image, kernels, text=(0, len(image))))
    assert sorted(module.program("test").code) == [-12, -8, 0, 4, 8, 12]
    result = device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"")
    assert result.instructions == len(function) + len(caller)


# ---------------------------------------------------------------------------------------------
# Contents of registers, LDS and scratch memory that nothing has written

#: v_lshlrev_b32 v1, 2, v0; ds_read_b32 v3, v1; scratch_load_dword v4, off, off offset:8
_LOADS = (0x24020082, 0xD86C0000, 0x03000001, 0xDC504008, 0x047F0000, wait(vm=0, lgkm=0))
#: v_mul_f32 v2, 0, v9; v_mul_f32 v3, 0, v3; v_mul_f32 v4, 0, v4; v_mul_f32 v5, 0, s40
_PRODUCTS = (0x0A041280, 0x0A060680, 0x0A080880, 0xD1050005, 0x00005080)
#: global_store_dwordx4 v1, v[2:5], s[2:3]
_STORE = (0xDC7C8000, 0x00020201, END)


@pytest.mark.parametrize("groups", [1, 3])
def test_zero_times_something_unwritten_is_nan(groups: int) -> None:
    """Prevents: a sum that passes although nothing initialises it, since 0 times it is 0."""
    # v_accvgpr_write a2, s40; v_accvgpr_read v9, a2
    moves = [0xD3D94002, 0x18000028, 0xD3D84009, 0x18000102]
    # ds_write_b32 v1, v0, and scratch_store_dword off, v0, off offset:8: for the next workgroup
    stores = [0xD81A0000, 0x00000001, 0xDC704008, 0x007F0000]
    words = [*_LOADS, *moves, *_PRODUCTS, *stores, *_STORE]
    descriptor = replace(DESCRIPTOR, lds_bytes=256, scratch_bytes=16, rsrc1=7, rsrc3=7)
    # A workgroup at a time: none finds what the one before has left, whose products it overwrites.
    device, module = load(words, descriptor, options=Options(strict=True, waves=1))
    target = np.zeros(64 + 3, F32)
    address = struct.pack("<Q", device.map.own(target))
    device.launch(module, "test", (groups, 1, 1), (64, 1, 1), address)
    assert np.isnan(target).all()


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
    arguments = struct.pack("<iI", -1, UNWRITTEN)
    options = Options(strict=True, checked=True)
    assert launch(words, arguments=arguments, options=options).faults == ()
