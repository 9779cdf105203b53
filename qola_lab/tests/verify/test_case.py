"""Cases: recorded calls, which must not change between recordings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qola_lab.tests.verify.toys import PASSED, SAMPLE, TRIAL, WRONG
from qola_lab.verify.case import Call, Case, Launch, read_json, settle, write_json
from qola_lab.verify.outcome import KernelFault, Outcome

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
    """Prevents: other launches or outcomes after reading a file than those recorded."""
    file = tmp_path / "x.json"
    refused = Case("b", "gfx942", (Call(SAMPLE, (), "no kernel"),))
    trial = replace(
        TRIAL, verdicts=(WRONG,), findings=(KernelFault(("k",), "kind", "x"),), error="y"
    )
    failed = replace(PASSED, trials=(trial,), missing="z")
    for kind, values in ((Case, (CASE, refused)), (Outcome, (PASSED, failed)), (Case, ())):
        write_json(file, values)
        assert repr(read_json(kind, file)) == repr(values)  # NaN is not equal to itself.


def test_known_faults_are_not_part_of_a_case(tmp_path: Path) -> None:
    """Prevents: a kernel emulated again, or a recorded digest outdated, by a new known fault."""
    known = replace(CASE, known={"a": ("forward-fp8-no-lse",)})
    assert known.digest == CASE.digest
    write_json(tmp_path / "x.json", (known,))
    assert read_json(Case, tmp_path / "x.json") == (known,)


def test_recordings_ignore_addresses_and_stack_bytes() -> None:
    """Prevents: a kernel emulated again because stack bytes differ."""
    stack_arguments = "09" + LAUNCH.arguments[2:]
    launch_again = replace(
        LAUNCH, arguments=stack_arguments, addresses=(*LAUNCH.addresses, (16, "k_ptr", 3))
    )
    case = replace(CASE, calls=(Call(SAMPLE, (launch_again,)),))
    assert settle(CASE, CASE) == CASE
    (launch,) = settle(CASE, case).calls[0].launches
    assert launch.arguments == "00" + LAUNCH.arguments[2:]
    assert launch.addresses == LAUNCH.addresses
    assert settle(case, CASE) == settle(CASE, case)
    wider = replace(CASE, calls=(Call(SAMPLE, (replace(LAUNCH, grid=(2, 2, 3)),)),))
    with pytest.raises(ValueError, match="otherwise the second time"):
        settle(CASE, wider)


def test_a_number_is_not_taken_for_an_address() -> None:
    """Prevents: a stride replaced by 0 because stack bytes made it look like an address once."""
    number = replace(LAUNCH, arguments=LAUNCH.arguments[:40] + "7f540000")
    seen = replace(
        number,
        arguments=number.arguments[:32] + bytes(8).hex(),
        addresses=(*LAUNCH.addresses, (16, "o_ptr", 9)),
    )
    cases = [replace(CASE, calls=(Call(SAMPLE, (launch,)),)) for launch in (number, seen)]
    assert settle(*cases) == settle(*reversed(cases)) == cases[0]


def test_a_call_has_only_its_kernels() -> None:
    """Prevents: code of all calls sent along with each call."""
    case = Case("a", "gfx950", CASE.calls, codes={**CASE.codes, "other": "x"})
    assert case.codes_of(CASE.calls[0]) == dict(CASE.codes)
