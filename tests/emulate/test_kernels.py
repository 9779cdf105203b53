"""Compiled kernels, launched by their own host code, held against float64."""

from __future__ import annotations

import gc
import multiprocessing
import os
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.attention import ENTRIES
from qola.attention import AttentionProblem, make_problem
from qola.code_object.reader import CodeObject
from qola.emulate.faults import EmulationError
from qola.emulate.hip import Hip
from qola.emulate.launch import ARCHS, Options
from qola.emulate.program import Program
from qola.verify.expected import Verdict, compare, expected
from qola.verify.memory import buffers
from qola.verify.replay import TILE, contents
from qola.verify.tensors import arithmetic, tensors
from qola.verify.values import address_names, entry_values
from tests.library.offload import code_objects

MODULES = {"fwd": "libmha_fwd", "bwd": "libmha_bwd"}
#: Parameters of the pinned tree's entry points, by which arguments are named.
PARAMETERS = ("q_dtype_str", "use_ext_asm", "deterministic", "is_v3_atomic_fp32")
#: Kernel, instructions of waves and faults of each launch.
Launches = list[tuple[str, int, list[str]]]


def path(name: str) -> Path:
    return Path(os.environ[name]).resolve()


def problem(direction: str, seqlen_q: int, seqlen_k: int) -> AttentionProblem:
    return make_problem(
        direction,
        "fp16",
        hdim=32,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        nhead_q=2,
        nhead_k=1,
        return_lse=True,
    )


def _run(arch: str, of: AttentionProblem, options: Options) -> tuple[list[Verdict], Launches]:
    hip, module = Hip(path("QOLA_TEST_FAKE_HIP"), arch, options), MODULES[of.direction]
    hip.load(path(f"QOLA_TEST_CI_{module}"))
    call = hip.caller(path(f"QOLA_TEST_CI_{module}_CALLER"))
    given, found = tensors(of, arch), buffers(of, arch)
    values = contents(of, given, arch)
    held = {name: hip.allocate(one.written(values.get(name))) for name, one in found.items()}
    addresses = {address_names(name): memory for name, memory in held.items()}
    assert call(ENTRIES[of.direction], entry_values(of, arch, PARAMETERS) | addresses) >= 0
    wanted = expected(of, given, arithmetic(of, arch, TILE))
    results = {name: found[name].read(held[name].array) for name in wanted}
    return compare(results, wanted), [
        (one.result.kernel, one.result.instructions, [str(f) for f in one.result.faults])
        for one in hip.launches
    ]


def run(
    arch: str, of: AttentionProblem, options: Options | None = None
) -> tuple[list[Verdict], Launches]:
    """Verdicts and launches, from a process of its own: each has one device.

    A fault is an error unless the options say otherwise.
    """
    options = options or Options(strict=True)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(_run, (arch, of, options))


def check(verdicts: list[Verdict]) -> None:
    assert [str(verdict) for verdict in verdicts if not verdict.passed] == []
    assert all(verdict.compared for verdict in verdicts)


@pytest.mark.parametrize("module", ["libmha_fwd", "libmha_bwd"])
def test_every_instruction_is_covered(module: str) -> None:
    """Prevents: kernels that only some problems run, with an instruction that is not emulated."""
    library = path(f"QOLA_TEST_CI_{module}").read_bytes()
    found = [code for arch, code in code_objects(library) if arch in ARCHS]
    kernels = 0
    for code in found:
        code_object = CodeObject.read(code)
        for kernel in code_object.kernels.values():
            assert not Program(code_object, kernel).not_covered(), kernel.symbol
            kernels += 1
    assert kernels >= 2 * len(ARCHS)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("lengths", [(128, 128), (200, 150), (1, 70)])
def test_forward(arch: str, lengths: tuple[int, int]) -> None:
    """Prevents: an emulated forward that differs from attention, padding and odd lengths too."""
    verdicts, launches = run(arch, problem("fwd", *lengths))
    check(verdicts)
    assert len(launches) == 1
    assert not launches[0][2]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("lengths", [(128, 128), (200, 150)])
def test_backward(arch: str, lengths: tuple[int, int]) -> None:
    """Prevents: gradients that differ, over the three kernels of a backward."""
    verdicts, launches = run(arch, problem("bwd", *lengths))
    check(verdicts)
    assert [
        next(part for part in ("DotO", "DQDKDV", "Convert") if part in name)
        for name, *_ in launches
    ] == [
        "DotO",
        "DQDKDV",
        "Convert",
    ]


def _stays() -> bool:
    hip = Hip(path("QOLA_TEST_FAKE_HIP"), "gfx950")
    kept = weakref.ref(hip)
    del hip
    gc.collect()
    return kept() is not None


def test_the_runtime_s_device_stays() -> None:
    """Prevents: a launch that calls a function which went with the last name of its device."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_stays)


def test_a_kernel_that_does_not_end_is_an_error() -> None:
    """Prevents: a call that returns as if its kernel had run."""
    with pytest.raises(EmulationError, match="more than 100 instructions"):
        run("gfx950", problem("fwd", 128, 128), Options(limit=100))


def test_processes_share_a_launch() -> None:
    """Prevents: sums that two processes make at once and lose, or workgroups that nobody ran."""
    of, options = problem("bwd", 128, 300), Options(strict=True, waves=4)
    _, single = run("gfx950", of, options)
    verdicts, shared = run("gfx950", of, replace(options, processes=2))
    check(verdicts)
    assert [count for _, count, _ in shared] == [count for _, count, _ in single]


def test_checks_find_nothing_out_of_range() -> None:
    """Prevents: a checking mode that reports what kernels do rightly."""
    verdicts, launches = run("gfx950", problem("fwd", 130, 150), Options(checked=True))
    check(verdicts)
    # Compilers read registers that nobody wrote where the result does not depend on them.
    others = [fault for fault in launches[0][2] if "uninitialised register" not in fault]
    assert not others
