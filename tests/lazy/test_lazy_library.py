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

from tests.lazy import sweep
from tests.support.sdk import compiler_of
from tests.verify.run_consumer import PLAN, ROWS, Outcome, Run, outcomes, run
from tests.verify.table import GFX942, GFX950, Device, Row

LAZY = Path(os.environ["QOLA_TEST_LAZY"], "manifest.json").resolve().parent
NEVER = {"QOLA_LAZY": "never"}
# Not resolved: the SDK's files may be links out of its directory.
SDK = Path(os.environ["QOLA_TEST_CLANG"]).absolute().parent.parent
NM = Path(os.environ["QOLA_TEST_LLVM"]).absolute()
UNAVAILABLE = -4.0
PART = 250


def problem(direction: str, device: Device) -> Row:
    """Return a problem that the full library has kernels for."""
    of = (row for row in ROWS if row.device == device and row.problem.direction == direction)
    return next(row for row in of if outcomes(device)[row].launches)


FORWARD, BACKWARD = problem("fwd", GFX950), problem("bwd", GFX950)


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
    """What launches have in common that differ in addresses alone.

    Not their code objects: in a full library that of a batch, and //tests/library compares.
    """
    return [
        (outcome.status, [(o.kernel, o.arch, o.grid, o.block) for o in outcome.launches])
        for outcome in outcomes
    ]


def code(outcome: Outcome) -> list[str]:
    """Digests of the code objects that a call launches from."""
    return [launch.code_object_sha256 for launch in outcome.launches]


def from_pack(row: Row, cache: Path) -> Outcome:
    """Hand a row to the bundle that has a pack."""
    return lazily([row], GFX950, LAZY, QOLA_CACHE=str(cache), **NEVER).outcomes[0]


def test_a_pack_has_what_the_full_library_has(tmp_path: Path) -> None:
    """Prevents: another kernel where it comes from a pack."""
    rows = [row for row in ROWS if row.device == GFX950]
    result = lazily(rows, GFX950, LAZY, QOLA_CACHE=str(tmp_path / "cache"), **NEVER)
    assert launched(result.outcomes) == launched(outcomes(GFX950)[row] for row in rows)
    assert result.stderr == ""


def test_a_random_sweep_is_answered_alike(tmp_path: Path) -> None:
    """Prevents: a stub that leads to another kernel than the dispatch asked for."""
    rows = list(sweep.rows(10_000, GFX950))
    kernels = set()
    # In parts: the fake runtime takes longer for each stream, the more there are.
    for first in range(0, len(rows), PART):
        part = rows[first : first + PART]
        full = run(part, GFX950).outcomes
        lazy = lazily(part, GFX950, LAZY, QOLA_CACHE=str(tmp_path / "cache"), **NEVER).outcomes
        assert launched(lazy) == launched(full)
        kernels |= {launch.kernel for outcome in full for launch in outcome.launches}
    planned = [kernel for kernel in PLAN["kernels"] if "gfx950" in kernel["archs"]]
    assert len(kernels) > 0.8 * len(planned), "the sweep misses most kernels"


@pytest.mark.parametrize("row", [FORWARD, BACKWARD], ids=lambda row: row.problem.direction)
def test_a_failing_launch_is_a_status(row: Row, tmp_path: Path) -> None:
    """Prevents: an exception in a kernel library that finds no handler and ends the process."""
    env = {"QOLA_CACHE": str(tmp_path / "cache"), **NEVER}
    fail = ["hipLaunchKernel=1"]
    full = run([row, row], GFX950, fail=fail)
    lazy = run([row, row], GFX950, library_dirs=(LAZY / "lib",), fail=fail, **env)
    assert [outcome.status for outcome in full.outcomes] == [-3.0, -3.0]
    assert launched(lazy.outcomes) == launched(full.outcomes)


def test_a_first_call_compiles_what_a_pack_has(place: Place, tmp_path: Path) -> None:
    """Prevents: a compile on the user's machine that makes something else than the build does."""
    expected = [outcomes(GFX950)[FORWARD]]
    first = lazily([FORWARD], GFX950, place.bundle, **place.env)
    assert launched(first.outcomes) == launched(expected)
    assert code(first.outcomes[0]) == code(from_pack(FORWARD, tmp_path))
    assert place.compiles() == 1
    second = lazily([FORWARD], GFX950, place.bundle, **place.env)
    assert launched(second.outcomes) == launched(expected)
    assert place.compiles() == 1, "the second process compiled"
    print(f"first call:\n{first.stderr}second process:\n{second.stderr}")
    (took,) = re.findall(r", ([\d.]+) ms$", second.stderr, re.MULTILINE)
    assert float(took) < 50, "ten times what is promised, for a machine that is busy"


def test_no_library_launches_unseen() -> None:
    """Prevents: a recorded call that launches by what cc/api/qola_launches.cpp passes over."""
    asked = re.compile(
        r"hip(Get|Peek)\w+|hipModule(LoadData|GetFunction|Unload)|hipDeviceGetAttribute"
        r"|hipKernelNameRef\w*"
    )
    # Where a call measures; a recorded one does not.
    measures = re.compile(r"hipEvent\w+|hipStreamSynchronize")
    wrapped = {
        "hipLaunchHostFunc",
        "hipLaunchKernel",
        "hipMemcpyAsync",
        "hipMemsetAsync",
        "hipModuleLaunchKernel",
    }
    for library in sorted((LAZY / "lib").glob("*.so")):
        names = subprocess.run(
            [NM, "--dynamic", "--undefined-only", "--format=just-symbols", library],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        of_hip = {name.partition("@")[0] for name in names if name.startswith(("hip", "__hip"))}
        others = {n for n in of_hip - wrapped if not (asked.fullmatch(n) or measures.fullmatch(n))}
        assert of_hip
        assert others == set()


def test_without_kernels_a_call_says_so(place: Place, tmp_path: Path) -> None:
    """Prevents: a crash, silence, or "no kernel", where a kernel exists but is not at hand."""
    nobody = next(row for row in ROWS if row.device == GFX950 and outcomes(GFX950)[row].status < 0)
    rows = [FORWARD, BACKWARD, nobody, FORWARD]
    result = lazily(rows, GFX950, place.bundle, QOLA_CACHE=str(tmp_path / "cache"), **NEVER)
    assert [outcome.status for outcome in result.outcomes] == [
        UNAVAILABLE,
        UNAVAILABLE,
        outcomes(GFX950)[nobody].status,
        UNAVAILABLE,
    ]
    assert not [launch for outcome in result.outcomes for launch in outcome.launches]
    lines = result.stderr.splitlines()
    assert len(lines) == 4, "each kernel once, the three of the backward call together"
    assert all("QOLA_LAZY=never" in line and "qola-kernels build" in line for line in lines)


def test_what_one_machine_records_another_has(place: Place, tmp_path: Path) -> None:
    """Prevents: production machines that compile, although CI has seen what they need."""
    record = tmp_path / "asked"
    row = problem("fwd", GFX942)
    rows = [row, row]
    env = {"QOLA_CACHE": str(tmp_path / "empty"), **NEVER}
    lazily(rows, GFX942, place.bundle, QOLA_RECORD=str(record), **env)
    (line,) = record.read_text().splitlines()
    assert re.fullmatch(r"fmha_fwd_\w+ gfx942", line)
    pack = tmp_path / "recorded.qpack"
    place.tool("build", "--record", record, "--output", pack)
    result = lazily(rows, GFX942, place.bundle, QOLA_PACKS=str(pack), **env)
    assert launched(result.outcomes) == launched([outcomes(GFX942)[row]] * 2)
