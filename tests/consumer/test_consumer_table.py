"""Which kernels a program launches through the libraries of a manifest, on the fake HIP runtime."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.consumer.predict import predict
from tests.consumer.table import TABLE, Row, line_of
from tests.fake_hip.run_on_fake_hip import FakeHip, Launch, read_log
from tests.library.symbols import of_plan, of_symbol

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
PROGRAM = Path(os.environ["QOLA_TEST_PROGRAM"]).resolve()
LIBRARIES = [Path(path).resolve() for path in os.environ["QOLA_TEST_LIBRARIES"].split()]
PLAN: dict[str, Any] = json.loads(Path(os.environ["QOLA_TEST_PLAN"]).read_text(encoding="utf-8"))
AITER = Path(os.environ["QOLA_TEST_AITER_TREE"]) / "aiter_meta"
ROWS = TABLE[os.environ["QOLA_TEST_MANIFEST"]]


@dataclass(frozen=True)
class Outcome:
    """What one call of an entry point did.

    Attributes:
        status: its result.
        launches: the kernels it launched, in order.
    """

    status: float
    launches: tuple[Launch, ...]


def run(rows: tuple[Row, ...], arch: str, **env: str) -> list[Outcome]:
    """Hand rows to the program, on a device of an arch."""
    with tempfile.TemporaryDirectory() as scratch:
        table, log = Path(scratch, "table"), Path(scratch, "log")
        table.write_text("".join(f"{line_of(row.problem)}\n" for row in rows), encoding="utf-8")
        hip = FakeHip(FAKE, arch, tuple(library.parent for library in LIBRARIES))
        result = hip.run([PROGRAM, table], log, **env)
        assert result.returncode == 0, result.stderr
        statuses = [float(line) for line in result.stdout.splitlines()]
        launches = read_log(log)
    assert len(statuses) == len(rows)
    # Each row has a stream of its own, numbered from 1.
    assert {launch.stream for launch in launches} <= set(range(1, len(rows) + 1))
    return [
        Outcome(status, tuple(launch for launch in launches if launch.stream == number))
        for number, status in enumerate(statuses, start=1)
    ]


@functools.cache
def outcomes(arch: str) -> dict[Row, Outcome]:
    """Outcome of every row on devices of an arch, from one run of the program."""
    rows = tuple(row for row in ROWS if row.arch == arch)
    return dict(zip(rows, run(rows, arch), strict=True))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_launches_what_the_plan_predicts(row: Row) -> None:
    """Prevents: a dispatch that picks another kernel than the plan says, or crashes without one."""
    outcome = outcomes(row.arch)[row]
    assert {launch.arch for launch in outcome.launches} <= {row.arch}
    if row.modules:
        assert outcome.status >= 0
        assert {launch.source for launch in outcome.launches} == {"module"}
        digests = [hashlib.sha256((AITER / path).read_bytes()).hexdigest() for path in row.modules]
        assert [launch.code_object_sha256 for launch in outcome.launches] == digests
        return
    prediction = predict(PLAN, row.problem, row.arch)
    assert outcome.status == prediction.status
    assert {launch.source for launch in outcome.launches} <= {"fatbin"}
    launched = [of_symbol(launch.kernel) for launch in outcome.launches]
    assert launched == [of_plan(kernel) for kernel in prediction.kernels]


def test_table_is_worth_its_name() -> None:
    """Prevents: a table that says the same thing often, or never sees a refusal."""
    assert len({row.name for row in ROWS}) == len(ROWS) >= 40
    predictions = [predict(PLAN, row.problem, row.arch) for row in ROWS if not row.modules]
    refused = [prediction for prediction in predictions if prediction.status < 0]
    assert len(refused) >= 8
    directions = {module["name"] for module in PLAN["modules"]}
    assert {f"libmha_{row.problem.direction}" for row in ROWS} == directions


def test_identities_tell_kernel_instances_apart() -> None:
    """Prevents: a comparison of kernels that takes one instance for another."""
    identities = [of_plan(kernel) for kernel in PLAN["kernels"]]
    assert len(set(identities)) == len(identities)
