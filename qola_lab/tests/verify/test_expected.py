"""Expected results of kernels, the comparison with them, and the kernel whose output is wrong."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qola.aiter.proven_faults import KernelFacts, find_proven_faults
from qola.aiter.tree import read_tree
from qola_base.formats import BF16, F64, FP16, FP32, rounded
from qola_lab.problems import AttentionProblem, TestData, formats, make_problem
from qola_lab.reference.attention import Attention, Forward, forward
from qola_lab.reference.masks import BOTTOM_RIGHT, TOP_LEFT
from qola_lab.tests.reference.rounding_kernel import RIGHT, Faults, run_backward, run_forward
from qola_lab.verify.case import Call, Launch, Sample
from qola_lab.verify.expected import compare, expected, judge, left_by_forward, row_sums
from qola_lab.verify.outcome import KernelFault, Outcome, Trial, lines, share_trials
from qola_lab.verify.repository import Repository
from qola_lab.verify.tensors import address_names, arithmetic, tensors
from tests.support import plans

FORWARD = AttentionProblem("fwd", "bf16", 64, 32, (40, 40), (70, 70), 4, 2, 0.125, return_lse=True)
BACKWARD = replace(FORWARD, direction="bwd")
GROUP_MODE: dict[str, Any] = {
    "mode": "group",
    "seqlen_q": (40, 0, 33, 5),
    "seqlen_k": (70, 9, 0, 64),
}


def run(
    problem: AttentionProblem, attention: Attention | None = None, faults: Faults = RIGHT
) -> Any:
    """Run the NumPy kernel; return inputs, arithmetic, and results in the layout of `expected`."""
    inputs = tensors(problem, "gfx950")
    arithmetic_ = arithmetic(problem, "gfx950", 32)
    attention = attention or problem.attention
    sequences = inputs.sequences(problem)
    parts: list[dict[str, F64]] = []
    if problem.direction != "bwd":
        parts = [
            vars(run_forward(attention, sequence, arithmetic_, faults)) for sequence in sequences
        ]
    else:
        stored: list[Forward] = left_by_forward(problem, inputs, arithmetic_)
        do = (
            np.split(inputs.do, inputs.starts_q[1:-1]) if problem.is_group_mode else list(inputs.do)
        )
        parts = [
            vars(run_backward(attention, *part_inputs, arithmetic_, faults))
            for part_inputs in zip(sequences, do, stored, strict=True)
        ]
    found = {}
    for name in ("o", "lse", "dq", "dk", "dv", "dbias"):
        arrays = [part[name] for part in parts if name in part]
        if not arrays:
            continue
        if not problem.is_group_mode:
            found[name] = np.stack(arrays)
        elif name in ("o", "dq", "dk", "dv"):
            found[name] = np.concatenate(arrays)
        else:
            if name == "dbias":
                widest = max(problem.seqlen_k)
                arrays = [np.pad(a, ((0, 0), (0, 0), (0, widest - a.shape[2]))) for a in arrays]
            found[name] = np.concatenate(arrays, axis=1)
    return inputs, arithmetic_, found


@pytest.mark.parametrize(
    ("change", "rounding"),
    [
        ({"dtype": "fp16"}, "nearest_even"),
        ({"dtype": "fp16", "use_asm": True}, "toward_zero"),
        ({"dtype": "bf16", "use_asm": True}, "nearest_even"),
        ({"dtype": "bf16", "use_asm": True, "how_v3_bf16_cvt": 2}, "toward_zero"),
    ],
)
def test_roundings_of_backward_kernels(change: dict[str, Any], rounding: str) -> None:
    """Prevents: a correct kernel that fails because it truncates, or a wrong one that passes."""
    arithmetic_ = arithmetic(replace(BACKWARD, **change), "gfx950", 32)
    assert {arithmetic_.low_rounding, arithmetic_.out_rounding} == {rounding}


@pytest.mark.parametrize("group", [{}, GROUP_MODE], ids=["batch", "group"])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dtype": "fp16", **asdict(BOTTOM_RIGHT)},
        {**asdict(TOP_LEFT), "bias_type": "bias", "nhead_bias": 4, "has_dbias": True},
        {"bias_type": "alibi", "batched_alibi_slopes": True, "dropout_p": 0.25, "drop_seed": 3},
        {"dtype": "fp32", "bias_type": "bias", "softmax_scale": 1.0},
    ],
    ids=["plain", "fp16", "bias", "alibi", "fp32"],
)
def test_a_correct_kernel_passes(
    direction: str, changes: dict[str, Any], group: dict[str, Any]
) -> None:
    """Prevents: results compared with another sequence, head or layout."""
    problem = replace(FORWARD, direction=direction, **changes, **group)
    inputs, arithmetic_, found = run(problem)
    expected_ = expected(problem, inputs, arithmetic_)
    verdicts = compare(found, expected_)
    names = {"o", "lse"} if direction == "fwd" else {"dq", "dk", "dv"}
    names |= {"dbias"} if direction == "bwd" and "has_dbias" in changes else set()
    assert {verdict.name for verdict in verdicts} == names
    for verdict in verdicts:
        assert verdict.passed, str(verdict)
        assert verdict.compared > 100


@pytest.mark.parametrize("group", [{}, GROUP_MODE], ids=["batch", "group"])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_a_wrong_kernel_fails(direction: str, group: dict[str, Any]) -> None:
    """Prevents: a verdict that passes for any result."""
    problem = replace(FORWARD, direction=direction, **asdict(BOTTOM_RIGHT), **group)
    inputs, arithmetic_, found = run(problem, replace(problem.attention, mask=TOP_LEFT))
    verdicts = compare(found, expected(problem, inputs, arithmetic_))
    assert not any(verdict.passed for verdict in verdicts)
    assert "in place of" in str(verdicts[0])


def test_nan_and_infinity_fail() -> None:
    """Prevents: a NaN that passes since every comparison with it is false."""
    inputs, arithmetic_, found = run(FORWARD)
    expected_ = expected(FORWARD, inputs, arithmetic_)
    found["o"][1, 2, 3, 4] = np.nan
    found["lse"][0, 1, 2] = np.inf
    lse, o = compare(found, expected_)
    assert (o.over, o.place) == (1, (1, 2, 3, 4))
    assert (lse.over, lse.place) == (1, (0, 1, 2))


def test_unwritten_results_are_not_compared() -> None:
    """Prevents: a kernel that fails for results of skipped sequences, or for an unrequested LSE."""
    problem = replace(FORWARD, **GROUP_MODE, min_seqlen_q=33, return_lse=False)
    inputs, arithmetic_, found = run(problem)
    found["o"][40:] = np.nan
    (o,) = compare(found, expected(problem, inputs, arithmetic_))
    assert o.passed
    assert o.compared == 40 * 4 * 32
    inputs, arithmetic_, found = run(replace(BACKWARD, **GROUP_MODE))
    # The second sequence has no Q, the third has no K.
    found["dk"][70:79] = found["dq"][40:73] = np.nan
    assert all(
        v.passed
        for v in compare(found, expected(replace(BACKWARD, **GROUP_MODE), inputs, arithmetic_))
    )


def test_batch_and_group_have_equal_sequences() -> None:
    """Prevents: a group-mode sequence with a wrong start, or with another one's bias or slopes."""
    problem = replace(FORWARD, bias_type="bias", nhead_bias=4, dropout_p=0.25, drop_seed=5)
    inputs = tensors(problem, "gfx950")
    flat: dict[str, Any] = {name: np.concatenate(getattr(inputs, name)) for name in "qkv"}
    assert inputs.bias is not None
    group_inputs = replace(inputs, **flat, bias=np.tile(inputs.bias, (1, 2, 1)))
    pairs = inputs.sequences(problem), group_inputs.sequences(replace(problem, mode="group"))
    for first, second in zip(*pairs, strict=True):
        results = [forward(problem.attention, sequence).o for sequence in (first, second)]
        assert np.array_equal(results[0], results[1])
    alibi = replace(problem, bias_type="alibi", batched_alibi_slopes=True)
    slopes = tensors(alibi, "gfx950")
    assert slopes.alibi_slopes is not None
    found = [sequence.alibi_slopes for sequence in slopes.sequences(alibi)]
    assert np.array_equal(np.array(found), slopes.alibi_slopes)


def test_results_of_another_shape_are_refused() -> None:
    """Prevents: results of a wrong shape that NumPy broadcasts."""
    inputs, arithmetic_, found = run(FORWARD)
    expected_ = expected(FORWARD, inputs, arithmetic_)
    with pytest.raises(ValueError, match="lse: None"):
        compare({"o": found["o"]}, expected_)
    with pytest.raises(ValueError, match=r"o: \(40, 4, 32\)"):
        compare({**found, "o": found["o"][0]}, expected_)


def test_tensors_have_values_of_their_format() -> None:
    """Prevents: inputs that only the kernel reads rounded, not the reference."""
    problem = replace(FORWARD, bias_type="bias")
    for dtype, format_ in (("bf16", BF16), ("fp16", FP16), ("fp32", FP32)):
        inputs = tensors(replace(problem, dtype=dtype), "gfx950", TestData(3.0))
        for values in (inputs.q, inputs.k, inputs.v, inputs.do, inputs.bias):
            assert values is not None
            assert np.array_equal(rounded(values, format_), values)
        assert inputs.q.std() == pytest.approx(3, rel=0.05)
    again, other = (tensors(problem, "gfx950", TestData(seed=seed)) for seed in (0, 1))
    assert np.array_equal(again.q, tensors(problem, "gfx950").q)
    assert not np.array_equal(again.q, other.q)


def test_8_bit_formats_depend_on_the_arch() -> None:
    """Prevents: gfx950's fp8 format used for gfx942, where codes have half the value."""
    assert [formats("fp8bf16", arch)[0].name for arch in ("gfx942", "gfx950")] == [
        "fp8_fnuz",
        "fp8",
    ]
    assert formats("fp8bf16", "gfx942")[1] is BF16


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
