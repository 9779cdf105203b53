"""Cases: what is kept of a call, and that it is the same again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qola.verify.case import Call, Case, Launch, from_json, settled, to_json
from tests.verify.toys import PROBLEM

LAUNCH = Launch(
    names=("a", "b"),
    symbol="_Z1k",
    code="1234",
    grid=(1, 2, 3),
    block=(256, 1, 1),
    lds=64,
    arguments=bytes(range(24)),
    addresses=((8, "q_ptr", 16),),
)
CASE = Case("a", "gfx950", (Call(PROBLEM, (LAUNCH,)),), "one fewer", {"1234": "{}"})


def test_cases_are_read_again() -> None:
    """Prevents: a kernel that is tried with something else than its host code launches."""
    refused = Case("b", "gfx942", (Call(PROBLEM, (), "no kernel"),))
    text = to_json([CASE, refused])
    assert from_json(text) == [CASE, refused]
    assert to_json(from_json(text)) == text
    assert from_json(to_json([])) == []


def test_what_differs_each_time_does_not_count() -> None:
    """Prevents: a kernel that is tried anew because of what lay on a stack."""
    other = bytes([9, *LAUNCH.arguments[1:]])
    again = replace(LAUNCH, arguments=other, addresses=(*LAUNCH.addresses, (16, "k_ptr", 3)))
    case = replace(CASE, calls=(Call(PROBLEM, (again,)),))
    assert settled(CASE, CASE) == CASE
    (launch,) = settled(CASE, case).calls[0].launches
    assert launch.arguments == bytes([0, *LAUNCH.arguments[1:]])
    assert launch.addresses == LAUNCH.addresses
    assert settled(case, CASE) == settled(CASE, case)
    wider = replace(CASE, calls=(Call(PROBLEM, (replace(LAUNCH, grid=(2, 2, 3)),)),))
    with pytest.raises(ValueError, match="otherwise the second time"):
        settled(CASE, wider)


def test_a_call_brings_its_own_kernels() -> None:
    """Prevents: kernels of all calls sent along with each."""
    two = Case("a", "gfx950", CASE.calls, codes={**CASE.codes, "other": "x"})
    assert two.of_call(CASE.calls[0]) == dict(CASE.codes)
