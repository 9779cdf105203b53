"""`qola compat` on the tree of the wheel, which contains AITER's Composable Kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola_lab.trees.check import Report
from qola_lab.trees.examine import examine


@pytest.fixture(scope="module")
def report(aiter_tree: Path) -> Report:
    return examine(aiter_tree)


def test_nothing_is_broken(report: Report) -> None:
    """Prevents: a check rejects the AITER release that qola builds and tests."""
    broken = [check for check in report.checks if check.status == "broken"]
    assert broken == []
    names = {check.name for check in report.checks}
    sources = {"generated", "macros", "includes", "types", "entries", "v3"}
    assert names == {"tree", "config", "archs", "level", "rendered", *sources}


def test_every_direction_equals_upstream(report: Report) -> None:
    """Prevents: qola reports a wrong level, or generates files that differ from AITER's."""
    levels = {check.of: check.facts for check in report.checks if check.name == "level"}
    assert {name: facts["level"] for name, facts in levels.items()} == dict.fromkeys(
        ("fwd", "fwd_splitkv", "batch_prefill", "bwd"), "filtered"
    )
    assert levels["fwd"]["rows"] == levels["fwd"]["kernels"] == 5480
    assert {600, 700} <= {*levels["bwd"]["receipts"]}
    rendered = {check.of: check.facts for check in report.checks if check.name == "rendered"}
    assert rendered.keys() == levels.keys()
    # Each count: the dispatch and all kernels; for the backward, the kernels of one arch.
    assert {name: facts["files"] for name, facts in rendered.items()} == {
        "fwd": 5481,
        "fwd_splitkv": 1081,
        "batch_prefill": 129,
        "bwd": 8257,
    }


def test_entry_points_and_missing_code_objects_are_reported(report: Report) -> None:
    """Prevents: the report lists functions that the header lacks, or misses absent code objects."""
    facts = {(check.name, check.of): check.facts for check in report.checks}
    functions = facts["entries", "libmha_fwd"]["functions"]
    assert {name: len(parameters) for name, parameters in functions.items()} == {
        "mha_fwd": 12,
        "mha_fwd_splitkv": 7,
        "mha_batch_prefill": 8,
    }
    assert functions["mha_fwd"][0]["type"] == "const aiter::mha_fwd_args&"
    missing = facts["v3", "libmha_bwd"]["gfx950"]["missing"]
    assert len(missing) == 8
    assert all(file.startswith("aiter_meta/hsa/gfx950/fmha_v3_bwd/") for file in missing)
