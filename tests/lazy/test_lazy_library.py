"""Lazy libraries of the tests' manifest against the full ones, on the fake HIP runtime."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.consumer.run_consumer import PLAN, ROWS, Outcome, Run, devices, outcomes, run
from tests.consumer.table import GFX942, Device, Row
from tests.lazy import sweep
from tests.runtime.lazy import sdk_compiler

LAZY = Path(os.environ["QOLA_TEST_LAZY"], "manifest.json").resolve().parent
NEVER = {"QOLA_LAZY": "never"}
UNAVAILABLE = -4.0

#: A problem whose kernel compiles in seconds, and the same backward.
FORWARD = next(
    row
    for row in ROWS
    if row.device == GFX942 and row.problem.direction == "fwd" and outcomes(GFX942)[row].launches
)
BACKWARD = next(
    row
    for row in ROWS
    if row.device == GFX942 and row.problem.direction == "bwd" and outcomes(GFX942)[row].launches
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A copy of the lazy bundle without its pack."""
    path = tmp_path / "bundle"
    for part in ("lib", "share", "bin"):
        shutil.copytree(LAZY / part, path / part, copy_function=shutil.copyfile)
    shutil.rmtree(path / "share/qola/ci/packs")
    (path / "bin/qola-kernels").chmod(0o755)
    return path


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """The SDK's compiler, with a log of the kernels it compiles beside it."""
    path = tmp_path / "clang++"
    path.write_text(
        "#!/bin/bash\n"
        f'case " $* " in *" -shared "*) echo "$*" >> {path}.log;; esac\n'
        f'exec {" ".join(sdk_compiler())} "$@"\n'
    )
    path.chmod(0o755)
    return path


def compiles(compiler: Path) -> list[str]:
    log = Path(f"{compiler}.log")
    return log.read_text().splitlines() if log.exists() else []


def lazily(rows: Sequence[Row], device: Device, bundle: Path, **env: str) -> Run:
    """Hand rows to the program with the lazy libraries of a bundle."""
    return run(rows, device, library_dirs=(bundle / "lib",), **env)


def launched(outcomes: Iterable[Outcome]) -> list[object]:
    """What launches have in common that differ in addresses alone."""
    return [
        (
            outcome.status,
            [(o.kernel, o.arch, o.grid, o.block, o.code_object_sha256) for o in outcome.launches],
        )
        for outcome in outcomes
    ]


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_a_pack_has_what_the_full_library_has(device: Device, tmp_path: Path) -> None:
    """Prevents: another kernel, or other code of it, where it comes from a pack."""
    rows = [row for row in ROWS if row.device == device]
    result = lazily(rows, device, LAZY, QOLA_CACHE=str(tmp_path / "cache"), **NEVER)
    assert launched(result.outcomes) == launched(outcomes(device)[row] for row in rows)
    assert result.stderr == ""


def test_a_random_sweep_is_answered_alike(tmp_path: Path) -> None:
    """Prevents: a stub that leads to another kernel than the dispatch asked for."""
    rows = list(sweep.rows(10_000))
    kernels = set()
    for device in devices():
        own = [row for row in rows if row.device == device]
        full = run(own, device).outcomes
        lazy = lazily(own, device, LAZY, QOLA_CACHE=str(tmp_path / "cache"), **NEVER).outcomes
        assert launched(lazy) == launched(full)
        kernels |= {launch.kernel for outcome in full for launch in outcome.launches}
    assert len(kernels) > 0.8 * len(PLAN["kernels"]), "the sweep misses most kernels"


@pytest.mark.parametrize("row", [FORWARD, BACKWARD], ids=lambda row: row.problem.direction)
def test_a_first_call_compiles_what_the_full_library_has(
    row: Row, bundle: Path, compiler: Path, tmp_path: Path
) -> None:
    """Prevents: a compile on the user's machine that makes something else than the build does."""
    env = {"QOLA_CACHE": str(tmp_path / "cache"), "QOLA_COMPILER": str(compiler)}
    expected = outcomes(row.device)[row]
    first = lazily([row], row.device, bundle, QOLA_VERBOSE="1", **env)
    assert launched(first.outcomes) == launched([expected])
    assert len(compiles(compiler)) == len(expected.launches)
    second = lazily([row], row.device, bundle, QOLA_VERBOSE="1", **env)
    assert launched(second.outcomes) == launched([expected])
    assert len(compiles(compiler)) == len(expected.launches), "the second process compiled"
    times = [float(ms) for ms in re.findall(r", ([\d.]+) ms$", second.stderr, re.MULTILINE)]
    assert len(times) == len(expected.launches)
    print(f"loads: {times} ms")
    assert max(times) < 50, "ten times what is promised, for a machine that is busy"


def test_without_kernels_a_call_says_so(bundle: Path, tmp_path: Path) -> None:
    """Prevents: a crash, silence, or "no kernel", where a kernel exists but is not at hand."""
    nobody = next(row for row in ROWS if row.device == GFX942 and outcomes(GFX942)[row].status < 0)
    rows = [FORWARD, BACKWARD, nobody, FORWARD]
    result = lazily(rows, GFX942, bundle, QOLA_CACHE=str(tmp_path / "cache"), **NEVER)
    assert [outcome.status for outcome in result.outcomes] == [
        UNAVAILABLE,
        UNAVAILABLE,
        outcomes(GFX942)[nobody].status,
        UNAVAILABLE,
    ]
    assert not [launch for outcome in result.outcomes for launch in outcome.launches]
    lines = result.stderr.splitlines()
    assert len(lines) == 2, "each kernel once"
    assert all("QOLA_LAZY=never" in line and "qola kernels build" in line for line in lines)


def test_what_one_machine_records_another_has(
    bundle: Path, compiler: Path, tmp_path: Path
) -> None:
    """Prevents: production machines that compile, although CI has seen what they need."""
    record = tmp_path / "asked"
    rows = [FORWARD, FORWARD]
    lazily(rows, GFX942, bundle, QOLA_CACHE="/nowhere", QOLA_RECORD=str(record), **NEVER)
    (line,) = record.read_text().splitlines()
    assert re.fullmatch(r"fmha_fwd_\w+ gfx942", line)
    import subprocess

    pack = bundle / "share/qola/ci/packs/recorded.qpack"
    pack.parent.mkdir()
    made = subprocess.run(
        [bundle / "bin/qola-kernels", "build", "--record", record, "--output", pack],
        env={"QOLA_CACHE": str(tmp_path / "cache"), "QOLA_COMPILER": str(compiler)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    result = lazily(rows, GFX942, bundle, QOLA_CACHE=str(tmp_path / "empty"), **NEVER)
    assert launched(result.outcomes) == launched([outcomes(GFX942)[FORWARD]] * 2)
