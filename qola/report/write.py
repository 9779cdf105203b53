"""Reads the inputs of a report, and writes its page and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from qola.plan.model import Plan
from qola.report.assemble import make_report
from qola.report.data import LeftOut, Report, ReportError, compare_reports
from qola.report.execution_log import BuildLog, read_spawns, summarize_log, timestamp
from qola.report.library import read_library
from qola.report.page import render
from qola_base.errors import Finding
from qola_base.files import UnfitFileError, check_regular, write_if_changed


def libraries_in(place: Path) -> list[Path]:
    """Return a library, or the libraries of a bundle or directory.

    Raises:
        ReportError: the directory has no libraries.
    """
    if not place.is_dir():
        return [place]
    directory = place / "lib" if (place / "lib").is_dir() else place
    found = sorted(path for path in directory.glob("*.so") if path.is_file())
    if not found:
        expected = "a library, or a bundle: a directory with lib/*.so"
        fix = f"qola build -m MANIFEST -o {place} builds them there"
        raise ReportError(Finding(str(place), "a directory without libraries", expected, fix))
    return found


def read_date(place: Path) -> str:
    """Return the UTC time that a bundle's manifest.json states, "" if it states none.

    Raises:
        ReportError: it is not a bundle's manifest.json.
    """
    path = place / "manifest.json"
    if not path.is_file():
        return ""
    try:
        record = json.loads(_text(path, "a bundle's manifest.json"))
        return timestamp(record.get("generated_at") or "")
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        found, expected = f"not a bundle's manifest.json: {error}", "the file that qola build wrote"
        fix = f"qola build -m MANIFEST -o {place} writes it"
        raise ReportError(Finding(str(path), found, expected, fix)) from None


def read_plan(path: Path) -> Plan:
    """Read plan.json.

    Raises:
        PlanError: the plan of another version, or another file.
        ReportError: the file cannot be read.
    """
    return Plan.from_json(_text(path, "plan.json of the build: the output group plan has it"))


def read_log(path: Path) -> BuildLog:
    """Return the compiles of Bazel's execution log.

    Raises:
        ReportError: another file, or one that cannot be read.
    """
    try:
        check_regular(path)
        return summarize_log(read_spawns(path))
    except (OSError, UnfitFileError, ValueError) as error:
        found, expected = f"not a readable log: {error}", "the file of --execution_log_json_file"
        fix = f"qola build ... --bazel-arg=--execution_log_json_file={path.absolute()}"
        raise ReportError(Finding(str(path), found, expected, fix)) from None


def _text(path: Path, expected: str) -> str:
    try:
        check_regular(path)
        return path.read_text(encoding="utf-8")
    except (OSError, UnfitFileError, ValueError) as error:
        other = str(error) if isinstance(error, UnfitFileError) else "not UTF-8"
        found = getattr(error, "strerror", None) or other
        raise ReportError(Finding(str(path), found, expected)) from None


def write_report(
    output: Path,
    libraries: Sequence[Path],
    plan: Plan | None = None,
    log: Path | None = None,
    left_out: Iterable[LeftOut] | None = None,
    other: Path | None = None,
    *,
    date: str = "",
    command: str = "",
) -> Report:
    """Write a report's page and its JSON, in the same directory.

    Args:
        output: the page, a file that ends in .html.
        plan: the plan of the libraries, None if it is unknown.
        log: Bazel's execution log of the build.
        left_out: kernel instances of the receipts that are not in the plan.
        other: JSON of an earlier report, with which the JSON compares the kernels.
        date: UTC time of the build, used if the log has none.
        command: the command that writes the report.

    Raises:
        ReportError: an input cannot be read, or they do not belong together.
        OSError: the output cannot be written.
    """
    before = None
    if other:
        before = Report.from_json(_text(other, "the JSON that qola report wrote"), str(other))
    build = read_log(log) if log else None
    report = make_report(
        plan,
        [read_library(path) for path in libraries],
        build.compiles if build else None,
        left_out,
        date=(build.start if build else "") or date,
        command=command,
    )
    more = {"comparison": compare_reports(before, report)} if before else {}
    write_if_changed(output, render(report))
    write_if_changed(output.with_suffix(".json"), report.to_json(**more))
    return report
