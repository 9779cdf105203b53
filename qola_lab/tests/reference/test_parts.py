"""The reference computes a sequence in parts: results are those of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from qola_base.formats import BF16, F64
from qola_lab.reference import attention as reference
from qola_lab.reference.attention import Attention, Forward, Sequence
from qola_lab.reference.blas import _openblas, one_thread
from qola_lab.reference.limits import Arithmetic, backward_with_limits, forward_with_limits
from qola_lab.tests.reference.problems import problems

ARITHMETIC = Arithmetic(BF16, BF16)


def everything(attention: Attention, tensors_: Sequence) -> dict[str, F64]:
    """Return all results and limits of a forward and a backward, by name."""
    shape = len(tensors_.q), tensors_.heads, tensors_.v.shape[2]
    do = np.random.default_rng(1).normal(size=shape)
    exact, limits = forward_with_limits(attention, tensors_, ARITHMETIC)
    left = Forward(exact.o, exact.lse)
    gradients, more = backward_with_limits(attention, tensors_, do, left, ARITHMETIC)
    named = {"exact": exact, "limits": limits, "gradients": gradients, "more": more}
    return {f"{kind} {name}": x for kind, one in named.items() for name, x in vars(one).items()}


@settings(max_examples=40, deadline=None)
@given(problems(longest=70))
def test_parts_give_the_results_of_the_whole(problem: tuple[Attention, Sequence]) -> None:
    """Prevents: a part with the mask, bias, dropout or head of another one."""
    before = reference._TOGETHER
    whole = everything(*problem)
    try:
        # Part sizes in elements of P: 32 rows of a head, a head, and some heads.
        for size in (1, 70 * 70, 3 * 70 * 70):
            reference._TOGETHER = size
            for name, values in everything(*problem).items():
                assert np.allclose(values, whole[name], rtol=1e-9, atol=1e-13), (size, name)
    finally:
        reference._TOGETHER = before


def test_products_take_one_thread() -> None:
    """Prevents: threads of BLAS that spin, and double the CPU time of each process."""
    found = _openblas()
    if found is None:
        pytest.skip("NumPy has another BLAS than OpenBLAS")
    get, set_ = found
    before = get()
    try:
        set_(2)
        with one_thread():
            assert get() == 1
        assert get() == 2
    finally:
        set_(before)
