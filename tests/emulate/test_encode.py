"""Records of the engine: those that are kept by an instruction's bytes, and those made anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from qola.code_object.reader import CodeObject
from qola.emulate import encode
from qola.emulate.program import Program
from tests.emulate.machines import with_registers

FILES = (
    "hsa/gfx942/fmha_v3_fwd/MI308/fwd_hd128_bf16_rtz.co",
    "hsa/gfx942/fmha_v3_bwd/bwd_hd192_fp16_a32_psskddv.co",
    "hsa/gfx950/fmha_v3_bwd/bwd_hd192_fp16_a32_psskddv.co",
    "hsa/gfx950/fmha_v3_bwd/bwd_hd128_dq_shuffle.co",
)


def programs(file: Path) -> list[Program]:
    """Return a file's kernel with its own registers, and with others."""
    code_object = CodeObject.read(file.read_bytes(), str(file))
    (kernel,) = code_object.kernels.values()
    own = Program(code_object, kernel)
    others = (
        with_registers(Program(code_object, kernel, code=own.code), *registers)
        for registers in ((256, 512), (128, 512), (128, 192))
    )
    return [own, *others]


def test_kept_records_are_those_of_a_kernel_alone(aiter_tree: Path) -> None:
    """Prevents: a record with another kernel's registers, place or patterns of lanes."""
    every = [one for file in FILES for one in programs(aiter_tree / "aiter_meta" / file)]
    alone = []
    for program in every:
        encode._known.clear()
        alone.append(encode.encode(program))
    assert len({one.words.tobytes() for one in alone}) > len(FILES)
    encode._known.clear()
    for order in (range(len(every)), reversed(range(len(every)))):
        for number in order:
            found = encode.encode(every[number])
            assert np.array_equal(found.words, alone[number].words)
            assert np.array_equal(found.dpp, alone[number].dpp)
            assert np.array_equal(found.places, alone[number].places)
    assert encode._known
