"""The C functions against the C++ ones, for the problems of the consumer's table."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.c_api.run_calls import LAZY, call, calls
from tests.consumer.predict import predict
from tests.consumer.run_consumer import PLAN, ROWS, outcomes
from tests.consumer.table import GFX950, Row

OK, UNAVAILABLE = 0, -4
ASKED = [row for row in ROWS if not row.problem.v3_api_check]


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


def test_a_lazy_library_finds_without_kernels(tmp_path: Path) -> None:
    """Prevents: a lazy library that has to compile a kernel to say which one it is."""
    env = {"QOLA_LAZY": "never", "QOLA_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    rows = [row for row in ASKED if row.device == GFX950]
    _, answers = call(rows, GFX950, LAZY, **env)
    lazy = 0
    for row, (answer, launches) in zip(rows, answers, strict=True):
        predicted = predict(PLAN, row.problem, row.device.arch, row.device.cu_count)
        assert answer["find"] == predicted.status, answer
        full = calls(row.device)[row][0]
        assert answer["workspace"] == full["workspace"]
        stages = zip(answer["stages"], full["stages"], predicted.launches, strict=True)
        for stage, of_full, planned in stages:
            if stage["assembly"]:
                assert stage == of_full
            else:
                assert stage == {"kernel": planned["name"], "symbol": None, "assembly": 0}
        # Nothing is launched where one of the kernels is missing.
        missing = any(not stage["assembly"] for stage in answer["stages"])
        if missing:
            lazy += 1
            assert (answer["prepared"], answer["status"]) == (UNAVAILABLE, UNAVAILABLE)
            assert launches == []
            assert answer["error"]
        else:
            assert (answer["prepared"], answer["status"]) == (predicted.status,) * 2
    assert lazy > 3


def test_the_bundle_has_the_header() -> None:
    """Prevents: a bundle without the C header, or one that needs a header which is not there."""
    for bundle in (LAZY, Path(os.environ["QOLA_TEST_BUNDLE"]).resolve()):
        assert (bundle / "include/qola_c.h").is_file()
        assert (bundle / "include/qola_config.h").is_file()
        sbom = json.loads((bundle / "sbom.spdx.json").read_text(encoding="utf-8"))
        assert "./include/qola_c.h" in [file["fileName"] for file in sbom["files"]]
