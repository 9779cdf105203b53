"""The progress of a build, computed from Bazel's events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qola.build.events import EventReader, FinishedAction
from qola.build.progress import Counts, Status, count, planned_kernels
from tests.support import plans
from tests.support.folders import write

EIGHT = {f"k{n}": 1 for n in range(8)}


def kernel(name: str, seconds: float, mnemonic: str = "QolaCompile") -> FinishedAction:
    return FinishedAction(name, mnemonic, seconds)


def test_cached_kernels_are_counted_separately() -> None:
    """Prevents: cached kernels counted as compiled, which makes the remaining time wrong."""
    cached = [kernel(f"k{n}", 10 + n / 10) for n in range(4)]
    assert count(cached, EIGHT, 2, None, 11) == Counts(8, 4, 0, None)
    both = [*cached, kernel("k4", 30), kernel("k5", 31)]
    assert count(both, EIGHT, 2, None, 32) == Counts(8, 6, 2, 22.0)
    late = [*both, kernel("k6", 31.2)]
    assert count(late, EIGHT, 2, None, 32).compiled == 2


def test_batches_count_all_kernels() -> None:
    """Prevents: a build of 48 kernels that counts four batches, or counts other actions."""
    linked = [kernel("lib", 0, "CppLink"), kernel("k0", 9, "CppCompile")]
    batches = {"b0": 16, "b1": 12, "k0": 1}
    assert count(linked, batches, 4, None, 22) == Counts(29, 0, 0, None)
    assert count([*linked, kernel("b1", 24)], batches, 1, None, 24) == Counts(29, 12, 12, 34.0)


def test_up_to_date_kernels_are_counted() -> None:
    """Prevents: "1 of 8" at the end, although seven kernels were in Bazel's output tree."""
    counts = count([kernel("k0", 0), kernel("k1", 25)], EIGHT, 1, 2, 25)
    assert counts == Counts(8, 6, 1, 50.0)


def test_no_estimate_after_few_compiles() -> None:
    """Prevents: "about 2 min left" after the first, quickest kernels of an hour's build."""
    hundred = {f"k{n}": 1 for n in range(100)}
    done = [kernel("lib", 0, "CppLink"), *(kernel(f"k{n}", 3 * (n + 1)) for n in range(12))]
    assert count(done[:10], hundred, 1, None, 30).seconds_left is None
    assert count(done, hundred, 1, None, 40).seconds_left is not None
    # With sixteen jobs, twelve compiles are too few for an estimate.
    assert count(done, hundred, 16, None, 40).seconds_left is None


@pytest.mark.parametrize(
    ("left", "ending"),
    [(None, ""), (20.0, ", about 60 s left"), (260.0, ", about 4 min left"), (4e4, "11 h left")],
)
def test_description(left: float | None, ending: str) -> None:
    """Prevents: a remaining time in seconds for a build of hours."""
    description = Counts(48, 12, 9, left).describe()
    assert description.startswith("12 of 48 kernels, 3 from cache")
    assert description.endswith(ending)


def feed(reader: EventReader, seconds: float, **event: object) -> None:
    reader.feed(json.dumps(event), seconds)


def test_events_of_a_build(tmp_path: Path) -> None:
    """Prevents: events parsed in another format than Bazel writes (these are from 7.7)."""
    kernels = (plans.kernel("k0"), plans.kernel("k1"))
    plan = plans.plan(kernels=kernels, modules=(plans.module(kernels=(0, 1)),))
    file = tmp_path / "external/qola~~qola~qola_mine/plan.json"
    file.parent.mkdir(parents=True)
    reader = EventReader()
    status = Status(reader, {"mine": ["libmha_fwd"]}, 2)
    assert status.text(0) == ""
    options = ["--jobs=4", "--keep_going", "--jobs=1"]
    feed(reader, 0, id={"optionsParsed": {}}, optionsParsed={"cmdLine": options})
    info = {"localExecRoot": str(tmp_path / "execroot/_main")}
    feed(reader, 0, id={"workspace": {}}, workspaceInfo=info)
    progress = {"stderr": "Analyzing: 2 targets (0 packages loaded)\n\n"}
    feed(reader, 1, id={"progress": {}}, progress=progress)
    assert reader.jobs == 1
    assert status.text(1) == "fetching and planning qola_mine; 1 s elapsed"
    (file.parent.parent / "@qola~~qola~qola_mine.marker").touch()
    assert status.text(80) == "Analyzing: 2 targets (0 packages loaded); 80 s elapsed"
    system = {"primaryOutput": "bazel-out/stable-status.txt", "configuration": {"id": "system"}}
    done = {"success": True, "type": "BazelWorkspaceStatusAction"}
    feed(reader, 2, id={"actionCompleted": system}, action=done)
    assert status.text(2) == "Analyzing: 2 targets (0 packages loaded); 2 s elapsed"
    file.write_text(plan.to_json())
    text = "\x1b[32m[0 / 1,002]\x1b[0m Compiling k0; 2s linux-sandbox ... (3 running)\n"
    progress = {"stderr": text}
    feed(reader, 3, id={"progress": {}}, progress=progress)
    assert status.text(13) == "[0 / 1,002] actions; Compiling k0 runs for 12 s; 13 s elapsed"
    assert reader.remaining() == 1002
    compile = {
        "label": "@@rules_hip~//kernels:kernels",
        "primaryOutput": "bazel-out/x/bin/k0.pic.o",
    }
    feed(
        reader, 22, id={"actionCompleted": compile}, action={"success": True, "type": "QolaCompile"}
    )
    left = "1 of 2 kernels, 0 from cache, about 60 s left"
    # Bazel has not printed a line since k0 ended.
    assert status.text(22) == f"{left}; 22 s elapsed"
    progress = {"stderr": "[5 / 1,002] 3 / 9 tests, 1 failed; [Sched] Compiling a; b.cpp; 91s\n"}
    feed(reader, 22.5, id={"progress": {}}, progress=progress)
    running = "Compiling a; b.cpp waits for a core for 16 min"
    left = left.replace("60 s left", "15 min left")
    assert status.text(900) == f"{left}; {running}; 15 min elapsed"
    feed(reader, 23, id={"buildFinished": {}}, finished={"exitCode": {"name": "SUCCESS"}})
    assert status.share == 0.5
    assert status.text(23) == "2 of 2 kernels, 1 from cache; 23 s elapsed"
    assert status.share == 1


def test_plans_of_several_manifests(tmp_path: Path) -> None:
    """Prevents: shared kernels of manifests counted twice, or kernels of an earlier workspace."""
    text = plans.plan(
        kernels=(plans.kernel("k0"), plans.kernel("k1")),
        modules=(plans.module(kernels=(0, 1)),),
    ).to_json()
    names = ("mine", "yours", "theirs")
    for repository in ("qola~~qola~qola_mine", "qola++qola+qola_yours", "qola~~qola~qola_theirs"):
        write(tmp_path / repository, {"plan.json": text})
    modules = dict.fromkeys(names, ("libmha_fwd",))
    assert planned_kernels(tmp_path, modules) == {"k0": 1, "k1": 1}
    write(tmp_path / "qola++qola+qola_mine", {"plan.json": text})
    assert planned_kernels(tmp_path, {"mine": ["libmha_fwd"]}) == {}
