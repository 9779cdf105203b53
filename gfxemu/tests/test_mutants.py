"""Random instructions, and launches that no device can run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gfxemu.arrays import U32
from gfxemu.faults import EmulationError
from gfxemu.isa import CDNA, RDNA4
from gfxemu.launch import ARCHS
from gfxemu.memory import AddressMap
from gfxemu.operands import UnsupportedError
from gfxemu.registers import NULL
from gfxemu.tests import machines, mutants
from gfxemu.tests.programs import DESCRIPTOR, END, decode_words, launch
from qola_base.code_object.reader import Descriptor

WAVE32 = replace(DESCRIPTOR, properties=DESCRIPTOR.properties | 1 << 10)
_RDNA_END = 0xBFB00000


@pytest.mark.parametrize("arch", ARCHS)
def test_random_instructions_end_with_a_fault_at_most(arch: str) -> None:
    """Prevents: an instruction that raises ValueError or AssertionError, not `unsupported`."""
    assert not mutants.find_errors(arch, 100)


@pytest.mark.thorough
def test_random_instructions_stay_within_their_registers(tmp_path: Path) -> None:
    """Prevents: an engine in C that reads or writes outside of its arrays."""
    done = mutants.run_with_sanitizers("gfxemu.tests.mutants", tmp_path, ["600"])
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr


#: Words of instructions, and why they cannot run.
REFUSED = [
    # buffer_load_b32 with the descriptor at NULL and at s6; s_buffer_load_b32 s0, null, 0x0
    ("gfx1201", [0xC405007C, 0x00800000 | 125 << 9 | 1, 0], "not a multiple of 4"),
    (
        "gfx1201",
        [0xC405007C, 0x00800000 | 6 << 9 | 1, 0],
        "a buffer at s6, which",
    ),
    ("gfx1201", [0xF402003E, 0xF8000000], "not a multiple of 4"),
    # buffer_load_b32 and buffer_atomic_add_u32, whose descriptor has a number of 9 bits
    *(
        ("gfx1201", [word, 0x00800000 | n << 9 | 1, 0], f"operand {n}, which is not a scalar")
        for word in (0xC405007C, 0xC40D407C)
        for n in (128, 200, 256, 300, 508)
    ),
    # v_cndmask_b32 with masks 10, v[66:67] and v[10:11]
    ("gfx942", [0xD1000005, 0x02290280], "source operand 138 as a mask"),
    ("gfx942", [0xD1000005, 0x05098280], "source operand 322 as a mask"),
    ("gfx942", [0xD100000A, 0x7C2A1480], "source operand 266 as a mask"),
    # v_pk_mul_f32 of an SDWA operand
    ("gfx942", [0xD3B14004, 0x180204F9], "source operand 249"),
    # v_readfirstlane_b32 and v_readlane_b32 to s196, v_cmp_lt_f32 to s[196:197]
    ("gfx942", [0x7F880501], "operand 196 as the destination of a scalar"),
    ("gfx942", [0xD28900C4, 0x00010101], "operand 196 as the destination of a scalar"),
    ("gfx942", [0xD04100C4, 0x00020301], "operand 196 as the destination of a mask"),
    # v_readlane_b32 and v_writelane_b32 of a lane in v0
    ("gfx942", [0xD2890000, 0x000200C1], "a vector register as src1"),
    ("gfx942", [0xD28A0000, 0x000200C1], "a vector register as src1"),
]


@pytest.mark.parametrize(("arch", "words", "why"), REFUSED)
def test_operands_of_a_wrong_kind_are_unsupported(arch: str, words: list[int], why: str) -> None:
    """Prevents: a RuntimeError for an operand that an instruction cannot have, or another read."""
    # 256 vector registers, so that each number of one is valid.
    descriptor = replace(WAVE32 if arch == "gfx1201" else DESCRIPTOR, rsrc1=31, rsrc3=63)
    end = _RDNA_END if arch == "gfx1201" else END
    with pytest.raises(EmulationError, match=re.escape(why)):
        launch([*words, end], descriptor, arch=arch)


def test_a_lane_of_a_constant_is_the_constant() -> None:
    """Prevents: an IndexError for V_READLANE_B32 with a constant as its vector."""
    scalars = np.full(128, 63, U32)
    # v_readlane_b32 s0, -1, s5
    w = machines.run(decode_words(0xD2890000, 0xAC1, arch="gfx942"), scalars=scalars)
    assert w.s[0, 0] == 2**32 - 1
    assert w.s[0, 1] == 63


def test_a_scalar_load_to_null_changes_no_register() -> None:
    """Prevents: a load to NULL that overwrites EXEC, the registers behind it."""
    map_ = AddressMap()
    base = map_.own(np.arange(1, 17, dtype=U32))
    scalars = np.zeros(128, U32)
    scalars[4:6] = base & 0xFFFFFFFF, base >> 32
    # s_load_b64, s_load_b128 and s_load_b32 null, s[4:5], 0x0
    for word in (0xF4003F02, 0xF4005F02, 0xF4001F02):
        w = machines.run(decode_words(word, 0xF8000000), scalars=scalars.copy(), map_=map_)
        assert (w.s[0, :126] == scalars[:126]).all()
        assert w.s[0, 126] == 2**32 - 1
        assert not w.machine.faults.all


@pytest.mark.parametrize(
    ("descriptor", "grid", "block", "why"),
    [
        (replace(DESCRIPTOR, preload_words=127), (1, 1, 1), (64, 1, 1), "127 preloaded ones"),
        (replace(DESCRIPTOR, rsrc2=31 << 1), (1, 1, 1), (64, 1, 1), "31 user SGPRs"),
        (DESCRIPTOR, (1, 1, 1), (1025, 1, 1), "1,025 work-items, and it has at most 1,024"),
        (DESCRIPTOR, (1, 1, 1), (70000, 1, 1), "70,000 work-items"),
        (DESCRIPTOR, (1, 1, 1), (0, 1, 1), "1 is the least"),
        (DESCRIPTOR, (1, 0, 1), (64, 1, 1), "1 is the least"),
        (DESCRIPTOR, (1 << 31, 1, 1), (64, 1, 1), "work-items on an axis"),
    ],
)
def test_launches_that_no_device_can_run_are_refused(
    descriptor: Descriptor, grid: tuple[int, int, int], block: tuple[int, int, int], why: str
) -> None:
    """Prevents: a ValueError or struct.error for sizes or a descriptor that no device has."""
    with pytest.raises(EmulationError, match=why):
        launch([END], descriptor, grid=grid, block=block)


def test_parts_of_registers_that_sdwa_lacks_are_unsupported() -> None:
    """Prevents: an OverflowError for the reserved numbers of parts of a register."""
    fields = {"src0": 249, "vsrc0": 258, "vsrc1": 260, "vdst": 266, "src0_sel": 6, "src1_sel": 6}
    for more in ({"dst_sel": 7}, {"dst_sel": 0, "dst_unused": 3}, {"dst_sel": 6, "src0_sel": 7}):
        insn = machines.instruction("V_ADD_U32", "VOP2_SDWA", fields | more)
        with pytest.raises(UnsupportedError, match="SDWA does not have"):
            machines.run(insn)


def test_a_literal_that_is_missing_is_unsupported() -> None:
    """Prevents: an AssertionError for a form of an operation without its literal."""
    fields = {"src0": 256, "vsrc1": 257, "vdst": 258}
    for name in ("V_FMAMK_F32", "V_MADAK_F32", "S_FMAMK_F32"):
        scalar = {"ssrc0": 2, "ssrc1": 4, "sdst": 8}
        form = "SOP2" if name.startswith("S") else "VOP2"
        insn = machines.instruction(name, form, scalar if form == "SOP2" else fields)
        with pytest.raises(UnsupportedError, match="a literal that is not there"):
            machines.run(insn)


def test_destinations_beyond_the_scalar_registers_are_unsupported() -> None:
    """Prevents: a scalar result written behind the scalar registers, or to NULL."""
    for name, isa in (
        ("V_READLANE_B32", CDNA),
        ("V_READFIRSTLANE_B32", CDNA),
        ("V_S_EXP_F32", RDNA4),
    ):
        fields = {"src0": 256 if "LANE" in name else 2, "src1": 128, "vdst": 256 + 130}
        with pytest.raises(UnsupportedError, match="operand 130 as the destination of a scalar"):
            machines.encode(machines.instruction(name, "VOP3", fields, isa=isa))
    for name, fields in (("S_SENDMSG_RTN_B64", {"ssrc0": 0x83}), ("S_GETREG_B32", {"simm16": 29})):
        insn = machines.instruction(name, "SOPK", fields | {"sdst": NULL}, isa=RDNA4)
        assert (machines.run(insn).s == machines.waves(lanes=32).s).all()
