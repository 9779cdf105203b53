"""Runs the consumer program on the fake HIP runtime; holds the paths of all its files."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfxemu.fake_hip import FakeHip, Launch, read_log
from qola_lab.tests.verify.predict import predict
from qola_lab.tests.verify.table import TABLE, Device, Row, line_of
from tests.library.symbols import of_plan, of_symbol

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
PROGRAM = Path(os.environ["QOLA_TEST_PROGRAM"]).resolve()
BUNDLE = Path(os.environ["QOLA_TEST_BUNDLE"]).resolve()
#: The bundle's libraries built with --@qola//:archs; () if the test has none.
RESTRICTED = tuple(Path(path).resolve() for path in os.environ["QOLA_TEST_RESTRICTED"].split())
PLAN: dict[str, Any] = json.loads(Path(os.environ["QOLA_TEST_PLAN"]).read_text(encoding="utf-8"))
AITER = Path(os.environ["QOLA_TEST_AITER_TREE"])
ROWS = TABLE[os.environ["QOLA_TEST_MANIFEST"]]

#: Identifies a launched kernel: fields of a kernel instance, or digest of a code object.
Identity = tuple[Any, ...]


@dataclass(frozen=True)
class CallResult:
    """The result of a call that the plan can predict."""

    status: float
    identities: list[Identity]


@dataclass(frozen=True)
class Outcome:
    """The result of one call of an entry point."""

    status: float  # the entry point's result
    launches: tuple[Launch, ...]  # launched kernels, in order

    @property
    def result(self) -> CallResult:
        """The part of the outcome that the plan can predict."""
        return CallResult(
            self.status,
            [
                ("module", launch.code_object_sha256)
                if launch.source == "module"
                else of_symbol(launch.kernel)
                for launch in self.launches
            ],
        )


def expected(row: Row) -> CallResult:
    """Return the result that the plan predicts for a row."""
    prediction = predict(PLAN, row.problem, row.device.arch, row.device.cu_count)
    return CallResult(
        prediction.status,
        [
            ("module", planned["sha256"]) if "key" in planned else of_plan(planned)
            for planned in prediction.launches
        ],
    )


@dataclass(frozen=True)
class Run:
    """One run of the program: an outcome for each row, and its standard error."""

    outcomes: tuple[Outcome, ...]
    stderr: str


def run(
    rows: Sequence[Row],
    device: Device,
    *,
    library_dirs: Sequence[Path] = (BUNDLE / "lib",),
    fail: Sequence[str] = (),
    **env: str,
) -> Run:
    """Run the program on rows; it must not crash. `fail` has the format of FAKE_HIP_FAIL."""
    with tempfile.TemporaryDirectory() as scratch:
        table, log = Path(scratch, "table"), Path(scratch, "log")
        table.write_text("".join(f"{line_of(row.problem)}\n" for row in rows), encoding="utf-8")
        hip = FakeHip(FAKE, device.arch, tuple(library_dirs), device.cu_count)
        result = hip.run([PROGRAM, table], log, FAKE_HIP_FAIL=",".join(fail), **env)
        assert result.returncode == 0, result.stderr
        statuses = [float(line) for line in result.stdout.splitlines()]
        launches = read_log(log)
    assert len(statuses) == len(rows)
    # Each row uses a separate stream, numbered from 1.
    by_row: dict[int, list[Launch]] = {number: [] for number in range(1, len(rows) + 1)}
    for launch in launches:
        by_row[launch.stream].append(launch)
    return Run(
        tuple(
            Outcome(status, tuple(by_row[number]))
            for number, status in enumerate(statuses, start=1)
        ),
        result.stderr,
    )


@functools.cache
def outcomes(device: Device) -> dict[Row, Outcome]:
    """Return the outcome of every row of a device, from one run of the program."""
    rows = [row for row in ROWS if row.device == device]
    return dict(zip(rows, run(rows, device).outcomes, strict=True))
