"""Kernels that a program launches through a manifest's libraries, on the fake HIP runtime."""

from __future__ import annotations

import pytest

from qola_lab.tests.verify.run_consumer import AITER, PLAN, ROWS, expected, outcomes
from qola_lab.tests.verify.table import Row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_launches_what_the_plan_predicts(row: Row) -> None:
    """Prevents: a dispatch that launches another kernel than the plan predicts, or crashes."""
    outcome = outcomes(row.device)[row]
    assert outcome.result == expected(row)
    assert {launch.arch for launch in outcome.launches} <= {row.device.arch}


def test_modules_are_launched_by_the_name_in_their_code_object() -> None:
    """Prevents: an assembly kernel looked up by another kernel's name."""
    files = {c["sha256"]: c["file"] for module in PLAN["modules"] for c in module["code_objects"]}
    for row in ROWS:
        for launch in outcomes(row.device)[row].launches:
            if launch.source == "module":
                code_object = (AITER / files[launch.code_object_sha256]).read_bytes()
                assert f"\0{launch.kernel}.kd\0".encode() in code_object
