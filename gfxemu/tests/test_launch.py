"""Launches of small programs: initial registers, arguments, memory and limits."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from gfxemu.arrays import U32
from gfxemu.faults import EmulationError
from gfxemu.launch import Device, Module, Options
from gfxemu.tests.programs import DESCRIPTOR, END, addk, load, movk, sopp, wait
from qola_base.code_object.reader import Argument, CodeObject, Kernel

#: v_mov_b32 v1, 0
ZERO = 0x7E020280


@pytest.mark.parametrize("checked", [True, False])
def test_uninitialised_registers_are_reported_if_checked(checked: bool) -> None:
    """Prevents: waves that lose track of written registers when they diverge or join."""
    # Only the first wave, 64 > v0, writes v3; both read it, and s4, which the launch writes.
    branch = [0x7D9800C0, sopp("S_CBRANCH_VCCZ", 1), 0x7E060204]
    words = [*branch, 0x7E040303, END]
    device, module = load(words, DESCRIPTOR, options=Options(checked=checked))
    result = device.launch(module, "test", (1, 1, 1), (128, 1, 1), b"")
    found = [(fault.kind, fault.pc, fault.wave, fault.detail) for fault in result.faults]
    wanted = ("uninitialised register", 12, 1, "v3 was never written")
    assert found == ([wanted] if checked else [])


def test_an_immediate_is_not_a_register() -> None:
    """Prevents: s_movk_i32 s4, 20 reported as a read of s20."""
    words = [0xB0040014, END]
    device, module = load(words, DESCRIPTOR, options=Options(strict=True, checked=True))
    assert device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"").faults == ()


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
    words = [
        0xC00A0200,
        4,
        0xC0060181,
        0,
        ZERO,
        wait(lgkm=0),
        0x7E040208,
        0x7E060209,
        0x7E08020A,
        0x7E0A020B,
    ]
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
    device, module = load([END], replace(DESCRIPTOR, rsrc1=1 << bit))
    with pytest.raises(EmulationError, match="unsupported"):
        device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"")
    # Denormals, DX10_CLAMP and IEEE do not change results.
    device, module = load([END], replace(DESCRIPTOR, rsrc1=0xF << 16 | 1 << 21 | 1 << 23))
    device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"")


@pytest.mark.parametrize("word", [0x020000D3, 0xFFFFFFFF], ids=["reserved register", "nothing"])
def test_undecodable_words_fail_when_executed(word: int) -> None:
    """Prevents: a kernel refused for data after its end, or a traceback for an undecodable word."""
    device, module = load([END, word], DESCRIPTOR)
    device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"")
    device, module = load([ZERO, word, END], DESCRIPTOR)
    with pytest.raises(EmulationError, match=rf"(?s)test\+0x4 no instruction.*: {word:#010x}"):
        device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"")


def test_random_words_do_not_raise_other_errors() -> None:
    """Prevents: random words that raise another exception than EmulationError."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        words = [int(word) for word in rng.integers(1 << 32, size=16)]
        device, module = load([END, *words], DESCRIPTOR)
        device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"")
        device, module = load([*words, END], DESCRIPTOR, options=Options(limit=1000))
        with pytest.raises(EmulationError):
            device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"")


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
    device, module = load([word, END], DESCRIPTOR)
    with pytest.raises(EmulationError, match=message):
        device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"")


@pytest.mark.parametrize(
    ("arch", "maximum"), [("gfx942", 64 << 10), ("gfx950", 160 << 10)], ids=["gfx942", "gfx950"]
)
def test_lds_and_scratch_beyond_the_device_are_refused(arch: str, maximum: int) -> None:
    """Prevents: gigabytes allocated because a descriptor requests them."""

    def launch(lds: int, dynamic: int, scratch: int) -> None:
        descriptor = replace(DESCRIPTOR, lds_bytes=lds, scratch_bytes=scratch)
        device, module = load([END], descriptor, arch=arch)
        device.launch(module, "test", (1, 1, 1), (64, 1, 1), b"", dynamic)

    launch(maximum - 1024, 1024, (8191 << 10) // 64)
    for sizes in ((maximum + 1, 0, 0), (maximum, 4, 0), (0xFFFFFFFF, 0, 0)):
        with pytest.raises(EmulationError, match=f"of LDS, and a workgroup of {arch}"):
            launch(*sizes)
    for scratch in ((8191 << 10) // 64 + 1, 0xFFFFFFFF):
        with pytest.raises(EmulationError, match="of scratch memory, and a lane has at most"):
            launch(0, 0, scratch)


def test_the_instruction_limit_is_per_launch() -> None:
    """Prevents: a limit that restarts with each workgroup, or an error with another limit."""
    options = Options(limit=7, waves=1)
    device, module = load([ZERO, END], DESCRIPTOR, options=options)
    device.launch(module, "test", (3, 1, 1), (64, 1, 1), b"")
    with pytest.raises(EmulationError, match="more than 7 instructions"):
        device.launch(module, "test", (4, 1, 1), (64, 1, 1), b"")


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
