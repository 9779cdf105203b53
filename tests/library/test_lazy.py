"""The C functions of lazy libraries without available kernels."""

from __future__ import annotations

import json
from pathlib import Path

from qola_lab.tests.verify.predict import predict
from qola_lab.tests.verify.run_consumer import BUNDLE, PLAN
from qola_lab.tests.verify.table import GFX950
from tests.library.run_calls import CALL_ROWS, LAZY, call, calls

UNAVAILABLE = -4


def test_a_lazy_library_finds_without_kernels(tmp_path: Path) -> None:
    """Prevents: a lazy library compiles a kernel to return its name."""
    env = {"QOLA_LAZY": "never", "QOLA_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    rows = [row for row in CALL_ROWS if row.device == GFX950]
    _, answers = call(rows, GFX950, LAZY, **env)
    lazy = 0
    for row, (answer, launches) in zip(rows, answers, strict=True):
        predicted = predict(PLAN, row.problem, row.device.arch, row.device.cu_count)
        assert answer["find"] == predicted.status, answer
        full = calls(row.device)[row][0]
        assert answer["workspace"] == full["workspace"]
        stages = zip(answer["stages"], full["stages"], predicted.launches, strict=True)
        for stage, full_stage, planned in stages:
            if stage["assembly"]:
                assert stage == full_stage
            else:
                assert stage == {"kernel": planned["name"], "symbol": None, "assembly": 0}
        # If a kernel is missing, the call launches nothing.
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
    """Prevents: a bundle lacks the C header, or a header that the C header includes."""
    for bundle in (LAZY, BUNDLE):
        assert (bundle / "include/qola_c.h").is_file()
        assert (bundle / "include/qola_config.h").is_file()
        sbom = json.loads((bundle / "sbom.spdx.json").read_text(encoding="utf-8"))
        assert "./include/qola_c.h" in [file["fileName"] for file in sbom["files"]]
