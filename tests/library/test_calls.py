"""The C functions against the C++ ones, for the problems of the consumer's table."""

from __future__ import annotations

import pytest

from tests.library.run_calls import ASKED, call, calls
from tests.verify.run_consumer import PLAN, outcomes
from tests.verify.table import GFX950, Row

OK = 0


@pytest.mark.parametrize("row", ASKED, ids=lambda row: row.name)
def test_launches_what_the_cpp_function_launches(row: Row) -> None:
    """Prevents: a field that reaches AITER as another one, or not at all."""
    answer, launches = calls(row.device)[row]
    outcome = outcomes(row.device)[row]
    assert answer["status"] == outcome.status, answer
    assert [(x.kernel, x.grid, x.block, x.code_object_sha256) for x in launches] == [
        (x.kernel, x.grid, x.block, x.code_object_sha256) for x in outcome.launches
    ]


@pytest.mark.parametrize("row", ASKED, ids=lambda row: row.name)
def test_finds_what_is_launched(row: Row) -> None:
    """Prevents: an answer that names another kernel than the call launches, or that launches."""
    answer, launches = calls(row.device)[row]
    assert answer["find"] == answer["prepared"] == answer["status"]
    assert [stage["symbol"] for stage in answer["stages"]] == [x.kernel for x in launches]
    assert [stage["assembly"] for stage in answer["stages"]] == [
        int(x.source == "module") for x in launches
    ]
    if answer["find"] == OK:
        assert answer["sized"] == OK
        assert answer["workspace"][0] == answer["workspace"][1]
        assert (answer["workspace"][0] > 0) == (row.problem.direction == "bwd")
    else:
        assert answer["error"] == answer["text"] != ""


def test_names_the_kernels_of_the_plan() -> None:
    """Prevents: a list of kernels that the library does not have."""
    kernels, _ = call([], GFX950)
    for direction, names in kernels.items():
        module = next(m for m in PLAN["modules"] if m["name"] == f"libmha_{direction}")
        own = [PLAN["kernels"][index] for index in module["kernels"]]
        planned = [kernel["name"] for kernel in own if kernel["direction"] == direction]
        assert names == planned + [found["key"] for found in module["code_objects"]]
        assert names
