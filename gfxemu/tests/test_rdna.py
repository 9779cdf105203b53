"""RDNA3 and RDNA4: names, fields, waves of 32 lanes, and instructions that CDNA lacks."""

from __future__ import annotations

import importlib
import struct
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from gfxemu.arrays import U32, Array
from gfxemu.check import operands_of
from gfxemu.decode import ENCODING, Instruction, only_tables
from gfxemu.faults import EmulationError
from gfxemu.isa import RDNA4
from gfxemu.launch import Options
from gfxemu.operands import UnsupportedError
from gfxemu.rdna import translated_name
from gfxemu.records import NOTHING
from gfxemu.registers import EXEC, M0, NULL, VCC
from gfxemu.tests.machines import encode, instruction, run, waves
from gfxemu.tests.programs import decode_words, load
from gfxemu.waits import Waits
from qola_base.code_object.reader import Descriptor

ARCH = "gfx1201"
#: s_endpgm; v_mov_b32 v1, 0
END, ZERO = 0xBFB00000, 0x7E020280
#: Waves of 32 lanes; the kernarg segment's address is in s0 and s1; three axes of workgroups.
DESCRIPTOR = Descriptor(0, 0, 0, 0, 0, 2 << 1 | 7 << 7, 0, 1 << 10 | 1 << 3, 0, 0)
LANES = np.arange(32)


@pytest.mark.parametrize("tables", ["rdna3", "rdna4"])
def test_translated_names_are_unique(tables: str) -> None:
    """Prevents: an operation that runs as another, because both translate to one CDNA name."""
    with only_tables():
        table = importlib.import_module(f"tinygrad.runtime.autogen.amd.{tables}.str_pcode").PCODE
    names = {ENCODING.sub("", op.name) for op in table}
    # These operations write back or invalidate caches, which are not emulated.
    names -= {"GLOBAL_WBINV", "BUFFER_GL1_INV"}
    # Halves of a dual instruction equal the single instruction of the same name.
    names = {name for name in names if not name.startswith("V_DUAL_")}
    found = Counter(map(translated_name, names))
    assert [name for name, count in found.items() if count > 1] == []


def test_rdna4_fields_have_the_names_and_values_of_cdna() -> None:
    """Prevents: an RDNA4 access at a wrong offset, or with a register that it does not name."""
    # buffer_load_u16 v77, v34, s[48:51], null offen offset:6
    insn = decode_words(0xC404807C, 0x4080604D, 0x00000622)
    assert (insn.name, insn.form, insn.size) == ("BUFFER_LOAD_USHORT", "MUBUF", 12)
    assert [insn[name] for name in ("vdata", "vaddr", "srsrc", "offset")] == [333, 290, 48, 6]
    assert (insn["offen"], insn["idxen"], insn["soffset"]) == (1, 0, NULL)
    # s_load_b64 s[0:1], s[0:1], -4
    insn = decode_words(0xF4002000, 0xF8FFFFFC)
    assert (insn.name, insn["sbase"], insn["soffset_en"]) == ("S_LOAD_DWORDX2", 0, 0)
    assert insn["offset"] == 0xFFFFFC
    # global_load_b32 v1, v2, s[4:5] offset:-8, and with an address in v[2:3]
    for saddr in (4, 124):
        insn = decode_words(0xEE050000 | saddr, 0x00000001, 0xFFFFF802)
        assert (insn.name, insn.form, insn["addr"]) == ("GLOBAL_LOAD_DWORD", "GLOBAL", 258)
        assert (insn["saddr"], insn["offset"]) == (4 if saddr == 4 else 127, 0xFFFFF8)
    # s_mov_b32 m0, s5
    assert decode_words(0xBEFD0005)["sdst"] == M0


def test_rdna3_fields_have_the_names_and_values_of_cdna() -> None:
    """Prevents: NULL decoded as M0, or an RDNA3 atomic that ignores its return bit."""
    # buffer_load_u16 v77, v34, s[48:51], null offen offset:6
    insn = decode_words(0xE0480006, 0x7C4C4D22, arch="gfx1100")
    assert (insn.name, insn.form, insn["soffset"]) == ("BUFFER_LOAD_USHORT", "MUBUF", NULL)
    assert [insn[name] for name in ("vdata", "vaddr", "srsrc", "offset")] == [333, 290, 48, 6]
    # global_atomic_add_u32 v1, v2, v3, s[4:5] glc, and without
    for word, returns in ((0xDCD64000, 1), (0xDCD60000, 0)):
        insn = decode_words(word, 0x01040302, arch="gfx1100")
        assert (insn.name, insn["saddr"], insn["sc0"]) == ("GLOBAL_ATOMIC_ADD", 4, returns)
    # global_load_b32 v1, v[2:3], off offset:-8
    insn = decode_words(0xDC521FF8, 0x017C0002, arch="gfx1100")
    assert (insn["saddr"], insn["offset"]) == (127, 0x1FF8)
    # s_waitcnt_vscnt null, 0x0
    assert encode(decode_words(0xBC7C0000, arch="gfx1100")).handler == NOTHING


def test_both_halves_of_a_dual_instruction_read_first() -> None:
    """Prevents: a dual instruction that should swap two registers but copies one to the other."""
    # v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v2, v1
    insn = decode_words(0xCA100102, 0x01020101)
    assert [part.name for part in insn.parts] == ["V_MOV_B32", "V_MOV_B32"]
    registers = np.arange(4 * 32, dtype=U32).reshape(4, 1, 32)
    w = run(insn, registers=registers, active=0xFFFF)
    assert (w.v[1, 0, :16] == registers[2, 0, :16]).all()
    assert (w.v[2, 0, :16] == registers[1, 0, :16]).all()
    assert (w.v[1:3, 0, 16:] == registers[1:3, 0, 16:]).all()


def test_a_move_reads_one_register() -> None:
    """Prevents: a missing wait reported for v0, which an unused field of a move encodes."""
    # v_dual_mov_b32 v5, s6 :: v_dual_mov_b32 v6, s7, whose other sources are v0.
    insn = decode_words(0xCA100006, 0x05060007)
    assert [part.text for part in insn.parts] == [insn.text] * 2
    reads, writes = operands_of(insn)
    assert [number for _, number, _ in reads] == [6, 7]
    assert [number for _, number, _ in writes] == [256 + 5, 256 + 6]


def test_null_discards_writes_and_reads_0() -> None:
    """Prevents: an instruction with destination NULL that changes a register."""
    w = waves(scalars=np.full(100, 5, U32), lanes=32)
    before = w.s.copy()
    # s_add_co_u32 null, s2, s3; s_or_b64 null, s[2:3], s[4:5]
    run(decode_words(0x807C0302), w)
    run(decode_words(0x8CFC0402), w)
    assert (w.s == before).all()
    # s_mov_b64 s[6:7], null
    run(decode_words(0xBE86017C), w)
    assert w.s[0, 6] == w.s[0, 7] == 0


def test_a_comparison_of_lanes_changes_its_mask_only() -> None:
    """Prevents: a mask that overwrites VCC_HI or the next register; V_CMPX that writes VCC."""
    registers = np.zeros((2, 1, 32), U32)
    registers[0, 0] = LANES
    scalars = np.full(VCC + 2, 7, U32)
    # v_cmp_gt_u32 vcc_lo, 5, v0; v_cmp_gt_u32 s9, 5, v0; v_cmpx_gt_u32 5, v0
    for insn, written in (
        (decode_words(0x7C980085), VCC),
        (decode_words(0xD44C0009, 0x00020085), 9),
        (decode_words(0x7D980085), EXEC),
    ):
        w = run(insn, registers=registers, scalars=scalars)
        expected = waves(scalars=scalars, lanes=32).s[0]
        expected[written] = 0b11111
        assert (w.s[0] == expected).all(), insn
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
def test_dpp_controls_of_rows(control: int, wanted: Array) -> None:
    """Prevents: DPP that reads another lane than its control selects."""
    registers = np.zeros((2, 1, 32), U32)
    registers[0, 0] = LANES + 100
    word = 0xFF000000 | control << 8  # of v0, all rows and banks
    w = run(decode_words(0x7E0202FA, word), registers=registers)
    assert (w.v[1, 0] == wanted + 100).all()
    # Lane 6 is inactive: with FI, lanes read it; otherwise they keep their result.
    for inactive in (0, 1):
        w = run(
            decode_words(0x7E0202FA, word | inactive << 18), registers=registers, active=~64 % 2**32
        )
        stays = (LANES == 6) | (wanted == 6) & (not inactive)
        assert (w.v[1, 0] == np.where(stays, 0, wanted + 100)).all()


def test_a_control_beyond_rows_is_refused() -> None:
    """Prevents: a wave shift, which RDNA does not have, executed as on CDNA."""
    with pytest.raises(UnsupportedError, match="0x138"):
        run(decode_words(0x7E0202FA, 0xFF000000 | 0x138 << 8))


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_dpp8(arch: str) -> None:
    """Prevents: DPP8's second word decoded as an instruction, or a value from another lane."""
    registers = np.zeros((4, 1, 32), U32)
    registers[0, 0], registers[3, 0] = LANES + 100, 7
    # v_mov_b32_dpp v1, v0 dpp8:[7,6,5,4,3,2,1,0], without and with fi:1. Lane 6 is inactive.
    for mark, inactive in ((0xE9, 0), (0xEA, 1)):
        insn = decode_words(0x7E020200 | mark, 0x05397700, arch=arch)
        assert (insn.form, insn.size) == ("VOP1_DPP8", 8)
        assert [number for _, number, _ in operands_of(insn)[0]] == [256]
        found = run(insn, registers=registers, active=~64 % 2**32).v[1, 0]
        wanted = np.where((LANES == 1) & (not inactive), 0, (LANES ^ 7) + 100)
        assert (found == np.where(LANES == 6, 0, wanted)).all()
    # v_fma_f32_e64_dpp v2, -v0, v1, v3 dpp8:[0,2,4,6,1,3,5,7]
    floats = np.zeros((4, 1, 32), np.float32)
    floats[0, 0], floats[1], floats[3] = LANES, 2, 0.5
    insn = decode_words(0xD6130002, 0x240E02E9, 0xF59D1000, arch=arch)
    found = run(insn, registers=floats.view(U32)).v[2, 0].view(np.float32)
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    assert (found == 0.5 - 2 * (LANES // 8 * 8 + order[LANES % 8])).all()


def test_lanes_wrap_around_at_32() -> None:
    """Prevents: an instruction that reads a lane above 31."""
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
        insn = instruction(f"V_MBCNT_{half}_U32_B32", "VOP3", fields, isa=RDNA4)
        assert (run(insn).v[2, 0] == wanted).all()


def launch(
    words: list[int],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arch: str = ARCH,
    **changes: int,
) -> Array:
    """Run a kernel, with the address of 1,024 words as argument, on a new device; return them."""
    options = Options(strict=True, checked=True)
    device, module = load(words, replace(DESCRIPTOR, **changes), (), options, arch)
    target = np.zeros(1024, U32)
    arguments = struct.pack("<Q", device.map.own(target))
    device.launch(module, "test", grid, block, arguments)
    return target


def test_workgroup_indices_are_in_ttmp_registers() -> None:
    """Prevents: RDNA4 workgroups with wrong indices, which kernels read from TTMP registers."""
    # s_load_b64 s[2:3], s[0:1], 0; s_wait_kmcnt 0
    words = [0xF4002080, 0xF8000000, 0xBFC70000]
    # s4 = ttmp9; s5 = ttmp7; s6 = ttmp8 >> 25
    words += [0xBE840075, 0xBE850073, 0x85069974]
    # s7 = s4 + 3 * (s5 & 0xffff); s8 = s5 >> 16; s8 = s8 * 15; s7 += s8: the workgroup
    words += [0x8B09FF05, 0xFFFF, 0x96098309, 0x80070904, 0x85089005, 0x96088F08, 0x80070807]
    # s7 = s7 * 2 + s6: the wave; v1 = s7 * 4; v2 = s7; global_store_b32 v1, v2, s[2:3]
    words += [0x84078107, 0x80070607, 0x84098207, 0x7E020209, 0x7E040207]
    words += [0xEE068002, 0x01000000, 0x00000001, END]
    found = launch(words, (3, 5, 2), (33, 1, 1))
    assert (found[:60] == np.arange(60)).all()
    assert not found[60:].any()


def test_rdna3_workgroup_indices_follow_the_user_sgprs() -> None:
    """Prevents: RDNA3 waves with a NULL that is not 0, or with indices in RDNA4's registers."""
    # s_load_b64 s[6:7], s[0:1], null; s_waitcnt lgkmcnt(0)
    words = [0xF4040180, 0xF8000000, 0xBF89FC07]
    # s5 = s3 * 4; s5 += s2 (axes 1 and 0); v2 = s5; s5 *= 4; v1 = s5
    words += [0x96058403, 0x80050205, 0x7E040205, 0x84058205, 0x7E020205]
    # s8 = null; v2 += s8; global_store_b32 v1, v2, s[6:7]; s_endpgm
    words += [0xBE88007C, 0x4A040408, 0xDC6A0000, 0x00060201, 0xBFB00000]
    found = launch(words, (4, 3, 1), (32, 1, 1), "gfx1100")
    assert found[:13].tolist() == [*range(12), 0]


def test_waves_of_64_lanes_are_refused() -> None:
    """Prevents: a kernel compiled for 64 lanes that runs with 32."""
    with pytest.raises(EmulationError, match="waves of 64 lanes"):
        launch([END], (1, 1, 1), (64, 1, 1), properties=1 << 3)


def test_short_encodings_select_halves_of_registers() -> None:
    """Prevents: the upper half of v3 in a 16-bit operation decoded as v131."""
    registers = np.zeros((64, 1, 32), U32)
    low, high = (np.array([a, b], np.float16).view(U32)[0] for a, b in ((1, 4), (3, 5)))
    registers[1:4] = np.array([7, low, high]).reshape(3, 1, 1)
    for word, wanted in (
        (0x65030702, (7, 1 + 5)),  # v_add_f16 v1.h, v2.l, v3.h
        (0x7F023902, (7, 1)),  # v_mov_b16 v1.h, v2.l
        (0x6D020782, (7, 4 * 3)),  # v_fmac_f16 v1.h, v2.h, v3.l
    ):
        found = run(decode_words(word), registers=registers).v[1, 0, 0]
        assert found & 0xFFFF == wanted[0]
        upper = np.array([found >> 16]).astype(np.uint16).view(np.float16)[0]
        assert upper == wanted[1], hex(word)
    # v_cvt_f32_f16 v130, v3.h; v_cvt_f16_f32 v3.h, v130: registers of 32 bits keep their number.
    insn, other = decode_words(0x7F041783), decode_words(0x7F061582)
    assert [insn["vdst"], insn["src0"], insn["opsel"]] == [256 + 130, 256 + 3, 1]
    assert [other["vdst"], other["src0"], other["opsel"]] == [256 + 3, 256 + 130, 8]
    # v_cmp_gt_f16 vcc_lo, v2.h, v3.l
    assert run(decode_words(0x7C080782), registers=registers).s[0, VCC] == 2**32 - 1


@pytest.mark.parametrize(("vm", "lgkm", "missed"), [(1, 1, 0), (2, 1, 1), (1, 2, 1)])
def test_flat_loads_complete_in_order(vm: int, lgkm: int, missed: int) -> None:
    """Prevents: a missing wait reported for RDNA code in which LLVM counts flat loads."""
    # flat_load_b32 v2, v[0:1], and the same to v3; s_waitcnt; v_mov_b32 v4, v2
    wait = 0xBF890000 | vm << 10 | lgkm << 4
    words = ((0xDC500000, 0x027C0000), (0xDC500000, 0x037C0000), (wait,), (0x7E080302,))
    code: dict[int, Instruction | str] = {}
    for pc, encoding in zip((0, 8, 16, 20), words, strict=True):
        code[pc] = replace(decode_words(*encoding, arch="gfx1100"), pc=pc)
    assert len(Waits(code, frozenset(), set(), 512).passage(0, 0).misuses) == missed
