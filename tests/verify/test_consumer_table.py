"""Which kernels a program launches through the libraries of a manifest, on the fake HIP runtime."""

from __future__ import annotations

import pytest

from tests.library.symbols import of_plan
from tests.verify.run_consumer import AITER, PLAN, ROWS, expected, outcomes
from tests.verify.table import Row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_launches_what_the_plan_predicts(row: Row) -> None:
    """Prevents: a dispatch that picks another kernel than the plan says, or crashes without one."""
    outcome = outcomes(row.device)[row]
    assert outcome.told == expected(row)
    assert {launch.arch for launch in outcome.launches} <= {row.device.arch}


def test_modules_are_launched_by_the_name_in_their_code_object() -> None:
    """Prevents: an assembly kernel looked up by another's name."""
    files = {c["sha256"]: c["file"] for module in PLAN["modules"] for c in module["code_objects"]}
    for row in ROWS:
        for launch in outcomes(row.device)[row].launches:
            if launch.source == "module":
                code_object = (AITER / files[launch.code_object_sha256]).read_bytes()
                assert f"\0{launch.kernel}.kd\0".encode() in code_object


def test_table_is_worth_its_name() -> None:
    """Prevents: a table that says the same thing often, or never sees a refusal."""
    assert len({row.name for row in ROWS}) == len(ROWS) >= 40
    refused = [row for row in ROWS if expected(row).status < 0]
    assert len(refused) >= 8
    directions = {module["name"] for module in PLAN["modules"]}
    assert {f"libmha_{row.problem.direction}" for row in ROWS} <= directions


def test_identities_tell_kernel_instances_apart() -> None:
    """Prevents: a comparison of kernels that takes one instance for another."""
    identities = [of_plan(kernel) for kernel in PLAN["kernels"]]
    assert len(set(identities)) == len(identities)
