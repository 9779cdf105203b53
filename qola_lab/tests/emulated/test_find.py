"""The kernels that find functions return, compared with launches, including assembly kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from gfxemu.hip import Hip
from qola_lab.fmha.agreement import compared, sweep
from qola_lab.fmha.registry import Registry, RegistryError
from qola_lab.problems import AttentionProblem, make_problem
from qola_lab.tests.emulated.libraries import built_library
from qola_lab.tests.emulated.runs import run_dispatch
from qola_lab.verify.tensors import entry_values

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
    """Yield problems for assembly kernels, for other kernels, and for no kernel."""
    lengths = (64, 100, 257)
    for q, k, conversion, fp32_atomics in product(lengths, lengths, (0, 2), (True, False)):
        problem_ = replace(
            problem, how_v3_bf16_cvt=conversion, seqlen_q=(q,) * 2, seqlen_k=(k,) * 2
        )
        yield problem_
        yield replace(
            problem_,
            is_v3_atomic_fp32=fp32_atomics,
            mode=("group", "batch")[problem.is_group_mode],
            nhead_k=1,
        )
        yield replace(
            problem_,
            return_lse=problem.direction == "bwd",
            deterministic=problem.direction == "bwd",
        )


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("module", ASSEMBLY)
def test_a_library_launches_what_find_returns(module: str, arch: str) -> None:
    """Prevents: a find function that names another kernel than the call launches."""
    library = built_library(module, "ASM")
    problem = ASSEMBLY[module]
    kernels = [kernel for kernel in library.kernels if arch in kernel.archs]
    swept = [replace(nearby, use_asm=True) for nearby in sweep(kernels, 40)]
    results = compared(library, arch, [*around(problem), *swept])
    assert [result.line() for result in results if not result.agrees] == []
    by_assembly = [
        result for result in results if any(name.endswith(".co") for name in result.launched)
    ]
    # qola does not parse the choice of assembly kernels, so only find can name them.
    assert all((result.as_selected, result.as_found) == (None, True) for result in by_assembly)
    assert len(by_assembly) > 5
    assert any(not result.launched for result in results)
    if module == "libmha_fwd":
        assert any(result.as_selected and result.launched for result in results)


def test_the_registry_does_not_choose_assembly_kernels() -> None:
    """Prevents: a CK kernel reported for a problem that an assembly kernel may serve."""
    problem = ASSEMBLY["libmha_fwd"]
    registry = Registry.of("libmha_fwd", built_library("libmha_fwd", "ASM").repository)
    with pytest.raises(RegistryError, match="its C function find, or qola dispatch"):
        registry.select(problem, "gfx950")
    assert len(registry.select(replace(problem, use_asm=False), "gfx950")) == 1
    # A library without assembly kernels for the arch.
    without = Registry.of("libmha_fwd", built_library("libmha_fwd").repository)
    assert without.select(replace(FORWARD, use_asm=True), "gfx950") == without.select(
        FORWARD, "gfx950"
    )


#: Sequences of this length, and strides with which their rows exceed the offsets of kernels.
LONG = dict.fromkeys(("seqlen_q", "max_seqlen_q", "seqlen_k", "max_seqlen_k"), 225304)
STRIDES = {
    "libmha_fwd": {"stride_q": 9728, "stride_k": 9728, "stride_v": 9728, "stride_o": 4864},
    "libmha_bwd": {"stride_do": 9728, "stride_dq": 4864, "stride_dk": 4864, "stride_dv": 4864},
}


def statuses(module: str) -> list[tuple[float, float]]:
    """Call AITER's C++ function with each stride and short, then long sequences."""
    library, direction = built_library(module), module.removeprefix("libmha_")
    assert library.caller
    hip = Hip(library.runtime, "gfx950", runs=False)
    hip.load(library.library)
    call, entry = hip.caller(library.caller), f"mha_{direction}"
    problem = replace(FORWARD, direction=direction)
    values = entry_values(problem, "gfx950", library.parameters[entry])
    long = {name: length for name, length in LONG.items() if name in values}
    return [
        (call(entry, {**values, name: stride}), call(entry, {**values, **long, name: stride}))
        for name, stride in STRIDES[module].items()
    ]


@pytest.mark.parametrize("module", STRIDES)
def test_strides_beyond_the_offsets_of_kernels_are_refused(
    module: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Prevents: wrong results of AITER's C++ functions for strides that the C functions refuse."""
    # A process has one device.
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        found = pool.submit(statuses, module).result()
    assert [(short >= 0, long) for short, long in found] == [(True, -3)] * len(found)
    shown = capfd.readouterr().err
    for name, value in STRIDES[module].items():
        assert f"{name}: {value}, with 225304 rows of 2 bytes" in shown


def redirect_function(library: Path, function: str, other: str, to: Path) -> Path:
    """Copy a library, and redirect one of its functions to another one."""
    data = bytearray(library.read_bytes())
    with library.open("rb") as stream:
        table: Any = ELFFile(stream).get_section_by_name(".dynsym")
        symbols = {symbol.name: at for at, symbol in enumerate(table.iter_symbols())}
        size, start = table["sh_entsize"], table["sh_offset"]
    function_at, other_at = (start + symbols[name] * size for name in (function, other))
    # st_value follows the symbol's name, info, other and section fields.
    data[function_at + 8 : function_at + 16] = data[other_at + 8 : other_at + 16]
    to.write_bytes(data)
    return to


def test_a_wrong_find_function_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a find function with a wrong answer that `qola dispatch` does not report."""
    library = built_library("libmha_fwd")
    find, prepare = "qola_ci_mha_fwd_find", "qola_ci_mha_fwd_prepare"
    wrong = redirect_function(library.library, find, prepare, tmp_path / library.library.name)
    file = tmp_path / "mine.jsonl"
    problems: Sequence[AttentionProblem] = [FORWARD, replace(FORWARD, dtype="bf16")]
    file.write_text("\n".join(problem.to_json() for problem in problems))
    options = ("--problems", str(file), "--arch", "gfx950")
    assert run_dispatch([library], *options) == 0
    capfd.readouterr()
    assert run_dispatch([replace(library, library=wrong)], *options) == 13
    first, second, last = capfd.readouterr().out.splitlines()
    assert f"{FORWARD}: launched fmha_fwd_d32_fp16_batch" in first
    assert first.endswith("_gfx950; find names none")
    assert second.endswith("-> none: mha_fwd returned -1: no kernel")
    assert last == "2 problems: 1 differ, 1 have no kernel"


def test_a_library_without_find_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Prevents: problems that count as compared although the library has no find function."""
    library = built_library("libmha_fwd")
    without = tmp_path / library.library.name
    data = library.library.read_bytes()
    without.write_bytes(data.replace(b"qola_ci_mha_fwd_find\0", b"qola_ci_mha_fwd_lost\0"))
    options = ("--problems", "sweep", "--count", "5", "--arch", "gfx950")
    assert run_dispatch([replace(library, library=without)], *options) == 1
    error_text = capfd.readouterr().err
    assert "qola_ci_mha_fwd_find" in error_text
    assert "a library with C functions" in error_text
