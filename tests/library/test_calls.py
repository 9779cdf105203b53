"""Compare the C functions with the C++ functions, for the problems of the consumer's table."""

from __future__ import annotations

import pytest

from qola_lab.tests.verify.run_consumer import PLAN, outcomes
from qola_lab.tests.verify.table import GFX950, Row
from tests.library.run_calls import CALL_ROWS, call, calls

OK = 0


@pytest.mark.parametrize("row", CALL_ROWS, ids=lambda row: row.name)
def test_launches_equal_those_of_the_cpp_function(row: Row) -> None:
    """Prevents: a field of the C API reaches AITER as another field, or not at all."""
    answer, launches = calls(row.device)[row]
    outcome = outcomes(row.device)[row]
    assert answer["status"] == outcome.status, answer
    assert [(x.kernel, x.grid, x.block, x.code_object_sha256) for x in launches] == [
        (x.kernel, x.grid, x.block, x.code_object_sha256) for x in outcome.launches
    ]


@pytest.mark.parametrize("row", CALL_ROWS, ids=lambda row: row.name)
def test_find_names_the_launched_kernels(row: Row) -> None:
    """Prevents: `_find` names another kernel than the call launches, or launches a kernel."""
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
    """Prevents: the library lists kernels that it does not have."""
    kernels, _ = call([], GFX950)
    for direction, names in kernels.items():
        module = next(m for m in PLAN["modules"] if m["name"] == f"libmha_{direction}")
        module_kernels = [PLAN["kernels"][index] for index in module["kernels"]]
        planned = [kernel["name"] for kernel in module_kernels if kernel["direction"] == direction]
        assert names == planned + [code_object["key"] for code_object in module["code_objects"]]
        assert names
