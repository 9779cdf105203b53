"""Regression tests for known emulator errors (hand_computed tests the register layouts)."""

from __future__ import annotations

import numpy as np
import pytest

from gfxemu.arrays import U8, U32, U64
from gfxemu.faults import EmulationError, Faults
from gfxemu.isa import CDNA, RDNA4, Isa
from gfxemu.memory import AddressMap
from gfxemu.operands import UnsupportedError
from gfxemu.registers import EXEC, OFF, VCC
from gfxemu.tests import programs
from gfxemu.tests.hand_computed import LANES
from gfxemu.tests.machines import encode, instruction, put, run, waves


def test_a_chain_of_v_cmpx() -> None:
    """Prevents: V_CMPX that enables lanes which an earlier one disabled, or does not write EXEC."""
    w = waves(registers=np.stack([LANES, LANES * 0 + 7]).astype(U32)[:, None])
    for name, limit in (("V_CMPX_LT_U32", 16), ("V_CMPX_GT_U32", 3)):
        fields = {"src0": 128 + limit, "vsrc1": 256}
        # 16 < lane, then 3 > lane: no lane stays active.
        run(instruction(name, "VOPC", fields), w)
        if limit == 16:
            assert w.pair(EXEC) == 2**64 - 2**17
            run(instruction("V_MOV_B32", "VOP1", {"src0": 128 + 9, "vdst": 257}), w)
    assert w.pair(EXEC) == 0
    assert list(w.v[1, 0]) == [7] * 17 + [9] * 47


def test_waves_do_not_share_scratch_memory() -> None:
    """Prevents: a wave that reloads the registers which another wave spilled."""
    registers = np.zeros((4, 2, 64), U32)
    registers[0] = np.array([[5], [6]]) + LANES * 100
    w = waves(registers=registers, count=2)
    fields = {"addr": 258, "data": 256, "vdst": 257, "offset": 8, "saddr": OFF}
    run(instruction("SCRATCH_STORE_DWORD", "SCRATCH", fields), w)
    run(instruction("SCRATCH_LOAD_DWORD", "SCRATCH", fields), w)
    assert (w.v[1] == registers[0]).all()


def _buffer(map_: AddressMap) -> np.ndarray:
    """Return scalar registers with a buffer in s8, of 40 bytes of an allocation."""
    base = map_.own(np.full(4096, 0x77, U8))
    scalars = np.zeros(128, U32)
    scalars[8:12] = base & 0xFFFFFFFF, base >> 32, 40, 0x20000
    return scalars


@pytest.mark.parametrize("offset", [0, 0x80000000])
def test_a_buffer_load_out_of_range_is_0(offset: int) -> None:
    """Prevents: buffer loads that return data after the buffer; each word out of range is 0."""
    map_ = AddressMap()
    registers = (LANES * 8 + offset).astype(U32)[None, None]
    fields = {"srsrc": 8, "soffset": 128, "offen": 1, "vaddr": 256, "vdata": 258}
    insn = instruction("BUFFER_LOAD_DWORDX4", "MUBUF", fields)
    w = run(insn, registers=registers, scalars=_buffer(map_), map_=map_)
    full, none = 0x77777777, 0
    if offset:
        assert not w.v[2:6].any()
    else:
        assert [list(w.v[2:6, 0, lane]) for lane in (3, 4, 5)] == [
            [full] * 4,
            [full, full, none, none],
            [none] * 4,
        ]
    assert not w.machine.faults.all


def test_a_buffer_load_to_the_lds_out_of_range_writes_0() -> None:
    """Prevents: stale LDS where a load is out of range, or active lanes packed together in LDS."""
    map_ = AddressMap()
    scalars = _buffer(map_)
    scalars[124] = 16
    registers = (LANES * 4).astype(U32)[None, None]
    w = waves(registers, scalars, ~2 & 2**64 - 1, map_=map_)
    w.machine.lds[:] = 0x11
    fields = {"srsrc": 8, "soffset": 128, "offen": 1, "vaddr": 256, "vdata": 0}
    fields |= {"lds": 1}
    run(instruction("BUFFER_LOAD_DWORD", "MUBUF", fields), w)
    words = w.machine.lds.view(U32)[4 : 4 + 64]
    # Lane 1 is inactive: its LDS word is unchanged.
    assert list(words[:3]) == [0x77777777, 0x11111111, 0x77777777]
    assert not words[10:].any()


def test_s_setreg_of_the_rounding_mode_is_refused() -> None:
    """Prevents: a kernel that sets another rounding mode and silently gets wrong results."""
    # Sets all bits from `place`: FP16_OVFL is bit 23, denormals are bits 4 to 7.
    for value, place, accepted in ((0, 0, True), (3, 0, False), (1, 23, False), (15, 4, True)):
        fields = {"simm16": (31 - place) << 11 | place << 6 | 1}
        insn = instruction("S_SETREG_IMM32_B32", "SOPK_LIT", fields, literal=value)
        if accepted:
            encode(insn)
        else:
            with pytest.raises(UnsupportedError):
                encode(insn)


def test_vector_registers_beyond_the_first_accumulation_register() -> None:
    """Prevents: v40 and a8 in different registers, when accumulation registers start at 32."""
    registers = np.zeros((64, 1, 64), U32)
    registers[40] = 5
    insn = instruction("V_MOV_B32", "VOP1", {"src0": 256 + 40, "vdst": 256 + 41})
    w = run(insn, registers=registers)
    assert (w.v[32 + 9] == 5).all()


def test_f16_denormals_in_a_matrix_multiplication() -> None:
    """Prevents: small probabilities that matrix multiplications flush to 0."""
    registers = np.zeros((40, 1, 64), U32)
    registers[0, 0], registers[8, 0] = 1, np.float16(1).view(np.uint16)
    fields = {"src0": 256, "src1": 264, "src2": 128, "vdst": 272}
    w = run(instruction("V_MFMA_F32_32X32X8_F16", "VOP3P_MFMA", fields), registers=registers)
    assert (w.v[16:32].view(np.float32) == 2 * 2.0**-24).all()


def test_neg_modifier_of_v_cndmask() -> None:
    """Prevents: V_CNDMASK that ignores a neg modifier, or an integer operation that accepts one."""
    registers = np.array([1.5, 2.5], np.float32).view(U32)[:, None, None]
    fields = {"src0": 256, "src1": 257, "src2": 20, "vdst": 258, "neg": 1, "opsel": 0}
    w = run(instruction("V_CNDMASK_B32", "VOP3", fields), registers=registers)
    assert w.v[2, 0, 0].view(np.float32) == -1.5
    with pytest.raises(UnsupportedError):
        encode(instruction("V_ADD_U32", "VOP3", fields))


def test_a_swap_by_a_packed_move() -> None:
    """Prevents: V_PK_MOV_B32 that overwrites its second source before reading it."""
    registers = np.array([1, 2], U32)[:, None, None]
    fields = {"src0": 256, "src1": 256, "vdst": 256, "opsel": 1, "opsel_hi": 3, "opsel_hi2": 1}
    w = run(instruction("V_PK_MOV_B32", "VOP3P", fields), registers=registers)
    assert list(w.v[:2, 0, 0]) == [2, 1]


def test_scalar_registers_with_sdwa() -> None:
    """Prevents: SDWA that reads v5 instead of s5 although the S0 bit selects a scalar register."""
    scalars = np.zeros(128, U32)
    scalars[5] = 0x12345678
    fields = {"src0": 249, "vsrc0": 261, "s0": 1, "vsrc1": 256, "vdst": 258, "src0_sel": 5}
    fields |= {"src1_sel": 6, "dst_sel": 6}
    w = run(instruction("V_OR_B32", "VOP2_SDWA", fields), scalars=scalars)
    assert (w.v[2] == 0x1234).all()


def test_dpp_does_not_read_inactive_lanes() -> None:
    """Prevents: DPP that reads inactive lanes, or writes to a lane without a source."""
    registers = np.stack([LANES + 100, LANES * 0 + 7]).astype(U32)[:, None]
    fields = {"src0": 250, "vsrc0": 256, "vdst": 257, "dpp": 0x111, "row_mask": 15, "bank_mask": 15}
    insn = instruction("V_MOV_B32", "VOP1_DPP16", fields)
    w = run(insn, registers=registers, active=~2 & 2**64 - 1)
    # Each lane gets the value of the previous lane in its row.
    assert list(w.v[1, 0, :5]) == [7, 7, 7, 102, 103]
    assert w.v[1, 0, 16] == 7


def test_a_barrier_that_only_one_wave_reaches() -> None:
    """Prevents: a launch that hangs at a barrier or in an endless loop."""
    # The first wave ends; the other one passes the barrier, since no other wave is left.
    words = [programs.cmp_lg(0, 0), programs.sopp("S_CBRANCH_SCC0", 1), programs.sopp("S_BARRIER")]
    assert set(programs.execute([*words, programs.END], [{0: 0}, {0: 1}])) == {0, 1}
    with pytest.raises(EmulationError, match="endless"):
        programs.execute([programs.sopp("S_BRANCH", -1)], [{}], limit=100)
    with pytest.raises(EmulationError, match="outside of the kernel's code"):
        programs.execute([programs.sopp("S_BRANCH", 100), programs.END], [{}])


@pytest.mark.parametrize(
    ("kind", "lane"),
    [
        ("unmapped", 0),
        ("out of range", 9),
        ("misaligned", 9),
        ("uninitialised LDS", 0),
        ("uninitialised register", 9),
    ],
)
def test_faults(kind: str, lane: int) -> None:
    """Prevents: an invalid access that is not reported, or without its instruction and lane."""
    w = waves(registers=(LANES * 4).astype(U32)[None, None], lds_bytes=256, checked=True)
    ds = {"addr": 256, "data0": 257, "vdst": 258}
    insn = instruction("DS_WRITE_B32", "DS", ds)
    if kind == "unmapped":
        w.v[1] = 1
        fields = {"addr": 256, "vdst": 258, "saddr": OFF}
        insn = instruction("GLOBAL_LOAD_DWORD", "GLOBAL", fields)
    elif kind == "uninitialised LDS":
        insn = instruction("DS_READ_B32", "DS", ds)
    elif kind == "uninitialised register":
        w.known_v[3, 0, 9] = False
        fields = {"src0": 259, "vdst": 260}
        insn = instruction("V_MOV_B32", "VOP1", fields, dict.fromkeys(fields, 1))
    else:
        w.v[0, 0, 9] = 254 if kind == "out of range" else 34
    run(insn, w)
    (fault,) = w.machine.faults.all
    assert (fault.kind, fault.lane) == (kind, lane)
    if kind == "misaligned":
        assert fault.detail == "4 bytes at 0x22 of the LDS"
    assert fault.place.startswith(f"test+0x0 {insn.name.lower()}, workgroup 0")
    w.machine.faults = Faults(strict=True)
    with pytest.raises(EmulationError, match=kind):
        run(insn, w)


def test_checks_track_written_registers() -> None:
    """Prevents: VCC uninitialised after a carry, or all lanes initialised by V_WRITELANE."""
    w = waves(checked=True)
    w.known_v[4], w.known_s[:, VCC : VCC + 2] = False, False
    carry = {"src0": 256, "vsrc1": 257, "vdst": 258}
    run(instruction("V_ADD_CO_U32", "VOP2", carry, dict.fromkeys(carry, 1)), w)
    assert w.known_s[:, VCC : VCC + 2].all()
    fields = {"src0": 128, "src1": 128 + 7, "vdst": 260}
    run(instruction("V_WRITELANE_B32", "VOP3", fields, dict.fromkeys(fields, 1)), w)
    assert list(np.flatnonzero(w.known_v[4, 0])) == [7]


def test_lds_that_a_buffer_load_wrote_is_initialised() -> None:
    """Prevents: loads to LDS that leave it uninitialised, or no fault for the bytes after them."""
    map_ = AddressMap()
    scalars = _buffer(map_)
    scalars[124] = 0
    registers = (LANES * 4).astype(U32)[None, None]
    w = waves(registers, scalars, map_=map_, checked=True)
    load = {"srsrc": 8, "soffset": 128, "offen": 1, "vaddr": 256, "lds": 1}
    run(instruction("BUFFER_LOAD_DWORD", "MUBUF", load), w)
    read = {"addr": 256, "vdst": 258}
    run(instruction("DS_READ_B32", "DS", read), w)
    assert not w.machine.faults.all
    run(instruction("DS_READ_B64", "DS", read), w)
    assert {(fault.kind, fault.lane) for fault in w.machine.faults.all} == {
        ("uninitialised LDS", 63)
    }


@pytest.mark.parametrize(
    ("address", "good"), [(0, True), (60, True), (2, True), (62, False), (-1, False)]
)
def test_an_address_beyond_all_allocations(address: int, good: bool) -> None:
    """Prevents: an access across the end of an allocation, or at 2**64 - 1, taken for valid."""
    map_ = AddressMap()
    start = map_.own(np.zeros(64, U8))
    # The highest address: adding the size overflows to a small number.
    place = start + address if address >= 0 else 2**64 - 1
    registers = np.zeros((2, 1, 64), U32)
    registers[0], registers[1] = place & 0xFFFFFFFF, place >> 32
    insn = instruction("GLOBAL_LOAD_DWORD", "GLOBAL", {"addr": 256, "vdst": 258, "saddr": OFF})
    w = run(insn, registers=registers, map_=map_)
    assert [fault.kind for fault in w.machine.faults.all] == ([] if good else ["unmapped"])
    map_.remove(start)
    w = run(insn, registers=registers, map_=map_)
    assert [fault.kind for fault in w.machine.faults.all] == ["unmapped"]


def test_generic_reads_of_lds_that_nothing_wrote() -> None:
    """Prevents: LDS reached by a generic pointer that counts as written, or as never written."""
    w = waves(registers=(LANES * 4).astype(U32)[None, None], checked=True)
    w.machine.map.add(w.machine.lds_start, len(w.machine.lds))
    # The aperture of the LDS as the upper half of an address.
    w.v[1] = 1 << 16
    fields = {"addr": 256, "data": 256, "vdst": 260, "saddr": OFF}
    run(instruction("FLAT_LOAD_DWORD", "FLAT", fields), w)
    assert [fault.kind for fault in w.machine.faults.all] == ["uninitialised LDS"]
    w.machine.faults = Faults()
    run(instruction("FLAT_STORE_DWORD", "FLAT", fields), w)
    run(instruction("FLAT_LOAD_DWORD", "FLAT", fields), w)
    run(instruction("DS_READ_B32", "DS", {"addr": 256, "vdst": 261}), w)
    assert not w.machine.faults.all
    assert (w.v[4:6, 0] == LANES * 4).all()


def test_exec_as_the_destination_of_a_mask() -> None:
    """Prevents: lanes that stay active although a comparison or a carry wrote 0 to EXEC."""
    registers = np.stack([LANES, LANES * 0 + 7]).astype(U32)[:, None]
    compare = {"src0": 256, "src1": 128 + 4, "vdst": EXEC}
    carry = {"src0": 256, "src1": 193, "vdst": 259, "sdst": EXEC}
    for insn, active in (
        (instruction("V_CMP_LT_U32", "VOP3_SDST", compare), LANES < 4),
        (instruction("V_ADD_CO_U32", "VOP3SD", carry), LANES > 0),
    ):
        w = run(insn, registers=registers)
        run(instruction("V_MOV_B32", "VOP1", {"src0": 128 + 9, "vdst": 257}), w)
        assert ((w.v[1, 0] == 9) == active).all()


@pytest.mark.parametrize("name", ["GLOBAL_ATOMIC_ADD", "GLOBAL_ATOMIC_ADD_X2", "DS_ADD_F32"])
def test_a_misaligned_atomic_is_dropped(name: str) -> None:
    """Prevents: a misaligned atomic that silently updates the preceding number."""
    map_ = AddressMap()
    content = np.zeros(64, U64)
    base = 0 if name.startswith("DS") else map_.own(content)
    # The address of lane 1 is misaligned by half of the operand's size.
    size = 8 if name.endswith("X2") else 4
    addresses = base + 8 * LANES.astype(U64) + (LANES == 1).astype(U64) * U64(size // 2)
    registers = np.zeros((8, 1, 64), U32)
    put(registers, 0, addresses)
    registers[2] = 5
    fields = {"addr": 256, "data": 258, "data0": 258, "vdst": 260, "saddr": OFF}
    w = run(instruction(name, name.partition("_")[0], fields), waves(registers, map_=map_))
    if name.startswith("DS"):
        content = w.machine.lds.view(U64)[:64]
    assert list(content) == [5, 0, *[5] * 62]
    (fault,) = w.machine.faults.all
    assert (fault.kind, fault.lane) == ("misaligned", 1)


@pytest.mark.parametrize(("size", "kind"), [(1, "BYTE"), (2, "SHORT")])
def test_the_last_bytes_of_scratch_memory(size: int, kind: str) -> None:
    """Prevents: an access to the last bytes of scratch memory reported as out of range."""
    w = waves(registers=(LANES + 1).astype(U32)[None, None])
    fields = {"addr": 256, "data": 256, "vdst": 257, "saddr": OFF}
    row = w.machine.scratch_row
    run(instruction(f"SCRATCH_STORE_{kind}", "SCRATCH", fields | {"offset": row - size}), w)
    run(instruction(f"SCRATCH_LOAD_U{kind}", "SCRATCH", fields | {"offset": row - size}), w)
    assert not w.machine.faults.all
    assert (w.v[1, 0] == LANES + 1).all()
    run(instruction(f"SCRATCH_STORE_{kind}", "SCRATCH", fields | {"offset": row - size + 1}), w)
    assert [fault.kind for fault in w.machine.faults.all] == ["out of range"]


def test_a_scalar_load_across_the_end_of_a_buffer() -> None:
    """Prevents: a fault, or only zeros, if only the last words of a load are out of range."""
    map_ = AddressMap()
    content = np.arange(1, 11, dtype=U32)
    base = map_.own(content)
    scalars = np.zeros(128, U32)
    scalars[8:12] = base & 0xFFFFFFFF, base >> 32, 40, 0x20000
    fields = {"sbase": 8, "sdata": 16, "offset": 32, "imm": 1}
    insn = instruction("S_BUFFER_LOAD_DWORDX4", "SMEM", fields)
    w = run(insn, scalars=scalars, map_=map_)
    assert list(w.s[0, 16:20]) == [9, 10, 0, 0]
    assert not w.machine.faults.all


@pytest.mark.parametrize("name", ["V_PK_ADD_U16", "V_PK_MOV_B32"])
def test_the_sign_of_a_packed_integer_is_refused(name: str) -> None:
    """Prevents: a neg modifier of a packed integer operation silently ignored."""
    fields = {"src0": 256, "src1": 257, "vdst": 258, "opsel": 0, "opsel_hi": 3}
    for sign in ("neg", "neg_hi"):
        with pytest.raises(UnsupportedError):
            encode(instruction(name, "VOP3P", fields | {sign: 1}))


@pytest.mark.parametrize("opsel", [1, 2])
def test_a_swap_that_reads_inactive_lanes_is_refused(opsel: int) -> None:
    """Prevents: fi or bound_ctrl of a swap instruction silently ignored."""
    fields = {"src0": 256, "vdst": 257, "opsel": opsel}
    with pytest.raises(UnsupportedError):
        encode(instruction("V_PERMLANE32_SWAP_B32", "VOP3", fields))


@pytest.mark.parametrize("name", ["V_CVT_F16_F32", "V_CVT_PKRTZ_F16_F32", "V_CVT_PK_F16_F32"])
def test_signalling_nans_become_quiet(name: str) -> None:
    """Prevents: infinity, or another NaN, from a signalling NaN."""
    nans = np.array([0x7F800001, 0xFF800001, 0x7FABCDEF], U32)
    registers = np.zeros((2, 1, 64), U32)
    registers[0, 0, :3] = nans
    w = run(instruction(name, "VOP3", {"src0": 256, "src1": 128, "vdst": 257}), registers=registers)
    found = (w.v[1, 0, :3] & U32(0xFFFF)).tolist()
    assert found == [0x7E00, 0xFE00, 0x7F5E]


@pytest.mark.parametrize("isa", [CDNA, RDNA4])
def test_generic_addresses_of_scratch_memory(isa: Isa) -> None:
    """Prevents: the address of a local array that reaches other memory than the array."""
    w = waves(lanes=isa.lanes, map_=AddressMap())
    machine = w.machine
    machine.map.add(machine.scratch_start, len(machine.scratch))
    scratch = machine.scratch.reshape(isa.lanes, -1)
    # The aperture, src_private_base, as the upper half of an address.
    run(instruction("S_MOV_B64", "SOP1", {"ssrc0": 237, "sdst": 4}, isa=isa), w)
    for source, target in ((128 + 8, 2), (5, 3), (128 + 42, 4)):
        fields = {"src0": source, "vdst": 256 + target}
        run(instruction("V_MOV_B32", "VOP1", fields, isa=isa), w)
    fields = {"addr": 258, "data": 260, "vdst": 261, "saddr": 127}
    run(instruction("FLAT_STORE_DWORD", "FLAT", fields, isa=isa), w)
    run(instruction("FLAT_LOAD_DWORD", "FLAT", fields, isa=isa), w)
    assert not machine.faults.all
    assert (scratch[:, 8:12] == [42, 0, 0, 0]).all()
    assert (w.v[5] == 42).all()
