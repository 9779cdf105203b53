"""Compare lazy libraries of the tests' manifest with full libraries, on the fake HIP runtime."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gfxemu.tests.sdk import compiler_of
from qola_lab.tests.verify.run_consumer import PLAN, ROWS, Outcome, Run, outcomes, run
from qola_lab.tests.verify.table import GFX942, GFX950, Device, Row
from runtime.tests.lazy import sweep
from tests.support.running import output_of

LAZY = Path(os.environ["QOLA_TEST_LAZY"], "manifest.json").resolve().parent
NEVER = {"QOLA_LAZY": "never"}
# Not resolved: the SDK's files may be links out of its directory.
SDK = Path(os.environ["QOLA_TEST_CLANG"]).absolute().parent.parent
PART = 250


def problem(direction: str, device: Device) -> Row:
    """Return a problem for which the full library has kernels."""
    rows = (row for row in ROWS if row.device == device and row.problem.direction == direction)
    return next(row for row in rows if outcomes(device)[row].launches)


FORWARD, BACKWARD = problem("fwd", GFX950), problem("bwd", GFX950)


@dataclass(frozen=True)
class LazyBundle:
    """A bundle without a pack, and a compiler for it.

    Attributes:
        bundle: directory of the bundle.
        cache: the cache root.
        compiler: the SDK's compiler; it logs the kernels it compiles to {compiler}.log.
    """

    bundle: Path
    cache: Path
    compiler: Path

    @property
    def env(self) -> dict[str, str]:
        """Environment that enables compiles, and messages about the origin of kernels."""
        return {
            "QOLA_CACHE": str(self.cache),
            "QOLA_COMPILER": str(self.compiler),
            "QOLA_VERBOSE": "1",
        }

    def tool(self, *arguments: str | Path, **env: str) -> None:
        """Run the bundle's program, which must succeed."""
        command = [self.bundle / "bin/qola-kernels", *arguments]
        output_of(command, env=self.env | env)

    def compiles(self) -> int:
        """Return the number of kernels compiled so far."""
        log = Path(f"{self.compiler}.log")
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture(scope="module")
def lazy_bundle(tmp_path_factory: pytest.TempPathFactory) -> LazyBundle:
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
    return LazyBundle(bundle, path / "cache", compiler)


def run_lazy(rows: Sequence[Row], device: Device, bundle: Path, **env: str) -> Run:
    """Run the program for these rows with the lazy libraries of a bundle."""
    return run(rows, device, library_dirs=(bundle / "lib",), **env)


def launched(outcomes: Iterable[Outcome]) -> list[object]:
    """Return statuses and launches without addresses, which may differ.

    Code objects are omitted: a full library has code objects of batches (see //tests/library).
    """
    return [
        (outcome.status, [(o.kernel, o.arch, o.grid, o.block) for o in outcome.launches])
        for outcome in outcomes
    ]


def code(outcome: Outcome) -> list[str]:
    """Return the digests of the code objects that a call launches."""
    return [launch.code_object_sha256 for launch in outcome.launches]


def run_from_pack(row: Row, cache: Path) -> Outcome:
    """Run a row with the bundle that has a pack."""
    return run_lazy([row], GFX950, LAZY, QOLA_CACHE=str(cache), **NEVER).outcomes[0]


def test_a_pack_has_the_kernels_of_the_full_library(tmp_path: Path) -> None:
    """Prevents: a kernel of a pack differs from the full library's kernel."""
    rows = [row for row in ROWS if row.device == GFX950]
    result = run_lazy(rows, GFX950, LAZY, QOLA_CACHE=str(tmp_path / "cache"), **NEVER)
    assert launched(result.outcomes) == launched(outcomes(GFX950)[row] for row in rows)
    assert result.stderr == ""


def test_a_random_sweep_launches_the_same_kernels(tmp_path: Path) -> None:
    """Prevents: a stub launches another kernel than the dispatch requested."""
    rows = list(sweep.rows(10_000, GFX950))
    kernels = set()
    # In parts: the time per stream in the fake runtime grows with the number of streams.
    for first in range(0, len(rows), PART):
        part = rows[first : first + PART]
        full = run(part, GFX950).outcomes
        lazy = run_lazy(part, GFX950, LAZY, QOLA_CACHE=str(tmp_path / "cache"), **NEVER).outcomes
        assert launched(lazy) == launched(full)
        kernels |= {launch.kernel for outcome in full for launch in outcome.launches}
    planned = [kernel for kernel in PLAN["kernels"] if "gfx950" in kernel["archs"]]
    assert len(kernels) > 0.8 * len(planned), "the sweep misses most kernels"


@pytest.mark.parametrize("row", [FORWARD, BACKWARD], ids=lambda row: row.problem.direction)
def test_a_failing_launch_is_a_status(row: Row, tmp_path: Path) -> None:
    """Prevents: an unhandled exception in a kernel library ends the process."""
    env = {"QOLA_CACHE": str(tmp_path / "cache"), **NEVER}
    fail = ["hipLaunchKernel=1"]
    full = run([row, row], GFX950, fail=fail)
    lazy = run([row, row], GFX950, library_dirs=(LAZY / "lib",), fail=fail, **env)
    assert [outcome.status for outcome in full.outcomes] == [-3.0, -3.0]
    assert launched(lazy.outcomes) == launched(full.outcomes)


def test_a_first_call_compiles_the_code_of_a_pack(lazy_bundle: LazyBundle, tmp_path: Path) -> None:
    """Prevents: a compile on a user's machine produces other code than the build."""
    expected = [outcomes(GFX950)[FORWARD]]
    first = run_lazy([FORWARD], GFX950, lazy_bundle.bundle, **lazy_bundle.env)
    assert launched(first.outcomes) == launched(expected)
    assert code(first.outcomes[0]) == code(run_from_pack(FORWARD, tmp_path))
    assert lazy_bundle.compiles() == 1
    second = run_lazy([FORWARD], GFX950, lazy_bundle.bundle, **lazy_bundle.env)
    assert launched(second.outcomes) == launched(expected)
    assert lazy_bundle.compiles() == 1, "the second process compiled"
    print(f"first call:\n{first.stderr}second process:\n{second.stderr}")
    (milliseconds,) = re.findall(r", ([\d.]+) ms$", second.stderr, re.MULTILINE)
    assert float(milliseconds) < 50, "ten times the documented time, to allow for a busy machine"


def test_recorded_kernels_are_packed_for_another_machine(
    lazy_bundle: LazyBundle, tmp_path: Path
) -> None:
    """Prevents: production machines compile kernels that CI has recorded."""
    record = tmp_path / "asked"
    row = problem("fwd", GFX942)
    rows = [row, row]
    env = {"QOLA_CACHE": str(tmp_path / "empty"), **NEVER}
    run_lazy(rows, GFX942, lazy_bundle.bundle, QOLA_RECORD=str(record), **env)
    (line,) = record.read_text().splitlines()
    assert re.fullmatch(r"fmha_fwd_\w+ gfx942", line)
    pack = tmp_path / "recorded.qpack"
    lazy_bundle.tool("build", "--record", record, "--output", pack)
    result = run_lazy(rows, GFX942, lazy_bundle.bundle, QOLA_PACKS=str(pack), **env)
    assert launched(result.outcomes) == launched([outcomes(GFX942)[row]] * 2)
