"""Run programs that call the C functions on the fake HIP runtime."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gfxemu.fake_hip import FakeHip, Launch, read_log
from qola_lab.tests.verify.run_consumer import BUNDLE, FAKE, PLAN, ROWS
from qola_lab.tests.verify.table import Device, Row, line_of

HERE = Path(__file__).resolve().parent
HEADER = BUNDLE / "include/qola_c.h"
NAMESPACE: str = PLAN["namespace"]
#: The bundle of the manifest's lazy libraries; set only for some tests.
LAZY = Path(os.environ.get("QOLA_TEST_LAZY", ".")).resolve()
#: Rows for C callers: v3_api_check queries exist only in C++.
CALL_ROWS = [row for row in ROWS if not row.problem.v3_api_check]


def python(
    arguments: Sequence[str | Path], device: Device, log: Path, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run Python on a device, with the import path of this process."""
    hip = FakeHip(FAKE, device.arch, (), device.cu_count)
    path = os.pathsep.join(sys.path)
    return hip.run([sys.executable, *arguments], log, PYTHONPATH=path, **env)


def run_table(
    rows: Sequence[Row], device: Device, bundle: Path, log: Path, **env: str
) -> tuple[dict[str, list[str]], list[dict[str, Any]], str]:
    """Run rows with tests/library/calls.py; return its kernels, its answers and standard error."""
    table = log.with_suffix(".table")
    table.write_text("".join(f"{line_of(row.problem)}\n" for row in rows), encoding="utf-8")
    program: list[str | Path] = ["-m", "tests.library.calls", bundle, NAMESPACE, HEADER, table]
    result = python(program, device, log, **env)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    kernels, *answers = map(json.loads, lines)
    assert len(answers) == len(rows)
    return kernels, answers, result.stderr


def call(
    rows: Sequence[Row], device: Device, bundle: Path = BUNDLE, **env: str
) -> tuple[dict[str, list[str]], list[tuple[dict[str, Any], list[Launch]]]]:
    """Run rows as run_table; return the kernels, and answer and launches per row."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "log")
        kernels, answers, _ = run_table(rows, device, bundle, log, **env)
        launches = read_log(log)
    row_launches: list[list[Launch]] = [[] for _ in rows]
    for launch in launches:
        row_launches[launch.stream - 1].append(launch)
    return kernels, list(zip(answers, row_launches, strict=True))


@functools.cache
def calls(device: Device) -> dict[Row, tuple[dict[str, Any], list[Launch]]]:
    """Return answer and launches of every row of a device in CALL_ROWS."""
    rows = [row for row in CALL_ROWS if row.device == device]
    return dict(zip(rows, call(rows, device)[1], strict=True))
