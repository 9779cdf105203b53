"""Launch tests: problems, and calls in processes that crash."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from qola.codegen.types import CodeObject
from qola.plan.model import Plan
from qola_lab.problems import AttentionProblem, Device
from qola_lab.tests.verify.toys import PROBLEM
from qola_lab.verify import host, launches
from qola_lab.verify.case import Call, Launch, Sample
from qola_lab.verify.host import Built
from qola_lab.verify.launches import Proof, make_problems, prove
from tests.support.plans import kernel, module, plan

FIELDS = {"dtype": "fp16", "hdim_q": 32, "hdim_v": 64, "mode": "group", "mask": True}
BLOB = CodeObject("hsa/gfx950/x.co", "hsa/gfx950/x.co", "gfx950", "f" * 64, 1)
LAUNCH = Launch(("k",), "_Z1k", "", (1, 1, 1), (64, 1, 1), 0, "", ())
RAN = Call(Sample(PROBLEM), (LAUNCH,))
BUILT = Built("libmha_fwd", Path("repository"), Path("library"), None, Path("runtime"))


def test_a_problem_for_each_kind_of_kernel() -> None:
    """Prevents: a launch test with problems that no kernel of the library serves."""
    similar = [kernel(f"k{n}", fields={**FIELDS, "bias": "alibi", "tile": n}) for n in range(3)]
    other = kernel("combine", role="splitkv_combine", fields=FIELDS)
    module_ = module(kernels=(0, 1, 2, 3))
    (problem,) = make_problems(plan(kernels=(*similar, other), modules=(module_,)), module_, "fwd")
    start = "direction=fwd dtype=fp16 hdim=32x64 batch=2 seqlen_q=256 seqlen_k=256"
    assert str(replace(problem, mode="batch")).startswith(start)
    assert (problem.mode, problem.bias_type) == ("group", "alibi")
    assert problem.mask.is_causal


def test_assembly_and_unknown_kernels_get_default_problems() -> None:
    """Prevents: a library of assembly kernels, or of an unknown CK, without launch tests."""
    unknown, assembly = module(kernels=(0,)), module(code_objects=(BLOB,))
    unknown_problems = make_problems(
        plan(kernels=(kernel("k"),), modules=(unknown,)), unknown, "fwd"
    )
    assembly_problems = make_problems(plan(modules=(assembly,)), assembly, "fwd")
    assert not any(p.use_asm for p in unknown_problems)
    assert {p.hdim_q for p in unknown_problems} >= {64, 128}
    assert [p for p in assembly_problems if p.use_asm]


def answer(count: int, end: Callable[[], None]) -> Callable[..., None]:
    """Return a process that answers some problems and then ends as specified."""

    def serve(
        connection: object, _built: Built, _device: Device, samples: Sequence[Sample]
    ) -> None:
        for sample in samples[:count]:
            connection.send(Call(sample, (LAUNCH,)))  # type: ignore[attr-defined]
        end()

    return serve


@pytest.mark.parametrize(
    ("count", "end", "errors"),
    [
        (9, lambda: None, ["", "", ""]),
        (0, lambda: os._exit(7), ["ended the process (7)"] * 3),
        (2, lambda: os.kill(os.getpid(), signal.SIGKILL), ["", "", "ended the process (-9)"]),
        # A crash at the end, such as when a library is unloaded, discards the last answer.
        (9, lambda: os._exit(6), ["", "", "ended the process (6)"]),
        (2, signal.pause, ["", "", "no answer after 0.5 s (-9)"]),
    ],
    ids=["none", "at once", "at the last", "afterwards", "never"],
)
def test_crashes_end_one_call(
    monkeypatch: pytest.MonkeyPatch, count: int, end: Callable[[], None], errors: list[str]
) -> None:
    """Prevents: a crash or an endless call that hides the results of other problems."""
    monkeypatch.setattr(host, "_serve", answer(count, end))
    monkeypatch.setattr(host, "_SECONDS", 0.5)
    problems = [replace(PROBLEM, nhead_q=n) for n in (2, 4, 6)]
    calls = list(host.call_apart(BUILT, Device("gfx950"), problems))
    assert [call.problem for call in calls] == problems
    assert [call.error for call in calls] == errors


def test_every_arch_and_entry_point_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: an arch without kernels, or an entry point without launches, left unreported."""

    def refuse(_built: Built, _device: Device, problems: Sequence[AttentionProblem]) -> list[Call]:
        return [Call(Sample(problem), (), "mha_fwd returned -2: no arch") for problem in problems]

    monkeypatch.setattr(launches, "call_apart", refuse)
    module_ = module(kernels=(0, 1), code_objects=(BLOB,))
    split = kernel("s", fields=FIELDS, direction="fwd_splitkv", role="splitkv")
    complete_plan = plan(kernels=(kernel("k", fields=FIELDS), split), modules=(module_,))
    monkeypatch.setattr(Plan, "from_json", lambda _: complete_plan)
    monkeypatch.setattr(Built, "_text", lambda *_: "")
    proofs = prove(BUILT, ["gfx950", "gfx942"])
    assert [(proof.arch, proof.entry, proof.kind, proof.launching) for proof in proofs] == [
        ("gfx950", "mha_fwd", "kernel instances", ()),
        ("gfx950", "mha_fwd", "assembly kernels", ()),
        ("gfx950", "mha_fwd_splitkv", "kernel instances", ()),
        ("gfx942", "mha_fwd", "kernels: none is planned", ()),
    ]
    assert proofs[1].failed[0].problem.use_asm
    first, shown, *_ = proofs[0].lines()
    assert first.startswith("gfx950 mha_fwd: none of ")
    assert shown.endswith("mask_type=causal: mha_fwd returned -2: no arch")


def test_a_proof_as_text() -> None:
    """Prevents: a proof that does not name its kernels and a problem."""
    proof = Proof("gfx942", "mha_fwd", "assembly kernels", 9, (RAN, RAN), ())
    text = f"gfx942 mha_fwd: 2 of 9 problems launch assembly kernels, such as {PROBLEM}"
    assert [*proof.lines()] == [text]
