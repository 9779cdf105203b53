"""Encoded instruction records of the engine: cached records equal newly encoded records."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gfxemu import encode
from gfxemu.program import Program
from gfxemu.tests.machines import with_registers
from qola_base.code_object.reader import CodeObject

FILES = (
    "hsa/gfx942/fmha_v3_fwd/MI308/fwd_hd128_bf16_rtz.co",
    "hsa/gfx942/fmha_v3_bwd/bwd_hd192_fp16_a32_psskddv.co",
    "hsa/gfx950/fmha_v3_bwd/bwd_hd192_fp16_a32_psskddv.co",
    "hsa/gfx950/fmha_v3_bwd/bwd_hd128_dq_shuffle.co",
)


def programs(file: Path) -> list[Program]:
    """Return a file's kernel with its registers, and with other register counts."""
    code_object = CodeObject.read(file.read_bytes(), str(file))
    (kernel,) = code_object.kernels.values()
    program = Program(code_object, kernel)
    variants = (
        with_registers(Program(code_object, kernel, code=program.code), *registers)
        for registers in ((256, 512), (128, 512), (128, 192))
    )
    return [program, *variants]


def test_cached_records_equal_new_records(aiter_tree: Path) -> None:
    """Prevents: a cached record with another kernel's registers, offset or lane pattern."""
    all_programs = [item for file in FILES for item in programs(aiter_tree / "aiter_meta" / file)]
    uncached = []
    for program in all_programs:
        encode._known.clear()
        uncached.append(encode.encode(program))
    assert len({item.words.tobytes() for item in uncached}) > len(FILES)
    encode._known.clear()
    for order in (range(len(all_programs)), reversed(range(len(all_programs)))):
        for number in order:
            found = encode.encode(all_programs[number])
            assert np.array_equal(found.words, uncached[number].words)
            assert np.array_equal(found.dpp, uncached[number].dpp)
            assert np.array_equal(found.places, uncached[number].places)
    assert encode._known
