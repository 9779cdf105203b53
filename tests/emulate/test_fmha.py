"""Kernels from Python: runs over arrays on the emulator, and what libraries launch."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qola.attention import AttentionProblem, ProblemError, make_problem
from qola.fmha import reference
from qola.fmha.__main__ import main
from qola.fmha.agreement import compared
from qola.fmha.build import built_by
from qola.fmha.gpu import RunError
from qola.fmha.runner import Run, Runner
from qola.fmha.sweep import sweep
from qola.launch.fake_hip import FakeHip, read_log
from tests.emulate.libraries import built

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


def arrays(problem: AttentionProblem, *names: str) -> list[Any]:
    generator = np.random.default_rng(5)
    shapes = problem.shapes() | {"do": problem.shapes()["o"]}
    return [generator.normal(size=shapes[name]).astype(np.float16) for name in names]


def words(run: Run) -> list[str]:
    return [*map(str, run.verdicts), *run.done.findings]


@pytest.mark.parametrize("order", ["bshd", "bhsd"])
def test_a_forward(order: str) -> None:
    """Prevents: arrays that reach kernels in another layout, and results that do not come back."""
    problem = FORWARD.with_layout(order=order)
    q, k, v = arrays(problem, "q", "k", "v")
    run = Runner(built("libmha_fwd"), ARCH).forward(problem, q, k, v)
    assert run.passed, words(run)
    assert run.launched[0].startswith("fmha_fwd_d32_fp16_batch")
    assert (run.done.instructions or 0) > 1000
    assert run.tflops is None
    shapes = {name: (one.shape, str(one.dtype)) for name, one in run.results.items()}
    wanted_shapes = problem.shapes()
    assert shapes == {
        "o": (wanted_shapes["o"], "float16"),
        "lse": (wanted_shapes["lse"], "float32"),
    }
    wanted = reference.forward(problem, q, k, v)
    assert np.allclose(run.results["o"], wanted.o, rtol=2e-3, atol=2e-3)
    assert np.allclose(run.results["lse"], wanted.lse, atol=1e-5)


def test_a_backward_of_a_forward() -> None:
    """Prevents: gradients of another O and LSE than those that were given."""
    q, k, v, do = arrays(BACKWARD, "q", "k", "v", "do")
    runner = Runner(built("libmha_bwd"), ARCH)
    run = runner.backward(BACKWARD, q, k, v, do)
    assert run.passed, words(run)
    assert len(run.launched) == 3
    wanted = reference.backward(BACKWARD, q, k, v, do)
    for name in ("dq", "dk", "dv"):
        found = run.results[name]
        assert found.shape == getattr(wanted, name).shape
        assert np.abs(found - getattr(wanted, name)).max() < 0.02
    left = reference.forward(BACKWARD, q, k, v)
    again = runner.backward(BACKWARD, q, k, v, do, o=left.o, lse=left.lse)
    assert again.passed, words(again)
    assert np.array_equal(again.results["dv"], run.results["dv"])
    # Another LSE has other results, and these are right.
    other = runner.backward(BACKWARD, q, k, v, do, o=left.o, lse=left.lse + 0.5)
    assert other.passed, words(other)
    assert np.abs(other.results["dv"] - run.results["dv"]).max() > 0.05
    with pytest.raises(ProblemError, match="lse"):
        runner.backward(BACKWARD, q, k, v, do, o=left.o, lse=left.lse[0])


def test_a_decode_in_splits() -> None:
    """Prevents: splits that are not put together, and a sweep of split-KV that is of others."""
    (library,) = built_by(Path(os.environ["QOLA_TEST_SPLITKV"]).absolute()).values()
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
    assert run.passed, words(run)
    assert len(run.launched) == 2
    assert "combine" in run.launched[1]
    swept = compared(library, ARCH, list(sweep(library.kernels, 200)))
    assert [one.line() for one in swept if not one.agrees or one.unasked] == []
    assert sum(bool(one.launched) for one in swept) > 100


def test_what_does_not_run() -> None:
    """Prevents: results of nothing, where there is no kernel, no device or no code."""
    library = built("libmha_fwd")
    problem = replace(FORWARD, dtype="bf16")
    with pytest.raises(RunError, match="returned -1: no kernel"):
        Runner(library, ARCH).forward(problem, *arrays(problem, "q", "k", "v"))
    for device, arch, said in (
        ("cuda", ARCH, "emulated or hip"),
        ("emulated", "gfx1100", "no code for gfx1100"),
    ):
        with pytest.raises(RunError, match=said):
            Runner(library, arch, device)


#: In a process with the fake runtime in place of HIP's.
_ON_A_GPU = """
import ctypes, json, sys
from qola.fmha.agreement import compared
from qola.fmha.build import built_by
from qola.fmha.gpu import RunError
from qola.fmha.runner import Runner
from qola.launch.fake_hip import RUNTIME
from tests.emulate.test_fmha import ARCH, FORWARD, arrays
from tests.emulate.libraries import built
try:
    run = Runner(built("libmha_fwd"), ARCH, "hip").forward(FORWARD, *arrays(FORWARD, "q", "k", "v"))
    said = [run.launched, run.passed, run.done.seconds, bool(run.tflops)]
except RunError as error:
    said = [str(error)]
query = ctypes.CDLL(RUNTIME).fake_hip_allocations
query.restype = ctypes.c_size_t
print(json.dumps([*said, query(None, None, ctypes.c_size_t(0))]))
"""


def on_a_gpu(log: Path, **env: str) -> list[Any]:
    hip = FakeHip(Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve(), ARCH)
    known = {name: os.environ[name] for name in os.environ if name.startswith("QOLA_TEST_")}
    path = os.pathsep.join(sys.path)
    result = hip.run([sys.executable, "-c", _ON_A_GPU], log, PYTHONPATH=path, **known, **env)
    assert result.returncode == 0, result.stderr
    said: list[Any] = json.loads(result.stdout.splitlines()[-1])
    return said


def test_a_gpu_up_to_the_launch(tmp_path: Path) -> None:
    """Prevents: another kernel or another memory on a GPU than on the emulator."""
    names, passed, seconds, timed, left = on_a_gpu(tmp_path / "log")
    (launch,) = read_log(tmp_path / "log")
    assert launch.grid == (4, 1, 2)
    (name,) = names
    assert name.startswith("fmha_fwd_d32_fp16_batch")
    # The runtime runs nothing: O is what memory held, which is no number.
    assert passed is False
    assert seconds >= 0
    assert timed == (seconds > 0)
    assert left == 0


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ("hipGetDeviceCount=100", "error 100"),
        ("hipMalloc=2*3", "hipMalloc"),
        ("hipMemcpy=1", "hipMemcpy"),
        ("hipEventSynchronize=719", "error 719 of HIP"),
        ("hipGetDevice=101", "returned -3"),
    ],
)
def test_memory_is_freed_whatever_fails(tmp_path: Path, failing: str, said: str) -> None:
    """Prevents: a notebook that fills a GPU by its errors, and errors without a word."""
    error, left = on_a_gpu(tmp_path / "log", FAKE_HIP_FAIL=failing)
    assert said in error
    assert left == 0


def asked(*more: str, repository: Path | None = None) -> int:
    argv = ["--runtime", os.environ["QOLA_TEST_FAKE_HIP"]]
    for module in ("libmha_fwd", "libmha_bwd"):
        problem = built(module)
        place = repository or problem.repository
        argv += [
            "--module",
            module,
            str(problem.library),
            str(problem.caller),
            str(place / "plan.json"),
        ]
    return main([*argv, *more])


def test_libraries_launch_what_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    """Prevents: a registry that selects other kernels than the compiled dispatch does."""
    assert asked("--problems", "sweep", "--count", "500") == 0
    (said,) = capfd.readouterr().out.splitlines()
    total, differ, none = (int(word) for word in said.split() if word.isdigit())
    assert (total, differ) == (2000, 0)
    assert 200 < none < 1500


def test_problems_of_a_file_are_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Prevents: a problem whose kernel, grid or refusal is not told."""
    file = tmp_path / "mine.jsonl"
    problems = [FORWARD, replace(FORWARD, dtype="bf16"), BACKWARD]
    file.write_text("\n".join(one.to_json() for one in problems))
    words = ("--problems", str(file), "--arch", ARCH)
    assert asked(*words) == 0
    first, second, third, last = capfd.readouterr().out.splitlines()
    assert first.startswith(f"gfx950 {FORWARD} -> fmha_fwd_d32_fp16_batch_")
    assert first.endswith(" 4x1x2")
    assert second.endswith("-> none: mha_fwd returned -1: no kernel")
    assert third.count(", fmha_bwd_") == 2
    assert last == "3 problems: 0 differ, 1 have no kernel"
    assert asked(*words, "--json") == 0
    values = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [len(one["launched"]) for one in values] == [1, 0, 3]
    assert all(one["selected"] == one["launched"] for one in values)
    assert asked("--problems", str(tmp_path / "nowhere")) == 2


def test_problems_that_are_compared_with_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Prevents: problems that vanish without a word, and a check that fails for none of them."""
    file = tmp_path / "mine.jsonl"
    split = replace(FORWARD, direction="fwd_splitkv", num_splits=2)
    allowed = replace(FORWARD, use_asm=True)
    file.write_text("\n".join(one.to_json() for one in (FORWARD, split, allowed)))
    assert asked("--problems", str(file), "--arch", ARCH) == 0
    *lines, told, last = capfd.readouterr().out.splitlines()
    assert len(lines) == 3
    # Assembly kernels that may serve a problem and do not leave it to the dispatch.
    assert " -> fmha_fwd_d32_fp16_batch" in lines[1]
    words = "1 problems not compared: no library has kernels of the direction for the arch"
    assert told == f"gfx950 fwd_splitkv: {words}"
    assert last == "3 problems: 0 differ, 1 have no kernel, 1 are not compared"
    file.write_text(split.to_json())
    assert asked("--problems", str(file), "--arch", ARCH) == 2
    assert "one of bwd, fwd" in capfd.readouterr().err


def test_another_dispatch_than_the_library_s(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a mismatch between what is read and what is launched that nobody is told of."""
    own = built("libmha_fwd").repository
    for file in [*own.glob("libmha_*/**/*.cpp"), own / "plan.json"]:
        place = tmp_path / file.relative_to(own)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    dispatch = tmp_path / "libmha_fwd/dispatch/fmha_fwd_api.cpp"
    text = dispatch.read_text()
    changed = text.replace("a.seqlen_k % 64 == 0", "a.seqlen_k % 64 != 0")
    assert changed != text
    dispatch.write_text(changed)
    words = ("--problems", "sweep", "--count", "100", "--arch", ARCH)
    assert asked(*words, repository=tmp_path) == 13
    *lines, last = capfd.readouterr().out.splitlines()
    assert lines
    assert all("; selected " in line for line in lines)
    assert last.startswith(f"200 problems: {len(lines)} differ")
