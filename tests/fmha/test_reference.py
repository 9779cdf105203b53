"""Problems, the reference over arrays, and tolerances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qola.fmha import reference
from qola.fmha.problem import ArraysError, Problem, problem
from qola.fmha.validator import Validator
from qola.reference.formats import rounded
from qola.reference.limits import forward_limits
from qola.reference.masks import BOTTOM_RIGHT, Mask
from qola.verify.tensors import arithmetic, formats, tensors

BATCH = problem("bwd", "fp16", rows=5, columns=7, heads=4, heads_k=2, hdim=16, hdim_v=8, batch=2)
GROUP = problem("bwd", "fp16", rows=[3, 0, 4], columns=[6, 5, 1], heads=2, heads_k=1, hdim=16)


def arrays(of: Problem, *names: str, seed: int = 0) -> list[Any]:
    generator = np.random.default_rng(seed)
    shapes = of.shapes() | {"do": of.shapes()["o"]}
    return [generator.normal(size=shapes[name]) for name in names]


def test_a_problem_of_few_words() -> None:
    """Prevents: lengths or heads that are not those that were meant."""
    assert (BATCH.rows, BATCH.columns, BATCH.group) == ((5, 5), (7, 7), False)
    assert (BATCH.nhead_q, BATCH.nhead_k, BATCH.sharing, BATCH.hdim_v) == (4, 2, 2, 8)
    assert BATCH.scale == 0.25
    assert (GROUP.rows, GROUP.columns, GROUP.group, GROUP.batch) == ((3, 0, 4), (6, 5, 1), True, 3)
    assert (
        problem("fwd", "bf16", rows=1, columns=1, heads=1, hdim=8, mask=BOTTOM_RIGHT).mask.right
        == 0
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": [1, 2]},
        {"columns": [3]},
        {"rows": [1, 2], "columns": [3]},
        {"rows": [1, 2], "columns": [3, 4], "batch": 3},
        {"heads_k": 3},
        {"heads_k": 0},
    ],
)
def test_what_is_no_problem(wrong: dict[str, Any]) -> None:
    """Prevents: a kernel that is handed lengths that do not go together."""
    with pytest.raises(ArraysError):
        problem("fwd", "bf16", **{"rows": 1, "columns": 1, "heads": 4, "hdim": 8} | wrong)


def test_shapes_and_operations() -> None:
    """Prevents: arrays of another layout, and TFLOP/s that count products that are not there."""
    assert BATCH.shapes() == {
        "q": (2, 5, 4, 16),
        "k": (2, 7, 2, 16),
        "v": (2, 7, 2, 8),
        "o": (2, 5, 4, 8),
        "lse": (2, 4, 5),
    }
    assert replace(BATCH, order="bhsd").shapes()["k"] == (2, 2, 7, 16)
    assert GROUP.shapes()["q"] == (7, 2, 16)
    assert GROUP.shapes()["lse"] == (2, 7)
    pairs = 2 * 5 * 7
    assert replace(BATCH, direction="fwd").operations() == 2 * pairs * 4 * (16 + 8)
    assert BATCH.operations() == 2 * pairs * 4 * (3 * 16 + 2 * 8)
    causal = replace(BATCH, direction="fwd", mask=Mask("top_left", -1, 0))
    assert causal.operations(seen=True) == 2 * (2 * (1 + 2 + 3 + 4 + 5)) * 4 * (16 + 8)
    assert GROUP.operations() == 2 * (18 + 4) * 2 * 5 * 16


@pytest.mark.parametrize("of", [BATCH, GROUP, replace(BATCH, mask=BOTTOM_RIGHT, soft_cap=2.0)])
def test_gradients_are_those_of_the_forward(of: Problem) -> None:
    """Prevents: a backward over arrays that is of another problem than the forward."""
    q, k, v, do = arrays(of, "q", "k", "v", "do")
    found = reference.backward(of, q, k, v, do)

    def loss(**changes: Any) -> float:
        given = {"q": q, "k": k, "v": v} | changes
        return float((reference.forward(of, **given).o * do).sum())

    heads = of.sharing
    summed = {
        "q": found.dq,
        "k": found.dk.reshape(*k.shape[:-1], -1) if heads == 1 else _summed(found.dk, k.shape),
        "v": _summed(found.dv, v.shape),
    }
    for name, array in (("q", q), ("k", k), ("v", v)):
        step = np.zeros_like(array)
        place = tuple(n // 2 for n in array.shape)
        step[place] = 1e-5
        slope = (loss(**{name: array + step}) - loss(**{name: array - step})) / 2e-5
        assert slope == pytest.approx(summed[name][place], rel=1e-5, abs=1e-8)


def _summed(gradient: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of K or V for its own heads."""
    *before, heads, hdim = shape
    return gradient.reshape(*before, heads, -1, hdim).sum(axis=-2)


def test_both_layouts_and_intermediates() -> None:
    """Prevents: heads taken for rows, and intermediates of another problem."""
    forward = replace(BATCH, direction="fwd")
    q, k, v = arrays(forward, "q", "k", "v")
    found = reference.forward(forward, q, k, v, intermediates=True)
    turned = (np.swapaxes(array, 1, 2) for array in (q, k, v))
    other = reference.forward(replace(forward, order="bhsd"), *turned)
    assert np.array_equal(np.swapaxes(other.o, 1, 2), found.o)
    assert np.array_equal(other.lse, found.lse)
    assert other.steps == ()
    assert [steps.p.shape for steps in found.steps] == [(4, 5, 7)] * 2
    assert np.allclose(found.steps[0].p.sum(axis=2), 1)
    backward = reference.backward(BATCH, q, k, v, np.ones(BATCH.shapes()["o"]), intermediates=True)
    assert [steps.ds.shape for steps in backward.steps] == [(4, 5, 7)] * 2
    assert backward.dk.shape == (2, 7, 4, 16)


def test_every_wrong_array_is_named() -> None:
    """Prevents: arrays of another problem that NumPy broadcasts, or faults told one at a time."""
    q, k, v, do = arrays(BATCH, "q", "k", "v", "do")
    with pytest.raises(ArraysError) as error:
        reference.backward(BATCH, k, q, v, do[:1], slopes=np.ones(4))
    assert [finding.place for finding in error.value.findings] == ["q", "k", "do", "slopes"]
    with pytest.raises(ArraysError, match="left out"):
        reference.forward(replace(BATCH, direction="fwd", bias="alibi"), q, k, v)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp8bf16"])
@pytest.mark.parametrize("hdim", [32, 128, 256])
def test_tolerances_are_no_narrower_than_limits(dtype: str, hdim: int) -> None:
    """Prevents: a right kernel that one tolerance for all elements calls wrong."""
    of = problem("fwd", dtype, rows=24, columns=300, heads=2, hdim=hdim, lse=True)
    given = tensors(of, "gfx950")
    largest = float(np.abs(given.v).max())
    validator = Validator.of(dtype, largest)
    for sequence in given.sequences(of):
        limit, _ = forward_limits(of.attention, sequence, arithmetic(of, "gfx950", 16))
        o = reference.forward(of, given.q, given.k, given.v).o[0]
        allowed = validator.atol + validator.rtol * np.abs(o)
        assert np.all(limit.likely <= allowed)
        # And not so wide that it says nothing.
        assert validator.atol < 40 * float(np.max(limit.worst))


def test_what_a_validator_says() -> None:
    """Prevents: a wrong element, or one that is not a number, among thousands of right ones."""
    of = problem("fwd", "fp16", rows=16, columns=32, heads=1, hdim=64)
    given = tensors(of, "gfx950")
    o = reference.forward(of, given.q, given.k, given.v).o
    validator = Validator.of("fp16")
    check = validator.check(rounded(o, formats("fp16", "gfx950")[1]).astype(np.float16), o)
    assert check.passed
    assert check.compared == o.size
    assert check.worst < 0.5
    for value in (o[0, 3, 0, 5] + 0.1, np.nan, np.inf):
        wrong = o.copy()
        wrong[0, 3, 0, 5] = value
        found = validator.check(wrong, o)
        assert (found.over, found.place, found.passed) == (1, (0, 3, 0, 5), False)
    with pytest.raises(ValueError, match="shape"):
        validator.check(o[0], o)
    infinite = np.full((2,), -np.inf)
    assert validator.check(infinite, infinite).passed


@pytest.mark.parametrize("order", ["bshd", "bhsd"])
@pytest.mark.parametrize("rope", ["half", "inter"])
def test_rows_are_appended_and_rotated(rope: str, order: str) -> None:
    """Prevents: rows in another place, or turned by another angle than their position's."""
    sizes: dict[str, Any] = {"rows": 2, "columns": [7, 5], "heads": 4, "heads_k": 2, "hdim": 24}
    of = problem("fwd_appendkv", "fp16", **sizes, order=order, new=3, rope=rope, rotary=16)
    assert (of.group, of.batch, of.columns) == (False, 2, (7, 5))
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=of.shapes()[name]) for name in ("q", "k", "v"))
    new = [rng.normal(size=replace(of, columns=(3, 3)).shapes()[name]) for name in ("k", "v")]
    with pytest.raises(ArraysError) as error:
        reference.append_kv(of, q, k, v, *new)
    assert [finding.place for finding in error.value.findings] == ["cos", "sin"]
    angles = rng.uniform(0, 7, size=(7, 8))
    found = reference.append_kv(of, q, k, v, *new, cos=np.cos(angles), sin=np.sin(angles))
    q, k, v, *new = (a if order == "bshd" else a.swapaxes(1, 2) for a in (q, k, v, *new))
    got = [a if order == "bshd" else a.swapaxes(1, 2) for a in (found.q, found.k, found.v)]
    left, right = (
        (slice(0, 8), slice(8, 16)) if rope == "half" else (slice(0, 16, 2), slice(1, 16, 2))
    )
    for one, before in enumerate((4, 2)):
        assert np.array_equal(got[1][one, :before], k[one, :before])
        assert np.array_equal(got[2][one, before : before + 3], new[1][one])
        assert not got[1][one, before + 3 :].any()
        turned = np.exp(1j * angles[before : before + 3])[:, None]
        for result, row, by in (
            (got[1][one, before : before + 3], new[0][one], turned),
            # Without a mask, all rows of Q stand where the first new one of K does.
            (got[0][one], q[one], turned[:1]),
        ):
            numbers = (row[..., left] + 1j * row[..., right]) * by
            assert np.allclose(result[..., left], numbers.real)
            assert np.allclose(result[..., right], numbers.imag)
            assert np.array_equal(result[..., 16:], row[..., 16:])
