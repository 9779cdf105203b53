"""Lazy libraries of the tests' manifest against the full ones, on the fake HIP runtime."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.consumer.run_consumer import PLAN, ROWS, Outcome, Run, devices, outcomes, run
from tests.consumer.table import GFX942, Device, Row
from tests.lazy import sweep
from tests.library.symbols import of_plan
from tests.runtime.sdk import compiler_of

LAZY = Path(os.environ["QOLA_TEST_LAZY"], "manifest.json").resolve().parent
NEVER = {"QOLA_LAZY": "never"}
# Not resolved: the SDK's files may be links out of its directory.
SDK = Path(os.environ["QOLA_TEST_CLANG"]).absolute().parent.parent
UNAVAILABLE = -4.0
PART = 250

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


@dataclass(frozen=True)
class Place:
    """A bundle without a pack, and what compiles for it.

    Attributes:
        bundle: the bundle.
        cache: the cache root.
        compiler: the SDK's compiler, with a log of the kernels it compiles beside it.
    """

    bundle: Path
    cache: Path
    compiler: Path

    @property
    def env(self) -> dict[str, str]:
        """Environment in which kernels are compiled, and said where they came from."""
        return {
            "QOLA_CACHE": str(self.cache),
            "QOLA_COMPILER": str(self.compiler),
            "QOLA_VERBOSE": "1",
        }

    def tool(self, *arguments: str | Path, **env: str) -> None:
        """Run the bundle's program, which has to succeed."""
        command = [self.bundle / "bin/qola-kernels", *arguments]
        made = subprocess.run(
            command, env=self.env | env, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr

    def compiles(self) -> int:
        """Number of kernels compiled so far."""
        log = Path(f"{self.compiler}.log")
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    path = tmp_path_factory.mktemp("place")
    bundle, compiler = path / "bundle", path / "clang++"
    for part in ("lib", "share", "bin"):
        shutil.copytree(LAZY / part, bundle / part, copy_function=shutil.copyfile)
    shutil.rmtree(bundle / "share/qola/ci/packs")
    (bundle / "bin/qola-kernels").chmod(0o755)
    compiler.write_text(
        "#!/bin/bash\n"
        f'case " $* " in *" -shared "*) echo "$*" >> {compiler}.log;; esac\n'
        f'exec {shlex.join(compiler_of(SDK))} "$@"\n'
    )
    compiler.chmod(0o755)
    return Place(bundle, path / "cache", compiler)


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
        # In parts: the fake runtime takes longer for each stream, the more there are.
        for first in range(0, len(own), PART):
            part = own[first : first + PART]
            full = run(part, device).outcomes
            lazy = lazily(part, device, LAZY, QOLA_CACHE=str(tmp_path / "cache"), **NEVER).outcomes
            assert launched(lazy) == launched(full)
            kernels |= {launch.kernel for outcome in full for launch in outcome.launches}
    assert len(kernels) > 0.8 * len(PLAN["kernels"]), "the sweep misses most kernels"


@pytest.mark.parametrize("row", [FORWARD, BACKWARD], ids=lambda row: row.problem.direction)
def test_a_failing_launch_is_a_status(row: Row, tmp_path: Path) -> None:
    """Prevents: an exception in a kernel library that finds no handler and ends the process."""
    env = {"QOLA_CACHE": str(tmp_path / "cache"), **NEVER}
    fail = ["hipLaunchKernel=1"]
    full = run([row, row], GFX942, fail=fail)
    lazy = run([row, row], GFX942, library_dirs=(LAZY / "lib",), fail=fail, **env)
    assert [outcome.status for outcome in full.outcomes] == [-3.0, -3.0]
    assert launched(lazy.outcomes) == launched(full.outcomes)


def test_a_first_call_compiles_what_the_full_library_has(place: Place) -> None:
    """Prevents: a compile on the user's machine that makes something else than the build does."""
    expected = [outcomes(GFX942)[FORWARD]]
    first = lazily([FORWARD], GFX942, place.bundle, **place.env)
    assert launched(first.outcomes) == launched(expected)
    assert place.compiles() == 1
    second = lazily([FORWARD], GFX942, place.bundle, **place.env)
    assert launched(second.outcomes) == launched(expected)
    assert place.compiles() == 1, "the second process compiled"
    print(f"first call:\n{first.stderr}second process:\n{second.stderr}")
    (took,) = re.findall(r", ([\d.]+) ms$", second.stderr, re.MULTILINE)
    assert float(took) < 50, "ten times what is promised, for a machine that is busy"


def test_kernels_of_one_call_come_from_anywhere(place: Place, tmp_path: Path) -> None:
    """Prevents: a call whose kernels are right only where all come from one place."""
    expected = outcomes(GFX942)[BACKWARD]
    assert len(expected.launches) == 3, "before, main and after"
    (main,) = (k["name"] for k in PLAN["kernels"] if of_plan(k) == expected.told.identities[1])
    pack = tmp_path / "main.qpack"
    place.tool("export", main, "--output", pack, QOLA_PACKS=str(LAZY / "share/qola/ci/packs"))
    before = place.compiles()
    result = lazily([BACKWARD], GFX942, place.bundle, QOLA_PACKS=str(pack), **place.env)
    assert launched(result.outcomes) == launched([expected])
    assert place.compiles() == before + 2


def test_without_kernels_a_call_says_so(place: Place, tmp_path: Path) -> None:
    """Prevents: a crash, silence, or "no kernel", where a kernel exists but is not at hand."""
    nobody = next(row for row in ROWS if row.device == GFX942 and outcomes(GFX942)[row].status < 0)
    rows = [FORWARD, BACKWARD, nobody, FORWARD]
    result = lazily(rows, GFX942, place.bundle, QOLA_CACHE=str(tmp_path / "cache"), **NEVER)
    assert [outcome.status for outcome in result.outcomes] == [
        UNAVAILABLE,
        UNAVAILABLE,
        outcomes(GFX942)[nobody].status,
        UNAVAILABLE,
    ]
    assert not [launch for outcome in result.outcomes for launch in outcome.launches]
    lines = result.stderr.splitlines()
    assert len(lines) == 2, "each kernel once"
    assert all("QOLA_LAZY=never" in line and "qola-kernels build" in line for line in lines)


def test_what_one_machine_records_another_has(place: Place, tmp_path: Path) -> None:
    """Prevents: production machines that compile, although CI has seen what they need."""
    record = tmp_path / "asked"
    rows = [FORWARD, FORWARD]
    env = {"QOLA_CACHE": str(tmp_path / "empty"), **NEVER}
    lazily(rows, GFX942, place.bundle, QOLA_RECORD=str(record), **env)
    (line,) = record.read_text().splitlines()
    assert re.fullmatch(r"fmha_fwd_\w+ gfx942", line)
    pack = tmp_path / "recorded.qpack"
    place.tool("build", "--record", record, "--output", pack)
    result = lazily(rows, GFX942, place.bundle, QOLA_PACKS=str(pack), **env)
    assert launched(result.outcomes) == launched([outcomes(GFX942)[FORWARD]] * 2)
