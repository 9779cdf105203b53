"""Cases: what is kept of a call, and that it is the same again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qola.verify.case import Call, Case, Launch, read_json, settle, write_json
from qola.verify.outcome import Outcome
from tests.verify.toys import PASSED, SAMPLE, TRIAL, WRONG

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


def test_cases_and_outcomes_are_read_again(tmp_path: Path) -> None:
    """Prevents: kernels tried with other launches, or judged by other outcomes, than recorded."""
    file = tmp_path / "x.json"
    refused = Case("b", "gfx942", (Call(SAMPLE, (), "no kernel"),))
    trial = replace(TRIAL, verdicts=(WRONG,), findings=("x",), error="y")
    failed = replace(PASSED, trials=(trial,), missing="z")
    for kind, values in ((Case, (CASE, refused)), (Outcome, (PASSED, failed)), (Case, ())):
        write_json(file, values)
        assert repr(read_json(kind, file)) == repr(values)  # NaN is not equal to itself.


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


def test_a_number_is_not_taken_for_an_address() -> None:
    """Prevents: a stride of 0 where a number and a stack's bytes looked like an address once."""
    number = replace(LAUNCH, arguments=LAUNCH.arguments[:40] + "7f540000")
    seen = replace(
        number,
        arguments=number.arguments[:32] + bytes(8).hex(),
        addresses=(*LAUNCH.addresses, (16, "o_ptr", 9)),
    )
    cases = [replace(CASE, calls=(Call(SAMPLE, (launch,)),)) for launch in (number, seen)]
    assert settle(*cases) == settle(*reversed(cases)) == cases[0]


def test_a_call_brings_its_own_kernels() -> None:
    """Prevents: kernels of all calls sent along with each."""
    two = Case("a", "gfx950", CASE.calls, codes={**CASE.codes, "other": "x"})
    assert two.codes_of(CASE.calls[0]) == dict(CASE.codes)
