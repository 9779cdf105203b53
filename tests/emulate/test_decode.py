"""The decoder, held against that of the compiler."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from qola.code_object.reader import CodeObject
from qola.emulate.decode import sweep
from qola.emulate.launch import ARCHS
from tests.library.offload import code_objects

LLVM = Path(os.environ["QOLA_TEST_LLVM"]).absolute().parent
#: What LLVM calls otherwise.
NAMES = {
    "v_accvgpr_read_b32": "v_accvgpr_read",
    "v_accvgpr_write_b32": "v_accvgpr_write",
    "v_fma_mix_f32": "v_mad_mix_f32",
    "v_fma_mixhi_f16": "v_mad_mixhi_f16",
    "v_fma_mixlo_f16": "v_mad_mixlo_f16",
}


def disassembled(code: Path) -> dict[int, str]:
    """LLVM's names of instructions, by address."""
    command = [str(LLVM / "llvm-objdump"), "-d", str(code)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s+(\S+).*// ([0-9A-F]+): ", text, re.MULTILINE)
    plain = {int(at, 16): re.sub(r"_(e32|e64|sdwa|dpp|e64_dpp)$", "", name) for name, at in found}
    return {address: NAMES.get(name, name) for address, name in plain.items()}


def test_instructions_are_those_that_llvm_sees(tmp_path: Path) -> None:
    """Prevents: an instruction taken for another one, or cut off at another place."""
    library = Path(os.environ["QOLA_TEST_LIBRARY"]).read_bytes()
    found = [code for arch, code in code_objects(library) if arch in ARCHS]
    count = 0
    for code in found:
        file_ = tmp_path / "code.o"
        file_.write_bytes(code)
        wanted = disassembled(file_)
        code_object = CodeObject.read(code)
        for kernel in code_object.kernels.values():
            image = code_object.image[kernel.entry : kernel.entry + kernel.size]
            for pc, one in sweep(image).items():
                assert not isinstance(one, str), one
                assert one.name.lower() == wanted[kernel.entry + pc], (kernel.symbol, pc)
                count += 1
    assert count > 1000
