"""RDNA3 and RDNA4: names, fields, waves of 32 lanes, instructions that differ from CDNA's."""

from __future__ import annotations

import importlib
import struct
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from qola.code_object.reader import CodeObject, Descriptor, Kernel
from qola.emulate.arrays import U32, Array
from qola.emulate.check import operands_of
from qola.emulate.decode import ENCODING, Instruction, decode, only_tables
from qola.emulate.faults import EmulationError
from qola.emulate.isa import RDNA4
from qola.emulate.launch import Device, Module, Options
from qola.emulate.operands import Literals, UnsupportedError
from qola.emulate.program import bind
from qola.emulate.rdna import translated_name
from qola.emulate.waits import Waits
from qola.emulate.waves import EXEC, M0, NULL, VCC
from tests.emulate.machines import instruction, run, waves

ARCH = "gfx1201"
#: s_endpgm; v_mov_b32 v1, 0
END, ZERO = 0xBFB00000, 0x7E020280
#: Waves of 32 lanes; the kernarg segment's address is in s0 and s1; three axes of workgroups.
DESCRIPTOR = Descriptor(0, 0, 0, 0, 0, 2 << 1 | 7 << 7, 0, 1 << 10 | 1 << 3, 0, 0)
LANES = np.arange(32)


def decoded(*words: int, arch: str = ARCH) -> Instruction:
    return decode(struct.pack(f"<{len(words)}I", *words), 0, arch)


@pytest.mark.parametrize("tables", ["rdna3", "rdna4"])
def test_no_two_operations_get_one_name(tables: str) -> None:
    """Prevents: an operation that runs as another one, because both are renamed to it."""
    with only_tables():
        table = importlib.import_module(f"tinygrad.runtime.autogen.amd.{tables}.str_pcode").PCODE
    names = {ENCODING.sub("", op.name) for op in table}
    # They write back or invalidate other caches: nothing here.
    names -= {"GLOBAL_WBINV", "BUFFER_GL1_INV"}
    # Halves of an instruction do what the whole one of the name does.
    names = {name for name in names if not name.startswith("V_DUAL_")}
    found = Counter(map(translated_name, names))
    assert [name for name, count in found.items() if count > 1] == []


def test_fields_are_those_of_cdna() -> None:
    """Prevents: an access at another offset, or with a register that the instruction lacks."""
    # buffer_load_u16 v77, v34, s[48:51], null offen offset:6
    one = decoded(0xC404807C, 0x4080604D, 0x00000622)
    assert (one.name, one.form, one.size) == ("BUFFER_LOAD_USHORT", "MUBUF", 12)
    assert [one[name] for name in ("vdata", "vaddr", "srsrc", "offset")] == [333, 290, 48, 6]
    assert (one["offen"], one["idxen"], one["soffset"]) == (1, 0, NULL)
    # s_load_b64 s[0:1], s[0:1], -4
    one = decoded(0xF4002000, 0xF8FFFFFC)
    assert (one.name, one["sbase"], one["soffset_en"]) == ("S_LOAD_DWORDX2", 0, 0)
    assert one["offset"] == 0xFFFFFC
    # global_load_b32 v1, v2, s[4:5] offset:-8, and with an address in v[2:3]
    for saddr in (4, 124):
        one = decoded(0xEE050000 | saddr, 0x00000001, 0xFFFFF802)
        assert (one.name, one.form, one["addr"]) == ("GLOBAL_LOAD_DWORD", "GLOBAL", 258)
        assert one["saddr"] == (4 if saddr == 4 else 127)
    # s_mov_b32 m0, s5
    assert decoded(0xBEFD0005)["sdst"] == M0


def test_fields_of_rdna3_are_those_of_cdna() -> None:
    """Prevents: NULL taken for M0, or an atomic that does not return what it should."""
    # buffer_load_u16 v77, v34, s[48:51], null offen offset:6
    one = decoded(0xE0480006, 0x7C4C4D22, arch="gfx1100")
    assert (one.name, one.form, one["soffset"]) == ("BUFFER_LOAD_USHORT", "MUBUF", NULL)
    assert [one[name] for name in ("vdata", "vaddr", "srsrc", "offset")] == [333, 290, 48, 6]
    # global_atomic_add_u32 v1, v2, v3, s[4:5] glc, and without
    for word, returns in ((0xDCD64000, 1), (0xDCD60000, 0)):
        one = decoded(word, 0x01040302, arch="gfx1100")
        assert (one.name, one["saddr"], one["sc0"]) == ("GLOBAL_ATOMIC_ADD", 4, returns)
    # global_load_b32 v1, v[2:3], off offset:-8
    one = decoded(0xDC521FF8, 0x017C0002, arch="gfx1100")
    assert (one["saddr"], one["offset"]) == (127, 0x1FF8)
    # s_waitcnt_vscnt null, 0x0
    assert bind(decoded(0xBC7C0000, arch="gfx1100"), Literals()) is None


def test_an_offset_of_24_bits_has_a_sign() -> None:
    """Prevents: a load from 16 MB away instead of from the bytes in front of an address."""
    content = np.arange(64, dtype=U32)
    w = waves(lanes=32)
    base = w.machine.map.own(content) + 128
    w.v[0, 0] = LANES * 4
    w.s[0, 4:6] = base & 0xFFFFFFFF, base >> 32
    # global_load_b32 v1, v0, s[4:5] offset:-8
    run(decoded(0xEE050004, 0x00000001, 0xFFFFF800), w)
    assert (w.v[1, 0] == content[30:62]).all()


def test_both_operations_read_before_one_writes() -> None:
    """Prevents: two registers that one dual instruction should exchange, with one value."""
    # v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v2, v1
    one = decoded(0xCA100102, 0x01020101)
    assert [part.name for part in one.parts] == ["V_MOV_B32", "V_MOV_B32"]
    registers = np.arange(4 * 32, dtype=U32).reshape(4, 1, 32)
    w = run(one, registers=registers, active=0xFFFF)
    assert (w.v[1, 0, :16] == registers[2, 0, :16]).all()
    assert (w.v[2, 0, :16] == registers[1, 0, :16]).all()
    assert (w.v[1:3, 0, 16:] == registers[1:3, 0, 16:]).all()


def test_a_move_reads_one_register() -> None:
    """Prevents: a missing wait reported for a register that a field names without a meaning."""
    # v_dual_mov_b32 v5, s6 :: v_dual_mov_b32 v6, s7, whose other sources are v0.
    one = decoded(0xCA100006, 0x05060007)
    assert [part.text for part in one.parts] == [one.text] * 2
    reads, writes = operands_of(one)
    assert [number for _, number, _ in reads] == [6, 7]
    assert [number for _, number, _ in writes] == [256 + 5, 256 + 6]


def test_null_swallows_results_and_is_zero() -> None:
    """Prevents: a register that changes because an instruction without a destination ran."""
    w = waves(scalars=np.full(100, 5, U32), lanes=32)
    before = w.s.copy()
    # s_add_co_u32 null, s2, s3; s_or_b64 null, s[2:3], s[4:5]
    run(decoded(0x807C0302), w)
    run(decoded(0x8CFC0402), w)
    assert (w.s == before).all()
    # s_mov_b64 s[6:7], null
    run(decoded(0xBE86017C), w)
    assert w.s[0, 6] == w.s[0, 7] == 0


def test_a_comparison_of_lanes_changes_its_mask_only() -> None:
    """Prevents: VCC_HI or the register behind a mask overwritten; V_CMPX that writes VCC."""
    registers = np.zeros((2, 1, 32), U32)
    registers[0, 0] = LANES
    scalars = np.full(VCC + 2, 7, U32)
    # v_cmp_gt_u32 vcc_lo, 5, v0; v_cmp_gt_u32 s9, 5, v0; v_cmpx_gt_u32 5, v0
    for one, written in (
        (decoded(0x7C980085), VCC),
        (decoded(0xD44C0009, 0x00020085), 9),
        (decoded(0x7D980085), EXEC),
    ):
        w = run(one, registers=registers, scalars=scalars)
        wanted = waves(scalars=scalars, lanes=32).s[0]
        wanted[written] = 0b11111
        assert (w.s[0] == wanted).all(), one
        assert w.exec[0].sum() == (5 if written == EXEC else 32)


@pytest.mark.parametrize(
    ("control", "wanted"),
    [
        (0b00011011, LANES ^ 3),  # quad_perm:[3,2,1,0]
        (0x15F, LANES // 16 * 16 + 15),  # row_share:15
        (0x165, LANES ^ 5),  # row_xmask:5
        (0x140, LANES // 16 * 16 + 15 - LANES % 16),  # row_mirror
    ],
)
def test_rows_of_lanes(control: int, wanted: Array) -> None:
    """Prevents: a value from another lane than the control says, or of 64 lanes."""
    registers = np.zeros((2, 1, 32), U32)
    registers[0, 0] = LANES + 100
    word = 0xFF000000 | control << 8  # of v0, all rows and banks
    w = run(decoded(0x7E0202FA, word), registers=registers)
    assert (w.v[1, 0] == wanted + 100).all()
    # Lane 6 is off: with FI it is read, otherwise its readers keep their result.
    for inactive in (0, 1):
        w = run(decoded(0x7E0202FA, word | inactive << 18), registers=registers, active=~64 % 2**32)
        stays = (LANES == 6) | (wanted == 6) & (not inactive)
        assert (w.v[1, 0] == np.where(stays, 0, wanted + 100)).all()


def test_a_control_beyond_rows_is_refused() -> None:
    """Prevents: a wave shift, which RDNA does not have, done as CDNA does it."""
    with pytest.raises(UnsupportedError, match="0x138"):
        run(decoded(0x7E0202FA, 0xFF000000 | 0x138 << 8))


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_eight_lanes_in_any_order(arch: str) -> None:
    """Prevents: the second word taken for the next instruction, or a value from another lane."""
    registers = np.zeros((4, 1, 32), U32)
    registers[0, 0], registers[3, 0] = LANES + 100, 7
    # v_mov_b32_dpp v1, v0 dpp8:[7,6,5,4,3,2,1,0], without and with fi:1. Lane 6 is off.
    for mark, inactive in ((0xE9, 0), (0xEA, 1)):
        one = decoded(0x7E020200 | mark, 0x05397700, arch=arch)
        assert (one.form, one.size) == ("VOP1_DPP8", 8)
        assert [number for _, number, _ in operands_of(one)[0]] == [256]
        found = run(one, registers=registers, active=~64 % 2**32).v[1, 0]
        wanted = np.where((LANES == 1) & (not inactive), 0, (LANES ^ 7) + 100)
        assert (found == np.where(LANES == 6, 0, wanted)).all()
    # v_fma_f32_e64_dpp v2, -v0, v1, v3 dpp8:[0,2,4,6,1,3,5,7]
    floats = np.zeros((4, 1, 32), np.float32)
    floats[0, 0], floats[1], floats[3] = LANES, 2, 0.5
    one = decoded(0xD6130002, 0x240E02E9, 0xF59D1000, arch=arch)
    found = run(one, registers=floats.view(U32)).v[2, 0].view(np.float32)
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    assert (found == 0.5 - 2 * (LANES // 8 * 8 + order[LANES % 8])).all()


def test_lanes_wrap_around_at_32() -> None:
    """Prevents: a read of a lane that a wave does not have."""
    registers = np.zeros((3, 1, 32), U32)
    registers[0, 0], registers[1, 0] = (LANES + 33) * 4, LANES + 100
    fields = {"addr": 256, "data0": 257, "vdst": 258}
    w = run(instruction("DS_BPERMUTE_B32", "DS", fields, isa=RDNA4), registers=registers)
    assert (w.v[2, 0] == (LANES + 1) % 32 + 100).all()
    fields = {"src0": 257, "src1": 128 + 35, "vdst": 9}
    w = run(instruction("V_READLANE_B32", "VOP3_SDST", fields, isa=RDNA4), registers=registers)
    assert w.s[0, 9] == 103
    for half, wanted in (("LO", LANES), ("HI", LANES * 0)):
        fields = {"src0": 193, "src1": 128, "vdst": 258}
        one = instruction(f"V_MBCNT_{half}_U32_B32", "VOP3", fields, isa=RDNA4)
        assert (run(one).v[2, 0] == wanted).all()


def test_a_result_of_16_bits_keeps_the_other_half() -> None:
    """Prevents: the upper f16 of a register lost when the lower one is computed."""
    registers = np.full((3, 1, 32), 0x40004000, U32)
    one = instruction("V_ADD_F16", "VOP2", {"src0": 256, "vsrc1": 257, "vdst": 258}, isa=RDNA4)
    assert (run(one, registers=registers).v[2] == 0x40004400).all()


def launched(
    words: list[int],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arch: str = ARCH,
    **changes: int,
) -> Array:
    """Run a kernel that gets the address of 1,024 words, on a device of its own."""
    image = struct.pack(f"<{len(words)}I", *words)
    kernel = Kernel("test", 0, len(image), replace(DESCRIPTOR, **changes), (), 1024)
    device = Device(Options(strict=True, checked=True))
    module = Module(device, CodeObject(arch, image, {"test": kernel}))
    target = np.zeros(1024, U32)
    arguments = struct.pack("<Q", device.map.own(target))
    device.launch(module, "test", grid, block, arguments)
    return target


def test_waves_find_their_workgroup() -> None:
    """Prevents: workgroups that do each other's work: indices are not behind the user SGPRs."""
    # s_load_b64 s[2:3], s[0:1], 0; s_wait_kmcnt 0
    words = [0xF4002080, 0xF8000000, 0xBFC70000]
    # s4 = ttmp9; s5 = ttmp7; s6 = ttmp8 >> 25
    words += [0xBE840075, 0xBE850073, 0x85069974]
    # s7 = s4 + 3 * (s5 & 0xffff); s8 = s5 >> 16; s8 = s8 * 15; s7 += s8: the workgroup
    words += [0x8B09FF05, 0xFFFF, 0x96098309, 0x80070904, 0x85089005, 0x96088F08, 0x80070807]
    # s7 = s7 * 2 + s6: the wave; v1 = s7 * 4; v2 = s7; global_store_b32 v1, v2, s[2:3]
    words += [0x84078107, 0x80070607, 0x84098207, 0x7E020209, 0x7E040207]
    words += [0xEE068002, 0x01000000, 0x00000001, END]
    found = launched(words, (3, 5, 2), (33, 1, 1))
    assert (found[:60] == np.arange(60)).all()
    assert not found[60:].any()


def test_rdna3_has_the_workgroup_behind_its_arguments() -> None:
    """Prevents: NULL that is not 0 when a wave starts, or indices of another instruction set."""
    # s_load_b64 s[6:7], s[0:1], null; s_waitcnt lgkmcnt(0)
    words = [0xF4040180, 0xF8000000, 0xBF89FC07]
    # s5 = s3 * 4; s5 += s2 (axes 1 and 0); v2 = s5; s5 *= 4; v1 = s5
    words += [0x96058403, 0x80050205, 0x7E040205, 0x84058205, 0x7E020205]
    # s8 = null; v2 += s8; global_store_b32 v1, v2, s[6:7]; s_endpgm
    words += [0xBE88007C, 0x4A040408, 0xDC6A0000, 0x00060201, 0xBFB00000]
    found = launched(words, (4, 3, 1), (32, 1, 1), "gfx1100")
    assert found[:13].tolist() == [*range(12), 0]


def test_waves_of_64_lanes_are_refused() -> None:
    """Prevents: a kernel compiled for 64 lanes run with 32."""
    with pytest.raises(EmulationError, match="waves of 64 lanes"):
        launched([END], (1, 1, 1), (64, 1, 1), properties=1 << 3)


def test_short_forms_name_halves_of_registers() -> None:
    """Prevents: the upper half of v3 in an operation of 16 bits taken for v131."""
    registers = np.zeros((64, 1, 32), U32)
    low, high = (np.array([a, b], np.float16).view(U32)[0] for a, b in ((1, 4), (3, 5)))
    registers[1:4] = np.array([7, low, high]).reshape(3, 1, 1)
    for word, wanted in (
        (0x65030702, (7, 1 + 5)),  # v_add_f16 v1.h, v2.l, v3.h
        (0x7F023902, (7, 1)),  # v_mov_b16 v1.h, v2.l
        (0x6D020782, (7, 4 * 3)),  # v_fmac_f16 v1.h, v2.h, v3.l
    ):
        found = run(decoded(word), registers=registers).v[1, 0, 0]
        assert found & 0xFFFF == wanted[0]
        upper = np.array([found >> 16]).astype(np.uint16).view(np.float16)[0]
        assert upper == wanted[1], hex(word)
    # v_cvt_f32_f16 v130, v3.h; v_cvt_f16_f32 v3.h, v130: registers of 32 bits keep their number.
    one, other = decoded(0x7F041783), decoded(0x7F061582)
    assert [one["vdst"], one["src0"], one["opsel"]] == [256 + 130, 256 + 3, 1]
    assert [other["vdst"], other["src0"], other["opsel"]] == [256 + 3, 256 + 130, 8]
    # v_cmp_gt_f16 vcc_lo, v2.h, v3.l
    assert run(decoded(0x7C080782), registers=registers).s[0, VCC] == 2**32 - 1


@pytest.mark.parametrize(("vm", "lgkm", "missed"), [(1, 1, 0), (2, 1, 1), (1, 2, 1)])
def test_generic_loads_are_in_order(vm: int, lgkm: int, missed: int) -> None:
    """Prevents: a missing wait in code that LLVM compiles for RDNA, which counts generic loads."""
    # flat_load_b32 v2, v[0:1], and the same to v3; s_waitcnt; v_mov_b32 v4, v2
    wait = 0xBF890000 | vm << 10 | lgkm << 4
    words = ((0xDC500000, 0x027C0000), (0xDC500000, 0x037C0000), (wait,), (0x7E080302,))
    code: dict[int, Instruction | str] = {}
    for pc, own in zip((0, 8, 16, 20), words, strict=True):
        code[pc] = replace(decoded(*own, arch="gfx1100"), pc=pc)
    assert len(Waits(code, frozenset(), set(), 512).passage(0, 0).misuses) == missed
