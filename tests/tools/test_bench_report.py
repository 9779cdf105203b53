"""bench/run's table and JSON: ratios the right way round, losses said, one schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bench import main, report, rows
from bench.errors import BenchError

MEASURED = {
    "ours": {
        "kernel_fwd_seconds": 10.0,
        "noop_seconds": 0.5,
        "library_fwd_bytes_per_kernel": 50_000.0,
        "library_fwd_bytes": 1_000_000.0,
    },
    "aiter": {
        "kernel_fwd_seconds": 21.0,
        "noop_seconds": 0.1,
        "library_fwd_bytes_per_kernel": 100_000.0,
    },
}


def found(measured: dict[str, dict[str, float]] = MEASURED) -> dict[str, Any]:
    return report.report(
        rows.rows(rows.choose([]), measured),
        measured,
        command="bench/run",
        workload={
            "manifest": "bench/workloads/default.toml",
            "archs": ["gfx950"],
            "kernels": {"fwd": 20},
            "kernels_with_variant": {"fwd": 22},
        },
        machine={"cores": 2, "memory_bytes": 24 * 2**30},
        versions={"qola": "0.1.0", "clang": "22.1.8"},
        jobs=2,
        notes=["A note."],
    )


def test_ratios_are_theirs_by_ours() -> None:
    """Prevents: a ratio upside down, or made up where one side is missing; a loss unsaid."""
    verdicts = {row["name"]: row["verdict"] for row in found()["rows"]}
    assert {name: (ratio, verdicts[name]) for name, ratio in found()["ratios"].items()} == {
        "kernel forward vs AITER with ninja": (2.1, "ours is faster"),
        "no-op vs AITER with ninja": (0.2, "ours is slower"),
        "library size forward vs AITER with ninja": (2.0, "ours is smaller"),
    }
    assert len(verdicts) == 3
    assert "ours is slower" in report.text(found())
    assert "ours is slower" in report.markdown(found())


def test_json_follows_its_schema(repo_root: Path) -> None:
    """Prevents: JSON that its readers do not understand; a name or a path of the machine in it."""
    schema = json.loads((repo_root / "bench/report.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(json.dumps(found())), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**found(), "machine": {"cores": 2, "host": "x"}}, schema)


def test_measurement_of_nothing_is_an_error() -> None:
    """Prevents: an endless speed-up out of a measurement that failed."""
    measured = {**MEASURED, "ours": {**MEASURED["ours"], "kernel_fwd_seconds": 0.0}}
    with pytest.raises(BenchError, match="above 0"):
        rows.rows(rows.choose([]), measured)


def test_rows_per_kernel_begin_with_kernel() -> None:
    """Prevents: programs that look for the rows per kernel finding none, or others."""
    names = [rows.row_name(kind, contender) for kind, contender in rows.choose([])]
    assert [name for name in names if name.startswith("kernel")] == [
        "kernel forward vs AITER with ninja",
        "kernel forward vs CK with CMake",
        "kernel backward vs AITER with ninja",
        "kernel backward vs CK with CMake",
    ]
    assert len(set(names)) == len(names)


def test_only_takes_what_rows_need() -> None:
    """Prevents: --only measuring what nobody asked for, or leaving out what a row needs."""
    assert rows.steps(rows.choose(["no-op vs AITER"])) == {
        "ours": {"cold", "noop"},
        "aiter": {"cold", "noop"},
    }
    assert rows.steps(rows.choose(["warm rebuild elsewhere, disk cache vs CK"])) == {
        "ours": {"cold", "disk"},
        "cmake": {"cold"},
    }


def test_unknown_row_is_an_error_that_names_the_rows() -> None:
    """Prevents: a misspelt --only that measures nothing, for minutes."""
    with pytest.raises(BenchError, match="one-variant change vs CK with CMake"):
        rows.choose(["kernels"])


def test_table_has_a_line_per_row() -> None:
    """Prevents: Markdown whose columns do not line up with its head."""
    lines = [line for line in report.markdown(found()).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 3
    assert {line.count("|") for line in lines} == {6}
    assert "| no-op vs AITER with ninja | 0.50 s | 0.10 s | 0.20 | ours is slower |" in lines


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 99, "rows": []}'])
def test_other_files_are_no_report(text: str, tmp_path: Path) -> None:
    """Prevents: --from failing with a traceback, or printing a table of something else."""
    file = tmp_path / "x.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BenchError, match="--from"):
        main.read_report(file)


def test_report_of_a_file_is_the_one_written(tmp_path: Path) -> None:
    """Prevents: a table made later from the JSON that differs from the one of the run."""
    file = tmp_path / "x.json"
    file.write_text(json.dumps(found()), encoding="utf-8")
    assert report.text(main.read_report(file)) == report.text(found())
