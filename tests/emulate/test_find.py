"""What libraries say that they would launch against what they launch, assembly kernels and all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from qola.attention import AttentionProblem, make_problem
from qola.fmha.__main__ import main
from qola.fmha.agreement import compared
from qola.fmha.registry import Registry, RegistryError
from qola.fmha.sweep import sweep
from qola.verify.host import Built
from tests.emulate.libraries import built

FORWARD = make_problem(
    "fwd", "fp16", seqlen_q=70, seqlen_k=100, nhead_q=2, hdim=32, return_lse=True
)
ASSEMBLY = {
    "libmha_fwd": make_problem(
        *("fwd", "bf16"),
        seqlen_q=[9, 70],
        seqlen_k=[9, 90],
        nhead_q=2,
        hdim=128,
        use_asm=True,
        return_lse=True,
    ),
    "libmha_bwd": make_problem(
        *("bwd", "bf16"),
        seqlen_q=128,
        seqlen_k=128,
        nhead_q=2,
        hdim=64,
        use_asm=True,
        return_lse=True,
    ),
}


def around(problem: AttentionProblem) -> Iterator[AttentionProblem]:
    """Yield problems for assembly kernels, for others, and for none."""
    lengths = (64, 100, 257)
    for rows, columns, conversion, in_float in product(lengths, lengths, (0, 2), (True, False)):
        one = replace(
            problem, how_v3_bf16_cvt=conversion, seqlen_q=(rows,) * 2, seqlen_k=(columns,) * 2
        )
        yield one
        yield replace(
            one,
            is_v3_atomic_fp32=in_float,
            mode=("group", "batch")[problem.is_group_mode],
            nhead_k=1,
        )
        yield replace(
            one, return_lse=problem.direction == "bwd", deterministic=problem.direction == "bwd"
        )


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("module", ASSEMBLY)
def test_a_library_launches_what_it_says(module: str, arch: str) -> None:
    """Prevents: a probe that names another kernel than the call then takes, of assembly or not."""
    library = built(module, "ASM")
    problem = ASSEMBLY[module]
    kernels = [kernel for kernel in library.kernels if arch in kernel.archs]
    swept = [replace(one, use_asm=True) for one in sweep(kernels, 40)]
    found = compared(library, arch, [*around(problem), *swept])
    assert [one.line() for one in found if not one.agrees] == []
    by_assembly = [one for one in found if any(name.endswith(".co") for name in one.launched)]
    # Which of them are assembly kernels is not read, and so said by the library alone.
    assert all((one.as_selected, one.as_found) == (None, True) for one in by_assembly)
    assert len(by_assembly) > 5
    assert any(not one.launched for one in found)
    if module == "libmha_fwd":
        assert any(one.as_selected and one.launched for one in found)


def test_who_chooses_assembly_kernels() -> None:
    """Prevents: a kernel of CK that is said to be launched where an assembly kernel is."""
    problem = ASSEMBLY["libmha_fwd"]
    registry = Registry.of("libmha_fwd", built("libmha_fwd", "ASM").repository)
    with pytest.raises(RegistryError, match="its C function find, or qola dispatch"):
        registry.select(problem, "gfx950")
    assert len(registry.select(replace(problem, use_asm=False), "gfx950")) == 1
    # A library that has none for the arch.
    without = Registry.of("libmha_fwd", built("libmha_fwd").repository)
    assert without.select(replace(FORWARD, use_asm=True), "gfx950") == without.select(
        FORWARD, "gfx950"
    )


def redirected(library: Path, function: str, other: str, to: Path) -> Path:
    """Copy a library in which one of its functions is another one."""
    data = bytearray(library.read_bytes())
    with library.open("rb") as stream:
        table: Any = ELFFile(stream).get_section_by_name(".dynsym")
        symbols = {symbol.name: at for at, symbol in enumerate(table.iter_symbols())}
        size, start = table["sh_entsize"], table["sh_offset"]
    own, its = (start + symbols[name] * size for name in (function, other))
    # st_value, behind the name, the kind and the section of a symbol.
    data[own + 8 : own + 16] = data[its + 8 : its + 16]
    to.write_bytes(data)
    return to


def asked(library: Built, *more: str) -> int:
    problem = map(str, (library.library, library.caller, library.repository / "plan.json"))
    argv = ["--runtime", os.environ["QOLA_TEST_FAKE_HIP"], "--module", library.module, *problem]
    return main([*argv, "--arch", "gfx950", *more])


def test_a_library_that_says_something_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a library whose answer is wrong, and a check that nobody hears of."""
    own = built("libmha_fwd")
    find, prepare = "qola_ci_mha_fwd_find", "qola_ci_mha_fwd_prepare"
    wrong = redirected(own.library, find, prepare, tmp_path / own.library.name)
    file = tmp_path / "mine.jsonl"
    problems: Sequence[AttentionProblem] = [FORWARD, replace(FORWARD, dtype="bf16")]
    file.write_text("\n".join(one.to_json() for one in problems))
    assert asked(own, "--problems", str(file)) == 0
    capfd.readouterr()
    assert asked(replace(own, library=wrong), "--problems", str(file)) == 13
    first, second, last = capfd.readouterr().out.splitlines()
    assert f"{FORWARD}: launched fmha_fwd_d32_fp16_batch" in first
    assert first.endswith("_gfx950; find names none")
    assert second.endswith("-> none: mha_fwd returned -1: no kernel")
    assert last == "2 problems: 1 differ, 1 have no kernel"


def test_a_library_that_cannot_be_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Prevents: a library without a C function, and problems that count as compared with it."""
    own = built("libmha_fwd")
    without = tmp_path / own.library.name
    data = own.library.read_bytes()
    without.write_bytes(data.replace(b"qola_ci_mha_fwd_find\0", b"qola_ci_mha_fwd_lost\0"))
    assert asked(replace(own, library=without), "--problems", "sweep", "--count", "5") == 1
    said = capfd.readouterr().err
    assert "qola_ci_mha_fwd_find" in said
    assert "a library with C functions" in said
