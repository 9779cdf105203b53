"""Kernels called with arrays from Python on the emulator, and what `qola dispatch` prints."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qola_lab.fmha import reference
from qola_lab.fmha.agreement import compared, sweep
from qola_lab.fmha.build import built_by
from qola_lab.fmha.runner import RunError, Runner
from qola_lab.problems import ProblemError, make_problem
from qola_lab.tests.emulated.libraries import built_library
from qola_lab.tests.emulated.runs import arrays, fault_text, run_dispatch
from qola_lab.verify.host import Built

SPLITKV = Path(os.environ["QOLA_TEST_SPLITKV"]).absolute()
ARCH = "gfx950"
FORWARD = make_problem(
    "fwd",
    "fp16",
    seqlen_q=70,
    seqlen_k=100,
    nhead_q=4,
    nhead_k=2,
    hdim=32,
    batch=2,
    return_lse=True,
)
BACKWARD = replace(FORWARD, direction="bwd", seqlen_q=(32, 32), seqlen_k=(40, 40))


@pytest.mark.parametrize("order", ["bshd", "bhsd"])
def test_a_forward(order: str) -> None:
    """Prevents: arrays passed to kernels in a wrong layout, or results that are not returned."""
    problem = FORWARD.with_layout(order=order)
    q, k, v = arrays(problem, "q", "k", "v")
    run = Runner(built_library("libmha_fwd"), ARCH).forward(problem, q, k, v)
    assert run.passed, fault_text(run)
    assert run.launched[0].startswith("fmha_fwd_d32_fp16_batch")
    assert run.instructions > 1000
    shapes = {name: (array.shape, str(array.dtype)) for name, array in run.results.items()}
    expected_shapes = problem.shapes()
    assert shapes == {
        "o": (expected_shapes["o"], "float16"),
        "lse": (expected_shapes["lse"], "float32"),
    }
    expected = reference.forward(problem, q, k, v)
    assert np.allclose(run.results["o"], expected.o, rtol=2e-3, atol=2e-3)
    assert np.allclose(run.results["lse"], expected.lse, atol=1e-5)


def test_a_backward_of_a_forward() -> None:
    """Prevents: gradients that do not use the O and LSE that the caller passes."""
    q, k, v, do = arrays(BACKWARD, "q", "k", "v", "do")
    runner = Runner(built_library("libmha_bwd"), ARCH)
    run = runner.backward(BACKWARD, q, k, v, do)
    assert run.passed, fault_text(run)
    assert len(run.launched) == 3
    expected = reference.backward(BACKWARD, q, k, v, do)
    for name in ("dq", "dk", "dv"):
        found = run.results[name]
        assert found.shape == getattr(expected, name).shape
        assert np.abs(found - getattr(expected, name)).max() < 0.02
    stored = reference.forward(BACKWARD, q, k, v)
    again = runner.backward(BACKWARD, q, k, v, do, o=stored.o, lse=stored.lse)
    assert again.passed, fault_text(again)
    assert np.array_equal(again.results["dv"], run.results["dv"])
    # Another LSE gives other gradients, which match the reference, too.
    other = runner.backward(BACKWARD, q, k, v, do, o=stored.o, lse=stored.lse + 0.5)
    assert other.passed, fault_text(other)
    assert np.abs(other.results["dv"] - run.results["dv"]).max() > 0.05
    with pytest.raises(ProblemError, match="lse"):
        runner.backward(BACKWARD, q, k, v, do, o=stored.o, lse=stored.lse[0])


def test_split_kv_decode() -> None:
    """Prevents: splits that are not combined, or split-KV problems that launch other kernels."""
    (library,) = built_by(SPLITKV).values()
    problem = make_problem(
        *("fwd_splitkv", "fp16"),
        seqlen_q=[1, 3],
        seqlen_k=[100, 200],
        nhead_q=4,
        nhead_k=2,
        hdim=32,
        return_lse=True,
        num_splits=3,
    )
    run = Runner(library, ARCH).forward(problem, *arrays(problem, "q", "k", "v"))
    assert run.passed, fault_text(run)
    assert len(run.launched) == 2
    assert "combine" in run.launched[1]
    swept = compared(library, ARCH, list(sweep(library.kernels, 200)))
    assert [
        comparison.line() for comparison in swept if not comparison.agrees or comparison.unasked
    ] == []
    assert sum(bool(comparison.launched) for comparison in swept) > 100


def test_missing_kernel_or_code_is_an_error() -> None:
    """Prevents: results from a call without a kernel or code for the arch."""
    library = built_library("libmha_fwd")
    problem = replace(FORWARD, dtype="bf16")
    with pytest.raises(RunError, match="returned -1: no kernel"):
        Runner(library, ARCH).forward(problem, *arrays(problem, "q", "k", "v"))
    with pytest.raises(RunError, match="no code for gfx1100"):
        Runner(library, "gfx1100")


@pytest.fixture(scope="module")
def both() -> list[Built]:
    return [built_library("libmha_fwd"), built_library("libmha_bwd")]


def test_libraries_launch_the_kernels_of_the_parsed_dispatch(
    both: list[Built], capfd: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a registry that selects other kernels than the compiled dispatch launches."""
    assert run_dispatch(both, "--problems", "sweep", "--count", "500") == 0
    (summary,) = capfd.readouterr().out.splitlines()
    total, differ, none = (int(word) for word in summary.split() if word.isdigit())
    assert (total, differ) == (2000, 0)
    assert 200 < none < 1500


def test_problems_of_a_file_are_shown(
    both: list[Built], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Prevents: output of `qola dispatch` without a problem's kernel, grid or refusal."""
    file = tmp_path / "mine.jsonl"
    problems = [FORWARD, replace(FORWARD, dtype="bf16"), BACKWARD]
    file.write_text("\n".join(problem.to_json() for problem in problems))
    options = ("--problems", str(file), "--arch", ARCH)
    assert run_dispatch(both, *options) == 0
    first, second, third, last = capfd.readouterr().out.splitlines()
    assert first.startswith(f"gfx950 {FORWARD} -> fmha_fwd_d32_fp16_batch_")
    assert first.endswith(" 4x1x2")
    assert second.endswith("-> none: mha_fwd returned -1: no kernel")
    assert third.count(", fmha_bwd_") == 2
    assert last == "3 problems: 0 differ, 1 have no kernel"
    assert run_dispatch(both, *options, "--json") == 0
    values = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [len(problem["launched"]) for problem in values] == [1, 0, 3]
    assert all(problem["selected"] == problem["launched"] for problem in values)
    assert run_dispatch(both, "--problems", str(tmp_path / "nowhere")) == 2


def test_problems_without_a_library_are_counted(
    both: list[Built], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Prevents: problems that silently disappear, or success when no problem was compared."""
    file = tmp_path / "mine.jsonl"
    split = replace(FORWARD, direction="fwd_splitkv", num_splits=2)
    allowed = replace(FORWARD, use_asm=True)
    file.write_text("\n".join(problem.to_json() for problem in (FORWARD, split, allowed)))
    assert run_dispatch(both, "--problems", str(file), "--arch", ARCH) == 0
    *lines, note, last = capfd.readouterr().out.splitlines()
    assert len(lines) == 3
    # The library has no assembly kernel for this problem: the dispatch serves it.
    assert " -> fmha_fwd_d32_fp16_batch" in lines[1]
    text = "1 problems not compared: no library has kernels of the direction for the arch"
    assert note == f"gfx950 fwd_splitkv: {text}"
    assert last == "3 problems: 0 differ, 1 have no kernel, 1 are not compared"
    file.write_text(split.to_json())
    assert run_dispatch(both, "--problems", str(file), "--arch", ARCH) == 2
    assert "one of bwd, fwd" in capfd.readouterr().err


def test_a_changed_dispatch_is_reported(
    both: list[Built], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a mismatch between the parsed and the compiled dispatch that is not reported."""
    root = both[0].repository
    for file in [*root.glob("libmha_*/**/*.cpp"), root / "plan.json"]:
        copy = tmp_path / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    dispatch = tmp_path / "libmha_fwd/dispatch/fmha_fwd_api.cpp"
    text = dispatch.read_text()
    changed = text.replace("a.seqlen_k % 64 == 0", "a.seqlen_k % 64 != 0")
    assert changed != text
    dispatch.write_text(changed)
    options = ("--problems", "sweep", "--count", "100", "--arch", ARCH)
    changed_libraries = [replace(library, repository=tmp_path) for library in both]
    assert run_dispatch(changed_libraries, *options) == 13
    *lines, last = capfd.readouterr().out.splitlines()
    assert lines
    assert all("; selected " in line for line in lines)
    assert last.startswith(f"200 problems: {len(lines)} differ")
