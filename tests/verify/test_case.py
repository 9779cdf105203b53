"""Cases: what is kept of a call, and that it is the same again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qola.verify.case import Call, Case, Launch, from_json, settle, to_json
from tests.verify.toys import SAMPLE

LAUNCH = Launch(
    names=("a", "b"),
    symbol="_Z1k",
    code="1234",
    grid=(1, 2, 3),
    block=(256, 1, 1),
    lds=64,
    arguments=bytes(range(24)).hex(),
    addresses=((8, "q_ptr", 16),),
)
CASE = Case("a", "gfx950", (Call(SAMPLE, (LAUNCH,)),), "one fewer", {"1234": "{}"})


def test_cases_are_read_again() -> None:
    """Prevents: a kernel that is tried with something else than its host code launches."""
    refused = Case("b", "gfx942", (Call(SAMPLE, (), "no kernel"),))
    text = to_json([CASE, refused])
    assert from_json(text) == (CASE, refused)
    assert to_json(from_json(text)) == text
    assert from_json(to_json([])) == ()


def test_what_differs_each_time_does_not_count() -> None:
    """Prevents: a kernel that is tried anew because of what lay on a stack."""
    other = "09" + LAUNCH.arguments[2:]
    again = replace(LAUNCH, arguments=other, addresses=(*LAUNCH.addresses, (16, "k_ptr", 3)))
    case = replace(CASE, calls=(Call(SAMPLE, (again,)),))
    assert settle(CASE, CASE) == CASE
    (launch,) = settle(CASE, case).calls[0].launches
    assert launch.arguments == "00" + LAUNCH.arguments[2:]
    assert launch.addresses == LAUNCH.addresses
    assert settle(case, CASE) == settle(CASE, case)
    wider = replace(CASE, calls=(Call(SAMPLE, (replace(LAUNCH, grid=(2, 2, 3)),)),))
    with pytest.raises(ValueError, match="otherwise the second time"):
        settle(CASE, wider)


def test_a_call_brings_its_own_kernels() -> None:
    """Prevents: kernels of all calls sent along with each."""
    two = Case("a", "gfx950", CASE.calls, codes={**CASE.codes, "other": "x"})
    assert two.codes_of(CASE.calls[0]) == dict(CASE.codes)
