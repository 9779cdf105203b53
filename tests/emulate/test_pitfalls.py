"""What emulators have got wrong before, each by name (the layouts themselves: hand_computed)."""

from __future__ import annotations

import numpy as np
import pytest

from qola.emulate.arrays import U8, U32, U64
from qola.emulate.faults import EmulationError, Faults
from qola.emulate.memory import AddressMap
from qola.emulate.operands import Literals, UnsupportedError
from qola.emulate.program import bind
from qola.emulate.waves import EXEC, VCC
from tests.emulate import programs
from tests.emulate.hand_computed import LANES, OFF, lanes_of
from tests.emulate.machines import instruction, run, waves


def test_a_chain_of_v_cmpx() -> None:
    """Prevents: a V_CMPX that compares lanes which an earlier one switched off, or forgets EXEC."""
    w = waves(registers=np.stack([LANES, LANES * 0 + 7]).astype(U32)[:, None])
    for name, limit in (("V_CMPX_LT_U32", 16), ("V_CMPX_GT_U32", 3)):
        fields = {"src0": 128 + limit, "vsrc1": 256}
        # 16 < lane, then 3 > lane: none is left.
        run(instruction(name, "VOPC", fields), w)
        if limit == 16:
            assert int(w.q[126][0, 0]) == 2**64 - 2**17
            run(instruction("V_MOV_B32", "VOP1", {"src0": 128 + 9, "vdst": 257}), w)
    assert int(w.q[126][0, 0]) == 0
    assert list(w.v[1, 0]) == [7] * 17 + [9] * 47


def test_scratch_memory_is_each_wave_s_own() -> None:
    """Prevents: a wave that reads back what another one spilled."""
    registers = np.zeros((4, 2, 64), U32)
    registers[0] = np.array([[5], [6]]) + LANES * 100
    w = waves(registers=registers, count=2)
    fields = {"addr": 258, "data": 256, "vdst": 257, "offset": 8, "sve": 0, "saddr": OFF, "acc": 0}
    run(instruction("SCRATCH_STORE_DWORD", "SCRATCH", fields), w)
    run(instruction("SCRATCH_LOAD_DWORD", "SCRATCH", fields), w)
    assert (w.v[1] == registers[0]).all()


def _buffer(size: int, map_: AddressMap) -> tuple[np.ndarray, np.ndarray]:
    content = np.full(size, 0x77, U8)
    base = map_.own(content)
    scalars = np.zeros(128, U32)
    # 40 bytes of it are the buffer's.
    scalars[8:12] = base & 0xFFFFFFFF, base >> 32, 40, 0x20000
    return content, scalars


@pytest.mark.parametrize("offset", [0, 0x80000000])
def test_a_buffer_load_out_of_range_is_0(offset: int) -> None:
    """Prevents: a read of what lies behind a buffer; kernels count on 0, word by word."""
    map_ = AddressMap()
    _, scalars = _buffer(4096, map_)
    registers = (LANES * 8 + offset).astype(U32)[None, None]
    fields = {"srsrc": 8, "soffset": 128, "offen": 1, "vaddr": 256, "vdata": 258, "offset": 0}
    one = instruction("BUFFER_LOAD_DWORDX4", "MUBUF", fields)
    w = run(one, registers=registers, scalars=scalars, map_=map_)
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
    """Prevents: old LDS where a load to it was out of range, and lanes that close ranks."""
    map_ = AddressMap()
    _, scalars = _buffer(4096, map_)
    scalars[124] = 16
    registers = (LANES * 4).astype(U32)[None, None]
    w = waves(registers, scalars, ~2 & 2**64 - 1, map_=map_)
    w.machine.lds[:] = 0x11
    fields = {"srsrc": 8, "soffset": 128, "offen": 1, "vaddr": 256, "vdata": 0, "offset": 0}
    fields |= {"lds": 1}
    run(instruction("BUFFER_LOAD_DWORD", "MUBUF", fields), w)
    words = w.machine.lds_words[4 : 4 + 64]
    # Lane 1 is off: its place stays as it was.
    assert list(words[:3]) == [0x77777777, 0x11111111, 0x77777777]
    assert not words[10:].any()


def test_s_setreg_of_the_rounding_mode_is_refused() -> None:
    """Prevents: a kernel that rounds another way, in silence."""
    # All bits from a place on: FP16_OVFL is bit 23, denormals are 4 to 7.
    for value, place, accepted in ((0, 0, True), (3, 0, False), (1, 23, False), (15, 4, True)):
        fields = {"simm16": (31 - place) << 11 | place << 6 | 1}
        one = instruction("S_SETREG_IMM32_B32", "SOPK_LIT", fields, literal=value)
        if accepted:
            bind(one, Literals())
        else:
            with pytest.raises(UnsupportedError):
                bind(one, Literals())


def test_vector_registers_beyond_the_first_accumulation_register() -> None:
    """Prevents: v40 of 32 that are no accumulation registers: it is a8, the file is one."""
    registers = np.zeros((64, 1, 64), U32)
    registers[40] = 5
    one = instruction("V_MOV_B32", "VOP1", {"src0": 256 + 40, "vdst": 256 + 41})
    w = run(one, registers=registers)
    assert (w.u[512 + 9] == 5).all()


def test_f16_denormals_in_a_matrix() -> None:
    """Prevents: small probabilities that become 0."""
    registers = np.zeros((40, 1, 64), U32)
    registers[0, 0], registers[8, 0] = 1, np.float16(1).view(np.uint16)
    fields = {"src0": 256, "src1": 264, "src2": 128, "vdst": 272}
    w = run(instruction("V_MFMA_F32_32X32X8_F16", "VOP3P_MFMA", fields), registers=registers)
    assert (w.v[16:32].view(np.float32) == 2 * 2.0**-24).all()


def test_a_select_that_turns_a_sign() -> None:
    """Prevents: V_CNDMASK that passes over a sign, or an operation of integers that takes one."""
    registers = np.stack([lanes_of([1.5], np.float32), lanes_of([2.5], np.float32)])
    fields = {"src0": 256, "src1": 257, "src2": 20, "vdst": 258, "neg": 1, "abs": 0, "opsel": 0}
    fields |= {"omod": 0, "clmp": 0}
    w = run(instruction("V_CNDMASK_B32", "VOP3", fields), registers=registers)
    assert w.v[2, 0, 0].view(np.float32) == -1.5
    with pytest.raises(UnsupportedError):
        bind(instruction("V_ADD_U32", "VOP3", fields), Literals())


@pytest.mark.parametrize(
    ("name", "kind", "given", "wanted"),
    [
        ("V_ADD_F32", np.float32, [0.25, 7.0, -1.0, np.nan], [1.0, 1.0, 0.0, 0.0]),
        ("V_ADD_U32", np.uint32, [5, 2**31, 2**32 - 1], [10, 2**32 - 1, 2**32 - 1]),
        ("V_ADD_I32", np.int32, [5, 2**31 - 1, -(2**31)], [10, 2**31 - 1, -(2**31)]),
    ],
)
def test_clamp(name: str, kind: type, given: list[float], wanted: list[float]) -> None:
    """Prevents: a clamp or a factor of the result that is left out, or a sum that wraps around."""
    registers = lanes_of(given, kind)[None]
    # The factor is 2, of floats only.
    fields = {"src0": 256, "src1": 256, "vdst": 257, "clmp": 1, "omod": kind is np.float32}
    w = run(instruction(name, "VOP3", fields), registers=registers)
    assert list(w.v[1, 0, : len(wanted)].view(kind)) == wanted


def test_a_swap_by_a_packed_move() -> None:
    """Prevents: a second half that is read after the first one was written over it."""
    registers = np.stack([lanes_of([1]), lanes_of([2])])
    fields = {"src0": 256, "src1": 256, "vdst": 256, "opsel": 1, "opsel_hi": 3, "opsel_hi2": 1}
    w = run(instruction("V_PK_MOV_B32", "VOP3P", fields), registers=registers)
    assert list(w.v[:2, 0, 0]) == [2, 1]


def test_scalar_registers_with_sdwa() -> None:
    """Prevents: the vector register of the same number, where a bit says it is a scalar one."""
    scalars = np.zeros(128, U32)
    scalars[5] = 0x12345678
    fields = {"src0": 249, "vsrc0": 261, "s0": 1, "vsrc1": 256, "vdst": 258, "src0_sel": 5}
    fields |= {"src1_sel": 6, "dst_sel": 6, "dst_unused": 0}
    w = run(instruction("V_OR_B32", "VOP2_SDWA", fields), scalars=scalars)
    assert (w.v[2] == 0x1234).all()


def test_dpp_reads_no_lane_that_is_off() -> None:
    """Prevents: values of lanes that are off, or a write to a lane that has no source."""
    registers = np.stack([LANES + 100, LANES * 0 + 7]).astype(U32)[:, None]
    fields = {"src0": 250, "vsrc0": 256, "vdst": 257, "dpp": 0x111, "row_mask": 15, "bank_mask": 15}
    one = instruction("V_MOV_B32", "VOP1_DPP16", fields | {"bc": 0})
    w = run(one, registers=registers, active=~2 & 2**64 - 1)
    # Each lane gets that of the lane before it in its row.
    assert list(w.v[1, 0, :5]) == [7, 7, 7, 102, 103]
    assert w.v[1, 0, 16] == 7


def test_waves_that_wait_for_nobody() -> None:
    """Prevents: a launch that hangs at a barrier or in a loop without an end."""
    # The first wave ends; the other waits at the barrier, and goes on as the only one.
    words = [programs.cmp_lg(0, 0), programs.sopp("S_CBRANCH_SCC0", 1), programs.sopp("S_BARRIER")]
    assert set(programs.execute([*words, programs.END], [{0: 0}, {0: 1}])) == {0, 1}
    with pytest.raises(EmulationError, match="endless"):
        programs.execute([programs.sopp("S_BRANCH", -1)], [{}], limit=100)


def test_what_is_not_emulated_is_an_error_when_it_is_reached() -> None:
    """Prevents: an instruction that is skipped in silence, and kernels refused for dead code."""
    unknown = 0xBF800000 | 40 << 16
    assert programs.execute([programs.END, unknown], [{}])
    with pytest.raises(EmulationError, match=r"test\+0x0"):
        programs.execute([unknown, programs.END], [{}])


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
    """Prevents: an access that nobody hears of, or without the instruction and lane that did it."""
    w = waves(registers=(LANES * 4).astype(U32)[None, None], lds_bytes=256, checked=True)
    ds = {"addr": 256, "data0": 257, "vdst": 258, "offset0": 0, "offset1": 0, "acc": 0, "gds": 0}
    one = instruction("DS_WRITE_B32", "DS", ds)
    if kind == "unmapped":
        w.v[1] = 1
        fields = {"addr": 256, "vdst": 258, "offset": 0, "saddr": OFF, "acc": 0}
        one = instruction("GLOBAL_LOAD_DWORD", "GLOBAL", fields)
    elif kind == "uninitialised LDS":
        one = instruction("DS_READ_B32", "DS", ds)
    elif kind == "uninitialised register":
        w.known[0][3, 0, 9] = False
        fields = {"src0": 259, "vdst": 260}
        one = instruction("V_MOV_B32", "VOP1", fields, dict.fromkeys(fields, 1))
    else:
        w.v[0, 0, 9] = 254 if kind == "out of range" else 34
    run(one, w)
    (fault,) = w.machine.faults.all
    assert (fault.kind, fault.lane) == (kind, lane)
    if kind == "misaligned":
        assert fault.detail == "4 bytes at 0x22 of the LDS"
    assert fault.place.startswith(f"test+0x0 {one.name.lower()}, workgroup 0")
    w.machine.faults = Faults(strict=True)
    with pytest.raises(EmulationError, match=kind):
        run(one, w)


def test_what_the_checks_take_for_written() -> None:
    """Prevents: VCC of a carry told as never written, or lanes that V_WRITELANE did not write."""
    w = waves(checked=True)
    known_v, known_s = w.known
    known_v[4], known_s[:, VCC : VCC + 2] = False, False
    carry = {"src0": 256, "vsrc1": 257, "vdst": 258}
    run(instruction("V_ADD_CO_U32", "VOP2", carry, dict.fromkeys(carry, 1)), w)
    assert known_s[:, VCC : VCC + 2].all()
    fields = {"src0": 128, "src1": 128 + 7, "vdst": 260}
    run(instruction("V_WRITELANE_B32", "VOP3", fields, dict.fromkeys(fields, 1)), w)
    assert list(np.flatnonzero(known_v[4, 0])) == [7]


def test_lds_that_a_buffer_load_wrote_is_initialised() -> None:
    """Prevents: a fault for LDS that was loaded from memory, or none for bytes behind it."""
    map_ = AddressMap()
    _, scalars = _buffer(4096, map_)
    scalars[124] = 0
    registers = (LANES * 4).astype(U32)[None, None]
    w = waves(registers, scalars, map_=map_, checked=True)
    load = {"srsrc": 8, "soffset": 128, "offen": 1, "vaddr": 256, "offset": 0, "lds": 1}
    run(instruction("BUFFER_LOAD_DWORD", "MUBUF", load), w)
    read = {"addr": 256, "vdst": 258, "offset0": 0, "offset1": 0, "acc": 0, "gds": 0}
    run(instruction("DS_READ_B32", "DS", read), w)
    assert not w.machine.faults.all
    run(instruction("DS_READ_B64", "DS", read), w)
    assert {(fault.kind, fault.lane) for fault in w.machine.faults.all} == {
        ("uninitialised LDS", 63)
    }


def test_an_address_beyond_all_allocations() -> None:
    """Prevents: an end that is taken for the start of what lies behind it."""
    map_ = AddressMap()
    content = np.zeros(64, U8)
    start = map_.own(content)
    inside = np.array([start, start + 60], U64)
    assert list(map_.mapped(inside, 4)) == [True, True]
    assert list(map_.mapped(inside + U64(2), 4)) == [True, False]
    # The last address of all: with the size behind it, it would be small again.
    assert not map_.mapped(np.array([2**64 - 1], U64), 4).any()
    map_.remove(start)
    assert not map_.mapped(inside, 4).any()


def test_exec_as_the_destination_of_a_mask() -> None:
    """Prevents: lanes that a comparison or a carry switched off, and that go on."""
    registers = np.stack([LANES, LANES * 0 + 7]).astype(U32)[:, None]
    compare = {"src0": 256, "src1": 128 + 4, "vdst": EXEC}
    carry = {"src0": 256, "src1": 193, "vdst": 259, "sdst": EXEC}
    for one, active in (
        (instruction("V_CMP_LT_U32", "VOP3_SDST", compare), LANES < 4),
        (instruction("V_ADD_CO_U32", "VOP3SD", carry), LANES > 0),
    ):
        w = run(one, registers=registers)
        run(instruction("V_MOV_B32", "VOP1", {"src0": 128 + 9, "vdst": 257}), w)
        assert ((w.v[1, 0] == 9) == active).all()


@pytest.mark.parametrize("name", ["GLOBAL_ATOMIC_ADD", "GLOBAL_ATOMIC_ADD_X2", "DS_ADD_F32"])
def test_a_misaligned_atomic_is_dropped(name: str) -> None:
    """Prevents: a sum that goes to the number before, in silence."""
    map_ = AddressMap()
    content = np.zeros(64, U64)
    base = 0 if name.startswith("DS") else map_.own(content)
    # Lane 1 is off by half of its size.
    size = 8 if name.endswith("X2") else 4
    addresses = base + 8 * LANES.astype(U64) + (LANES == 1).astype(U64) * U64(size // 2)
    registers = np.zeros((8, 1, 64), U32)
    registers[0], registers[1], registers[2] = addresses, addresses >> U64(32), 5
    fields = {"addr": 256, "data": 258, "data0": 258, "vdst": 260, "offset": 0, "saddr": OFF}
    w = run(instruction(name, name.partition("_")[0], fields), waves(registers, map_=map_))
    if name.startswith("DS"):
        content = w.machine.lds.view(U64)[:64]
    assert list(content) == [5, 0, *[5] * 62]
    (fault,) = w.machine.faults.all
    assert (fault.kind, fault.lane) == ("misaligned", 1)


@pytest.mark.parametrize(("size", "kind"), [(1, "BYTE"), (2, "SHORT")])
def test_the_last_bytes_of_scratch_memory(size: int, kind: str) -> None:
    """Prevents: a byte at the end of scratch memory taken for a word beyond it."""
    w = waves(registers=(LANES + 1).astype(U32)[None, None])
    fields = {"addr": 256, "data": 256, "vdst": 257, "sve": 0, "saddr": OFF, "acc": 0}
    row = w.machine.scratch_row
    run(instruction(f"SCRATCH_STORE_{kind}", "SCRATCH", fields | {"offset": row - size}), w)
    run(instruction(f"SCRATCH_LOAD_U{kind}", "SCRATCH", fields | {"offset": row - size}), w)
    assert not w.machine.faults.all
    assert (w.v[1, 0] == LANES + 1).all()
    run(instruction(f"SCRATCH_STORE_{kind}", "SCRATCH", fields | {"offset": row - size + 1}), w)
    assert [fault.kind for fault in w.machine.faults.all] == ["out of range"]


def test_a_scalar_load_across_the_end_of_a_buffer() -> None:
    """Prevents: a fault, or 0 for all words, where only the last ones are out of range."""
    map_ = AddressMap()
    content = np.arange(1, 11, dtype=U32)
    base = map_.own(content)
    scalars = np.zeros(128, U32)
    scalars[8:12] = base & 0xFFFFFFFF, base >> 32, 40, 0x20000
    fields = {"sbase": 8, "sdata": 16, "offset": 32, "imm": 1, "soffset_en": 0}
    one = instruction("S_BUFFER_LOAD_DWORDX4", "SMEM", fields)
    w = run(one, scalars=scalars, map_=map_)
    assert list(w.s[0, 16:20]) == [9, 10, 0, 0]
    assert not w.machine.faults.all


@pytest.mark.parametrize("name", ["V_PK_ADD_U16", "V_PK_MOV_B32"])
def test_the_sign_of_a_packed_integer_is_refused(name: str) -> None:
    """Prevents: a modifier that is passed over in silence."""
    fields = {"src0": 256, "src1": 257, "vdst": 258, "opsel": 0, "opsel_hi": 3}
    for sign in ("neg", "neg_hi"):
        with pytest.raises(UnsupportedError):
            bind(instruction(name, "VOP3P", fields | {sign: 1}), Literals())


@pytest.mark.parametrize("opsel", [1, 2])
def test_a_swap_that_reads_lanes_which_are_off_is_refused(opsel: int) -> None:
    """Prevents: fi or bound_ctrl of a swap, passed over in silence."""
    fields = {"src0": 256, "vdst": 257, "opsel": opsel}
    with pytest.raises(UnsupportedError):
        bind(instruction("V_PERMLANE32_SWAP_B32", "VOP3", fields), Literals())
