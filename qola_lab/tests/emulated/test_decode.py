"""Decoding of compiled kernels, compared with LLVM's disassembly."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from gfxemu.decode import Instruction
from gfxemu.isa import CDNA
from gfxemu.launch import ARCHS
from gfxemu.program import Program
from gfxemu.tests.programs import not_covered
from qola_base.code_object.reader import CodeObject
from tests.library.offload import code_objects

LLVM = Path(os.environ["QOLA_TEST_LLVM"]).absolute().parent
#: Instructions that the emulator names differently than LLVM.
NAMES = {
    "v_mfma_f32_32x32x8bf16_1k": "v_mfma_f32_32x32x8_bf16",
    "v_accvgpr_read_b32": "v_accvgpr_read",
    "v_accvgpr_write_b32": "v_accvgpr_write",
    "v_fma_mix_f32": "v_mad_mix_f32",
    "v_fma_mixhi_f16": "v_mad_mixhi_f16",
    "v_fma_mixlo_f16": "v_mad_mixlo_f16",
}


def disassemble(code: Path) -> dict[int, str]:
    """Return LLVM's mnemonics by address."""
    command = [str(LLVM / "llvm-objdump"), "-d", str(code)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s+(\S+).*// ([0-9A-F]+): ", text, re.MULTILINE)
    plain = {int(at, 16): re.sub(r"_(e32|e64|sdwa|dpp|e64_dpp)$", "", name) for name, at in found}
    return {address: NAMES.get(name, name) for address, name in plain.items()}


def mnemonic(insn: Instruction) -> str:
    """Return LLVM's mnemonic; the emulator gives RDNA4 instructions CDNA's names."""
    if insn.isa is CDNA:
        return insn.name.lower()
    return re.sub(r"_e(32|64)$", "", re.split(r"\W", insn.text)[0])


@pytest.mark.parametrize(
    ("library", "archs"),
    [
        ("CI_libmha_fwd", {"gfx942", "gfx950"}),
        ("CI_libmha_bwd", {"gfx942", "gfx950"}),
        pytest.param("OTHER_ARCHS_libmha_fwd", {"gfx90a", "gfx1201"}, marks=pytest.mark.thorough),
    ],
)
def test_instructions_match_llvm(library: str, archs: set[str], tmp_path: Path) -> None:
    """Prevents: an instruction decoded as another, or an unsupported one in a compiled kernel."""
    objects = code_objects(Path(os.environ[f"QOLA_TEST_{library}"]).read_bytes())
    found = [code for arch, code in objects if arch in ARCHS]
    assert {CodeObject.read(code).arch for code in found} == archs
    file = tmp_path / "code.o"
    for code in found:
        file.write_bytes(code)
        wanted = disassemble(file)
        code_object = CodeObject.read(code)
        for kernel in code_object.kernels.values():
            program = Program(code_object, kernel)
            for pc, insn in program.code.items():
                assert not isinstance(insn, str), insn
                assert mnemonic(insn) == wanted[kernel.entry + pc], (kernel.symbol, pc)
            assert not not_covered(program), kernel.symbol
            assert len(program.code) > 50
