"""The kernel of a call whose output is wrong, by the buffers between kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qola.aiter.proven_faults import KernelFacts, find_proven_faults
from qola.aiter.tree import read_tree
from qola_base.formats import F64, rounded
from qola_lab.problems import AttentionProblem, make_problem
from qola_lab.verify.case import Call, Launch, Sample
from qola_lab.verify.expected import compare, expected, judge, left_by_forward, row_sums
from qola_lab.verify.outcome import KernelFault, Outcome, Trial, lines, share_trials
from qola_lab.verify.repository import Repository
from qola_lab.verify.tensors import arithmetic, tensors
from qola_lab.verify.values import address_names
from tests.support import plans

ARCH = "gfx950"
SIZES = {"hdim": 16, "nhead_q": 2, "nhead_k": 1}
BATCH = make_problem("bwd", "bf16", batch=2, seqlen_q=20, seqlen_k=33, **SIZES)
GROUP = make_problem("bwd", "bf16", seqlen_q=[20, 7], seqlen_k=[33, 5], **SIZES)
DROPOUT = replace(BATCH, dropout_p=0.25, drop_seed=3)
SPLIT = make_problem(
    "fwd_splitkv", "bf16", seqlen_q=20, seqlen_k=33, num_splits=2, return_lse=True, **SIZES
)
SUMS, MAIN, CONVERT = "dot_do_o", "dq_dk_dv", "convert_dq"


def launch(name: str, *buffers: str) -> Launch:
    addresses = tuple((8 * n, address_names(one), 0) for n, one in enumerate(buffers))
    return Launch((name,), name, "", (1, 1, 1), (64, 1, 1), 0, "", addresses)


def call_of(problem: AttentionProblem) -> Call:
    """Return a call with the launches of Composable Kernel."""
    launches: tuple[Launch, ...] = (
        launch(SUMS, "o", "do", "d"),
        launch(MAIN, "q", "k", "v", "lse", "do", "d", "dq_acc", "dk", "dv"),
        launch(CONVERT, "dq_acc", "dq"),
    )
    if problem.direction == "fwd_splitkv":
        launches = (
            launch("splits", "q", "k", "v", "o_acc", "lse_acc"),
            launch("combine", "o_acc", "lse_acc", "o", "lse"),
        )
    return Call(Sample(problem), launches)


class Values:
    """The right results of a call, with the values between its kernels."""

    def __init__(self, problem: AttentionProblem) -> None:
        self.call, given = call_of(problem), tensors(problem, ARCH)
        self.numbers = numbers = arithmetic(problem, ARCH, 16)
        left = left_by_forward(problem, given, numbers) if problem.direction == "bwd" else []
        self.wanted = expected(problem, given, numbers, left)
        self.sums = row_sums(problem, given, left)
        self.found: dict[str, F64] = {name: one.exact.copy() for name, one in self.wanted.items()}
        if self.sums:
            self.found["d"] = self.sums.exact.copy()
            dq = self.found["dq"][None] if problem.is_group_mode else self.found["dq"]
            # Two shares of each element.
            self.found["dq_acc"] = np.stack([np.swapaxes(dq, 1, 2) * f for f in (0.25, 0.75)])
        else:
            # Each split has half of the sum of exponentials, the same in both.
            half = self.found["lse"] - np.log(2)
            self.found["lse_acc"] = np.stack([half, half])
            o = np.swapaxes(self.found["o"], -3, -2)
            self.found["o_acc"] = np.stack([o, o])

    def failed(self) -> set[str]:
        """Return the kernels that are judged as wrong."""
        with np.errstate(all="ignore"):
            trial = self.trial()
        return {name for name in self.call.names if trial.faults_of(name)}

    def trial(self, stopped: str = "") -> Trial:
        """Return the trial, of a run that one of the kernels may end."""
        verdicts = [] if stopped else compare(self.found, self.wanted)
        words = self.call, self.found, self.wanted, verdicts, self.sums
        more, judged = judge(*words, self.numbers)
        found = self.call.sample, self.call.names, (*verdicts, *more)
        return Trial(*found, (), stopped and "unsupported", (stopped,) if stopped else (), judged)


@pytest.mark.parametrize("problem", [BATCH, GROUP, DROPOUT], ids=["batch", "group", "dropout"])
@pytest.mark.parametrize(
    ("names", "culprit"),
    [
        ((), set()),
        (("dk",), {MAIN}),
        # A wrong share of dQ, and what the conversion makes of it.
        (("dq", "dq_acc"), {MAIN}),
        (("dq",), {CONVERT}),
        (("dk", "dq", "dq_acc"), {MAIN}),
        (("dk", "dq"), {MAIN, CONVERT}),
        (("d", "dk", "dq", "dq_acc"), {SUMS}),
        (("d", "dv", "dk", "dq", "dq_acc"), {SUMS, MAIN}),
    ],
    ids=lambda value: "+".join(sorted(value)) or "right",
)
def test_a_wrong_result_counts_against_the_kernel_that_made_it_wrong(
    problem: AttentionProblem, names: tuple[str, ...], culprit: set[str]
) -> None:
    """Prevents: a helper kernel that fails because the kernel beside it does."""
    values = Values(problem)
    for name in names:
        # Large values are rounded by more than the limits of the right ones.
        change = 100.0 / (2 if name == "dq_acc" else 1)
        values.found[name] = values.found[name] + change
        if name == "dq":
            values.found[name] = rounded(values.found[name], values.numbers.out)
    assert values.failed() == culprit
    trial = values.trial()
    # The others are right: they made the right results of what they read.
    if names and SUMS not in culprit:
        assert all(trial.is_judged(name) for name in {SUMS, MAIN, CONVERT} - culprit)
    # Right dV says nothing of the conversion, which never touches it.
    if SUMS in culprit:
        assert not trial.is_judged(CONVERT)


@pytest.mark.parametrize(
    ("names", "culprit"),
    [
        ((), set()),
        (("o",), {"combine"}),
        (("lse",), {"combine"}),
        (("o", "o_acc"), {"splits"}),
        (("lse", "lse_acc"), {"splits"}),
    ],
)
def test_splits_and_their_combination_are_told_apart(
    names: tuple[str, ...], culprit: set[str]
) -> None:
    """Prevents: a combining kernel that fails because of the shares that it combines."""
    values = Values(SPLIT)
    for name in names:
        values.found[name] = values.found[name] + 1.0
    assert values.failed() == culprit


def test_a_kernel_that_ends_the_run_is_the_only_one_that_fails() -> None:
    """Prevents: kernels before and after an unsupported instruction that fail with it, or pass."""
    trial = Values(BATCH).trial(stopped=MAIN)
    assert [name for name in call_of(BATCH).names if trial.faults_of(name)] == [MAIN]
    states = {name: Outcome(name, ARCH, (trial,)).state for name in (SUMS, MAIN, CONVERT)}
    # D was compared; nothing is known of the last kernel.
    assert states == {SUMS: "passed", MAIN: "failed", CONVERT: "untried"}
    reason = Outcome(CONVERT, ARCH, (trial,)).reason
    assert reason == f"{MAIN} failed in 1 of 1 problems"


def faulty(count: int) -> Trial:
    """Return a trial with right results, in which the last kernel accesses foreign memory."""
    faults = [
        KernelFault((CONVERT,), "unmapped", f"{CONVERT}+{16 * n:#x} load: unmapped: 16 bytes")
        for n in range(count)
    ]
    return replace(Values(BATCH).trial(), findings=tuple(faults))


def test_a_fault_belongs_to_its_kernel_in_all_problems() -> None:
    """Prevents: a fault of one kernel that fails another one, or is lost in its problems."""
    right = Values(BATCH).trial()
    outcomes = [
        Outcome(SUMS, ARCH, (faulty(43), right)),
        Outcome(CONVERT, ARCH, (right,)),
        Outcome(SUMS, "gfx942", (right,)),
    ]
    found = {(one.kernel, one.arch): one for one in share_trials(outcomes)}
    states = {key: one.state for key, one in found.items()}
    assert states == {
        (SUMS, ARCH): "passed",
        (CONVERT, ARCH): "failed",
        (SUMS, "gfx942"): "passed",
    }
    # A kernel that nobody requested is reported, too.
    (first, second) = share_trials(outcomes[:1])
    assert (second.kernel, second.state) == (CONVERT, "failed")
    assert second.faults() == found[CONVERT, ARCH].faults()
    assert first.state == "passed"


def test_one_cause_is_one_line_with_its_page() -> None:
    """Prevents: 43 lines for the instructions of one fault, or a known fault without its page."""
    known = {CONVERT: ("backward-convert-without-keys",)}
    outcome = Outcome(CONVERT, ARCH, (faulty(43), faulty(2)), known=known)
    line, page = outcome.faults()
    assert f"{CONVERT}+0x0 load: unmapped: 16 bytes (and 42 more instructions)" in line
    assert "; also in 1 other problems" in line
    assert page.startswith("known fault: ")
    assert page.endswith("guide/health.md#backward-convert-without-keys")
    assert Outcome(CONVERT, ARCH, (Values(BATCH).trial(),), known=known).faults() == []
    # The problem is shown once for all of its faults.
    wrong = replace(faulty(2), error="x", stopped=(CONVERT,))
    text = "\n".join(lines([Outcome(CONVERT, ARCH, (wrong,))]))
    assert text.count(str(BATCH)) == 1


def test_known_faults_are_those_that_the_plan_warns_of(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: the page of a fault that the tree has corrected, or that another kernel has."""
    name = "fmha_bwd_convert_dq_d64_bf16_b64x0_group_o2_psd_deterministic_gfx950"
    facts = [KernelFacts(name, ("gfx950",), "", "bwd")]
    tree = read_tree(aiter_tree)
    (warning,) = find_proven_faults(tree, ["gfx950"], facts, refuse=False)
    kernels = (plans.kernel(name, direction="bwd"), plans.kernel("another", direction="bwd"))
    module = plans.module("libmha_bwd", kernels=(0, 1))
    for warnings, known in (((warning,), ("backward-convert-without-keys",)), ((), ())):
        plan = plans.plan(kernels=kernels, modules=(module,), warnings=warnings)
        (tmp_path / "plan.json").write_text(plan.to_json(), encoding="utf-8")
        repository = Repository("libmha_bwd", tmp_path)
        assert repository.known_faults(name, "gfx950") == known
        assert repository.known_faults(name, "gfx942") == ()
        assert repository.known_faults("another", "gfx950") == ()
