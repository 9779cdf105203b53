"""Error limits: correct kernels stay below them, wrong kernels exceed them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qola_base.formats import BF16, F64, FP16, FP32, Rounding, rounded
from qola_lab.reference.attention import (
    Attention,
    Forward,
    Sequence,
    backward,
    forward,
)
from qola_lab.reference.dropout import Dropout
from qola_lab.reference.limits import Arithmetic, backward_with_limits, forward_with_limits
from qola_lab.reference.masks import BOTTOM_RIGHT, TOP_LEFT, Mask
from qola_lab.tests.reference.problems import masks, sequence
from qola_lab.tests.reference.rounding_kernel import RIGHT, Faults, run_backward, run_forward

FORMATS = {"bf16": BF16, "fp16": FP16, "fp32": FP32}


def share(found: F64, exact: F64, limit: F64) -> float:
    """Return the largest error divided by its limit; infinite if only one value is finite."""
    finite = np.isfinite(exact)
    if not np.array_equal(finite, np.isfinite(found)):
        return float("inf")
    error = np.abs(np.where(finite, found, 0.0) - np.where(finite, exact, 0.0))
    return float(np.max(error / limit, initial=0.0))


@dataclass(frozen=True)
class Case:
    """A problem with its tensors; compares kernels with the reference."""

    attention: Attention
    tensors: Sequence
    do: F64
    arithmetic: Arithmetic

    def forward_shares(
        self,
        attention: Attention | None = None,
        faults: Faults = RIGHT,
        tensors: Sequence | None = None,
    ) -> dict[str, float]:
        """Return the shares of O and LSE, for a kernel that may compute something else."""
        got = run_forward(
            attention or self.attention, tensors or self.tensors, self.arithmetic, faults
        )
        exact = forward(self.attention, self.tensors)
        _, limits = forward_with_limits(self.attention, self.tensors, self.arithmetic)
        return {
            "o": share(got.o, exact.o, limits.o),
            "lse": share(got.lse, exact.lse, limits.lse),
        }

    def stored(self) -> Forward:
        """Return O and LSE as a forward kernel stores them."""
        exact = forward(self.attention, self.tensors)
        return Forward(rounded(exact.o, self.arithmetic.out), rounded(exact.lse, FP32))

    def limits(self, arithmetic: Arithmetic | None = None) -> dict[str, F64]:
        """Return the limits of the gradients."""
        stored = self.stored()
        sums = self.attention, self.tensors, self.do, stored, arithmetic or self.arithmetic
        return vars(backward_with_limits(*sums)[1])

    def backward_shares(
        self, attention: Attention | None = None, faults: Faults = RIGHT
    ) -> dict[str, float]:
        """Return the shares of the gradients, for a kernel that may compute something else."""
        stored, attention = self.stored(), attention or self.attention
        got = run_backward(attention, self.tensors, self.do, stored, self.arithmetic, faults)
        exact = backward(self.attention, self.tensors, self.do, stored.o, stored.lse)
        return {
            name: share(getattr(got, name), getattr(exact, name), limit)
            for name, limit in self.limits().items()
        }


def case(
    generator: np.random.Generator,
    rows: int,
    columns: int,
    name: str = "bf16",
    mask: Mask | None = None,
    magnitude: float = 1.0,
    hdim: int = 64,
    rounding: Rounding = "nearest_even",
    out_rounding: Rounding = "nearest_even",
    tile: int = 32,
    **more: Any,
) -> Case:
    format_ = FORMATS[name]
    tensors = sequence(generator, rows, columns, 4, 2, hdim, hdim, format_)
    tensors = replace(tensors, q=rounded(tensors.q * magnitude, format_))
    if more.pop("bias", False):
        tensors = replace(tensors, bias=rounded(generator.normal(size=(4, rows, columns)), format_))
    if more.pop("alibi", False):
        tensors = replace(tensors, alibi_slopes=rounded(0.5 ** np.arange(1, 5), FP32))
    do = rounded(generator.normal(size=(rows, 4, hdim)), format_)
    scale = float(np.float32(hdim**-0.5))
    arithmetic = Arithmetic(format_, format_, rounding, out_rounding, tile)
    return Case(Attention(scale, mask or Mask(), **more), tensors, do, arithmetic)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows, columns = draw(st.integers(1, 130)), draw(st.integers(1, 300))
    name = draw(st.sampled_from(["bf16", "fp16", "fp32"]))
    roundings: list[Rounding] = ["nearest_even"]
    if name != "fp32":
        roundings.append("toward_zero")
    drop = draw(st.sampled_from([0.0, 0.2, 0.8]))
    return case(
        np.random.default_rng(draw(st.integers(0, 2**32))),
        rows,
        columns,
        name,
        draw(masks(130)),
        magnitude=draw(st.sampled_from([0.1, 1.0, 4.0])),
        hdim=draw(st.sampled_from([8, 32, 64, 128])),
        rounding=draw(st.sampled_from(roundings)),
        out_rounding=draw(st.sampled_from(roundings)),
        tile=draw(st.sampled_from([16, 32, 64, 128])),
        logits_soft_cap=draw(st.sampled_from([0.0, 20.0])),
        dropout=Dropout(drop, 1, 2) if drop else None,
        bias=draw(st.booleans()),
        alibi=draw(st.booleans()),
    )


@settings(max_examples=25)
@given(cases())
def test_rounding_stays_below_the_limits(problem: Case) -> None:
    """Prevents: a correct kernel that fails for some inputs."""
    found = problem.forward_shares()
    if not problem.attention.logits_soft_cap:  # CK's backward has no soft cap
        found |= problem.backward_shares()
    assert max(found.values()) <= 1, found


@pytest.mark.parametrize("seed", range(3))
def test_limits_scale_small_gradients_by_dropouts_factor(seed: int) -> None:
    """Prevents: a correct kernel that fails since fp16 rounds small gradients before the factor."""
    generator = np.random.default_rng(seed)
    dropout = Dropout(0.8, 1, 2)
    problem = case(generator, 1, 300, "fp16", magnitude=16, hdim=8, dropout=dropout)
    assert max(problem.backward_shares().values()) <= 1


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_limits_are_tight(name: str) -> None:
    """Prevents: limits so wide that every kernel passes."""
    generator = np.random.default_rng(8)
    problem = case(generator, 128, 256, name, BOTTOM_RIGHT)
    assert problem.forward_shares()["o"] > 0.2
    assert min(problem.backward_shares().values()) > 0.2


def _with_mask(problem: Case, shift: int) -> Attention:
    mask = problem.attention.mask
    return replace(
        problem.attention, mask=replace(mask, window_size_right=mask.window_size_right + shift)
    )


def _scaled(problem: Case, factor: float) -> Attention:
    return replace(problem.attention, softmax_scale=problem.attention.softmax_scale * factor)


#: The causal mask and one more key, so that a mask one too short is not one without a limit (-1).
ONE_MORE = Mask("bottom_right", -1, 1)
ALL_RESULTS = ("o", "lse", "dq", "dk", "dv")
#: Wrong kernels: the attention that they compute, their faults, and the affected results.
WRONG: dict[str, tuple[Callable[[Case], Attention], Faults, tuple[str, ...]]] = {
    "mask one too far": (lambda p: _with_mask(p, 1), RIGHT, ALL_RESULTS),
    "mask one too short": (lambda p: _with_mask(p, -1), RIGHT, ALL_RESULTS),
    "mask from the other corner": (
        lambda p: replace(p.attention, mask=TOP_LEFT),
        RIGHT,
        ALL_RESULTS,
    ),
    "scale of 1 / hdim": (lambda p: _scaled(p, 0.125), RIGHT, ALL_RESULTS),
    "scale of hdim 72 for 64": (lambda p: _scaled(p, (64 / 72) ** 0.5), RIGHT, ALL_RESULTS),
    **{
        name: (lambda p: p.attention, faults, affected)
        for name, faults, affected in (
            ("unpadded", Faults(unpadded=True), ("o", "lse")),
            ("a tile without its last column", Faults(lost_columns=1), ("o", "dq")),
            ("LSE to base 2", Faults(lse_base_2=True), ("lse",)),
            ("no rescaling", Faults(no_rescaling=True), ("o", "lse")),
            ("the next head", Faults(next_head=True), ALL_RESULTS),
            ("no delta", Faults(no_delta=True), ("dq", "dk", "dbias")),
        )
    },
}


@pytest.mark.quick(11)
@pytest.mark.parametrize("name", ["bf16", "fp16"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_kernels_are_above_the_limits(wrong: str, name: str) -> None:
    """Prevents: limits so wide that a wrong kernel passes."""
    change_attention, faults, affected = WRONG[wrong]
    generator = np.random.default_rng(9)
    for rows, columns in ((50, 80), (130, 210)):
        problem = case(generator, rows, columns, name, ONE_MORE)
        attention = change_attention(problem)
        found = problem.forward_shares(attention, faults)
        found |= problem.backward_shares(attention, faults)
        for result in affected:
            assert found[result] > 1.5, (rows, columns, result, found)


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_lost_key_among_many(name: str) -> None:
    """Prevents: a lost key among 1,000 that rounding errors hide."""
    problem = case(np.random.default_rng(10), 16, 1000, name)
    fewer = replace(problem.tensors, k=problem.tensors.k[:-1], v=problem.tensors.v[:-1])
    assert problem.forward_shares(tensors=fewer)["lse"] > 5


@pytest.mark.parametrize(
    ("features", "wrong"),
    [
        ({"bias": True}, {"faults": Faults(bias_factor=1.02)}),
        ({"dropout": Dropout(0.2, 1, 2)}, {"dropout": Dropout(0.2, 1, 3)}),
        ({"dropout": Dropout(0.2, 1, 2)}, {"dropout": None}),
        ({"dropout": Dropout(0.2, 1, 2)}, {"dropout": Dropout(0.204, 1, 2)}),
        ({"logits_soft_cap": 5.0}, {"logits_soft_cap": 0.0}),
        ({"logits_soft_cap": 5.0}, {"logits_soft_cap": 5.2}),
    ],
    ids=["bias", "dropout offset", "no dropout", "dropout threshold", "no cap", "another cap"],
)
def test_wrong_variants_are_above_the_limits(
    features: dict[str, Any], wrong: dict[str, Any]
) -> None:
    """Prevents: a kernel that passes with a wrong bias, dropout or soft cap."""
    problem = case(np.random.default_rng(11), 64, 128, **features)
    faults = wrong.get("faults", RIGHT)
    changed = {name: value for name, value in wrong.items() if name != "faults"}
    attention = replace(problem.attention, **changed)
    assert problem.forward_shares(attention, faults)["o"] > 1.5


def test_limits_of_masked_gradients_are_minimal() -> None:
    """Prevents: a nonzero gradient of a masked key that stays below a limit for all elements."""
    problem = case(np.random.default_rng(12), 20, 30, mask=TOP_LEFT)
    limits = problem.limits()
    hidden = ~problem.attention.mask.allowed(20, 30)
    smallest = BF16.step() + 2.0**-126
    assert np.all(limits["dk"][20:] <= smallest)
    assert np.all(limits["dbias"][:, hidden] <= smallest)


def test_limits_of_16_bit_sums_of_dq_are_wider() -> None:
    """Prevents: assembly kernels that sum dQ in 16 bits, compared with limits of float sums."""
    problem = case(np.random.default_rng(13), 64, 256)
    limits_16_bit = problem.limits(replace(problem.arithmetic, dq_sum=BF16, tile=64))
    limits_float = problem.limits()
    assert np.all(limits_16_bit["dq"] > limits_float["dq"])
    assert np.array_equal(limits_16_bit["dk"], limits_float["dk"])
