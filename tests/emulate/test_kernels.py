"""Compiled kernels, launched by their own host code, held against float64."""

from __future__ import annotations

import gc
import multiprocessing
import os
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from qola.code_object.reader import CodeObject
from qola.emulate.faults import EmulationError
from qola.emulate.hip import Hip
from qola.emulate.launch import ARCHS, Options
from qola.emulate.program import Program
from tests.emulate.attention import Problem, backward, forward
from tests.library.offload import code_objects

#: Of O and gradients around 1: half a unit of the type's last place, and what rounding P adds.
TOLERANCE = {"fp16": 2e-3, "bf16": 1.6e-2}
LSE = 2e-6


def path(name: str) -> Path:
    return Path(os.environ[name]).resolve()


def _run(
    arch: str, module: str, problem: Problem, options: Options
) -> tuple[dict[str, float], list[tuple[str, int, list[str]]]]:
    hip = Hip(path("QOLA_TEST_FAKE_HIP"), arch, options)
    hip.load(path(f"QOLA_TEST_CI_{module}"))
    call = hip.caller(path(f"QOLA_TEST_CI_{module}_CALLER"))
    errors = (forward if module == "libmha_fwd" else backward)(hip, call, problem)
    return errors, [
        (one.result.kernel, one.result.instructions, [str(f) for f in one.result.faults])
        for one in hip.launches
    ]


def run(
    arch: str, module: str, problem: Problem, options: Options | None = None
) -> tuple[dict[str, float], list[tuple[str, int, list[str]]]]:
    """Errors and launches, from a process of its own: each has one device.

    A fault is an error unless the options say otherwise.
    """
    options = options or Options(strict=True)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(_run, (arch, module, problem, options))


def check(problem: Problem, errors: dict[str, float]) -> None:
    assert errors.pop("lse", 0.0) < LSE
    # Not max(): it passes over a NaN.
    assert all(error < TOLERANCE[problem.dtype] for error in errors.values()), errors


def test_a_nan_is_an_error() -> None:
    """Prevents: a result that is not a number, passed as one that is near enough."""
    with pytest.raises(AssertionError):
        check(Problem("fp16", 32, 1, 1), {"dq": 0.0, "dk": float("nan")})


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
    problem = Problem("fp16", 32, *lengths)
    errors, launches = run(arch, "libmha_fwd", problem)
    check(problem, errors)
    assert len(launches) == 1
    assert not launches[0][2]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("lengths", [(128, 128), (200, 150)])
def test_backward(arch: str, lengths: tuple[int, int]) -> None:
    """Prevents: gradients that differ, over the three kernels of a backward."""
    problem = Problem("fp16", 32, *lengths)
    errors, launches = run(arch, "libmha_bwd", problem)
    check(problem, errors)
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
        run("gfx950", "libmha_fwd", Problem("fp16", 32, 128, 128), Options(limit=100))


def test_processes_share_a_launch() -> None:
    """Prevents: sums that two processes make at once and lose, or workgroups that nobody ran."""
    problem = Problem("fp16", 32, 128, 300)
    options = Options(strict=True, waves=4)
    alone = run("gfx950", "libmha_bwd", problem, options)
    shared = run("gfx950", "libmha_bwd", problem, replace(options, processes=2))
    check(problem, shared[0])
    assert [count for _, count, _ in shared[1]] == [count for _, count, _ in alone[1]]


def test_checks_find_nothing_out_of_range() -> None:
    """Prevents: a checking mode that reports what kernels do rightly."""
    problem = Problem("fp16", 32, 130, 150)
    errors, launches = run("gfx950", "libmha_fwd", problem, Options(checked=True))
    check(problem, errors)
    # Compilers read registers that nobody wrote where the result does not depend on them.
    others = [fault for fault in launches[0][2] if "uninitialised register" not in fault]
    assert not others
