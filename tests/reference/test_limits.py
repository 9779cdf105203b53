"""Limits: above the errors of a right kernel, below those of a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qola.reference.attention import (
    Attention,
    Forward,
    Sequence,
    backward,
    forward,
    gradients,
)
from qola.reference.dropout import Dropout
from qola.reference.formats import BF16, F64, FP16, FP32, Rounding, rounded
from qola.reference.limits import Arithmetic, backward_limits, forward_limits
from qola.reference.masks import BOTTOM_RIGHT, TOP_LEFT, Mask
from tests.reference.problems import masks, sequence
from tests.reference.rounding_kernel import RIGHT, Faults, run_backward, run_forward

FORMATS = {"bf16": BF16, "fp16": FP16, "fp32": FP32}


def share(found: F64, exact: F64, limit: F64) -> float:
    """The largest error, as a share of its limit; infinite where one value is and one is not."""
    finite = np.isfinite(exact)
    if not np.array_equal(finite, np.isfinite(found)):
        return float("inf")
    error = np.abs(np.where(finite, found, 0.0) - np.where(finite, exact, 0.0))
    return float(np.max(error / limit, initial=0.0))


@dataclass(frozen=True)
class Case:
    """A problem, and what the reference says of it."""

    attention: Attention
    of: Sequence
    do: F64
    arithmetic: Arithmetic

    def forward_shares(
        self, attention: Attention | None = None, faults: Faults = RIGHT, of: Sequence | None = None
    ) -> dict[str, float]:
        """Of each result of a forward kernel that perhaps computes something else."""
        got = run_forward(attention or self.attention, of or self.of, self.arithmetic, faults)
        exact = forward(self.attention, self.of)
        o, lse = forward_limits(self.attention, self.of, self.arithmetic)
        return {"o": share(got.o, exact.o, o), "lse": share(got.lse, exact.lse, lse)}

    def left(self) -> Forward:
        """What a forward kernel left."""
        exact = forward(self.attention, self.of)
        return Forward(rounded(exact.o, self.arithmetic.out), rounded(exact.lse, FP32))

    def limits(self, arithmetic: Arithmetic | None = None) -> dict[str, F64]:
        """Of the gradients."""
        left = self.left()
        steps = gradients(self.attention, self.of, self.do, left.o, left.lse)
        return backward_limits(steps, left.o, left.lse, arithmetic or self.arithmetic)

    def backward_shares(
        self, attention: Attention | None = None, faults: Faults = RIGHT
    ) -> dict[str, float]:
        """Of each result of a backward kernel that perhaps computes something else."""
        left, attention = self.left(), attention or self.attention
        got = run_backward(attention, self.of, self.do, left, self.arithmetic, faults)
        exact = backward(self.attention, self.of, self.do, left.o, left.lse)
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
    to = FORMATS[name]
    of = sequence(generator, rows, columns, 4, 2, hdim, hdim, to)
    of = replace(of, q=rounded(of.q * magnitude, to))
    if more.pop("bias", False):
        of = replace(of, bias=rounded(generator.normal(size=(4, rows, columns)), to))
    if more.pop("alibi", False):
        of = replace(of, alibi_slopes=rounded(0.5 ** np.arange(1, 5), FP32))
    do = rounded(generator.normal(size=(rows, 4, hdim)), to)
    scale = float(np.float32(hdim**-0.5))
    arithmetic = Arithmetic(to, to, rounding, out_rounding, tile)
    return Case(Attention(scale, mask or Mask(), **more), of, do, arithmetic)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows, columns = draw(st.integers(1, 130)), draw(st.integers(1, 300))
    name = draw(st.sampled_from(["bf16", "fp16", "fp32"]))
    ways: list[Rounding] = ["nearest_even"]
    if name != "fp32":
        ways.append("toward_zero")
    drop = draw(st.sampled_from([0.0, 0.2, 0.8]))
    return case(
        np.random.default_rng(draw(st.integers(0, 2**32))),
        rows,
        columns,
        name,
        draw(masks(130)),
        magnitude=draw(st.sampled_from([0.1, 1.0, 4.0])),
        hdim=draw(st.sampled_from([8, 32, 64, 128])),
        rounding=draw(st.sampled_from(ways)),
        out_rounding=draw(st.sampled_from(ways)),
        tile=draw(st.sampled_from([16, 32, 64, 128])),
        logits_soft_cap=draw(st.sampled_from([0.0, 20.0])),
        dropout=Dropout(drop, 1, 2) if drop else None,
        bias=draw(st.booleans()),
        alibi=draw(st.booleans()),
    )


@settings(max_examples=25)
@given(cases())
def test_rounding_stays_below_the_limits(problem: Case) -> None:
    """Prevents: a right kernel that fails because of the numbers it was handed."""
    found = problem.forward_shares()
    if not problem.attention.logits_soft_cap:  # no backward of CK's has it
        found |= problem.backward_shares()
    assert max(found.values()) <= 1, found


@pytest.mark.parametrize("seed", range(3))
def test_limits_have_dropouts_factor_of_small_gradients(seed: int) -> None:
    """Prevents: a right kernel that fails because fp16 has no smaller numbers before the factor."""
    generator = np.random.default_rng(seed)
    dropout = Dropout(0.8, 1, 2)
    problem = case(generator, 1, 300, "fp16", magnitude=16, hdim=8, dropout=dropout)
    assert max(problem.backward_shares().values()) <= 1


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_limits_are_no_wider_than_they_have_to_be(name: str) -> None:
    """Prevents: limits that any kernel would meet."""
    generator = np.random.default_rng(8)
    problem = case(generator, 128, 256, name, BOTTOM_RIGHT)
    assert problem.forward_shares()["o"] > 0.2
    assert min(problem.backward_shares().values()) > 0.2


def _with_mask(problem: Case, more: int) -> Attention:
    mask = problem.attention.mask
    return replace(
        problem.attention, mask=replace(mask, window_size_right=mask.window_size_right + more)
    )


def _scaled(problem: Case, by: float) -> Attention:
    return replace(problem.attention, softmax_scale=problem.attention.softmax_scale * by)


EVERY = ("o", "lse", "dq", "dk", "dv")
#: Wrong kernels: what they compute in place of the problem, what is wrong, and where it is seen.
WRONG: dict[str, tuple[Callable[[Case], Attention], Faults, tuple[str, ...]]] = {
    "mask one too far": (lambda p: _with_mask(p, 1), RIGHT, EVERY),
    "mask one too short": (lambda p: _with_mask(p, -1), RIGHT, EVERY),
    "mask from the other corner": (lambda p: replace(p.attention, mask=TOP_LEFT), RIGHT, EVERY),
    "scale of 1 / hdim": (lambda p: _scaled(p, 0.125), RIGHT, EVERY),
    "scale of hdim 72 for 64": (lambda p: _scaled(p, (64 / 72) ** 0.5), RIGHT, EVERY),
    **{
        name: (lambda p: p.attention, faults, seen)
        for name, faults, seen in (
            ("unpadded", Faults(unpadded=True), ("o", "lse")),
            ("a tile without its last column", Faults(lost_columns=1), ("o", "dq")),
            ("LSE to base 2", Faults(lse_base_2=True), ("lse",)),
            ("no rescaling", Faults(no_rescaling=True), ("o", "lse")),
            ("the next head", Faults(next_head=True), EVERY),
            ("no delta", Faults(no_delta=True), ("dq", "dk", "dbias")),
        )
    },
}


@pytest.mark.quick(11)
@pytest.mark.parametrize("name", ["bf16", "fp16"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_kernels_are_above_the_limits(wrong: str, name: str) -> None:
    """Prevents: limits so wide that a wrong kernel passes."""
    changed, faults, seen = WRONG[wrong]
    generator = np.random.default_rng(9)
    for rows, columns in ((50, 80), (130, 210)):
        problem = case(generator, rows, columns, name, BOTTOM_RIGHT)
        attention = changed(problem)
        found = problem.forward_shares(attention, faults)
        found |= problem.backward_shares(attention, faults)
        for result in seen:
            assert found[result] > 1.5, (rows, columns, result, found)


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_key_less_among_many(name: str) -> None:
    """Prevents: a lost key that rounding would hide: each of 1,000 counts for little."""
    problem = case(np.random.default_rng(10), 16, 1000, name)
    fewer = replace(problem.of, k=problem.of.k[:-1], v=problem.of.v[:-1])
    assert problem.forward_shares(of=fewer)["lse"] > 5


@pytest.mark.parametrize(
    ("more", "changed"),
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
def test_wrong_variants_are_above_the_limits(more: dict[str, Any], changed: dict[str, Any]) -> None:
    """Prevents: a bias, dropout or soft cap that a kernel could get wrong unseen."""
    problem = case(np.random.default_rng(11), 64, 128, **more)
    faults = changed.pop("faults", RIGHT)
    attention = replace(problem.attention, **changed)
    assert problem.forward_shares(attention, faults)["o"] > 1.5


def test_what_is_hidden_has_no_limit_to_use_up() -> None:
    """Prevents: a gradient where a key is not seen, below some overall limit."""
    problem = case(np.random.default_rng(12), 20, 30, mask=TOP_LEFT)
    limits = problem.limits()
    hidden = ~problem.attention.mask.allowed(20, 30)
    smallest = BF16.step() + 2.0**-126
    assert np.all(limits["dk"][20:] <= smallest)
    assert np.all(limits["dbias"][:, hidden] <= smallest)


def test_sums_of_dq_in_16_bits_are_wider() -> None:
    """Prevents: assembly kernels that add dQ up in 16 bits, held to those that do not."""
    problem = case(np.random.default_rng(13), 64, 256)
    wide = problem.limits(replace(problem.arithmetic, dq_sum=BF16, tile=64))
    usual = problem.limits()
    assert np.all(wide["dq"] > usual["dq"])
    assert np.array_equal(wide["dk"], usual["dk"])
