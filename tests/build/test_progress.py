"""How far a build is, by the events of a Bazel."""

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


def test_compiles_and_what_a_cache_gave() -> None:
    """Prevents: cached kernels counted as compiled, from which the time that is left is wrong."""
    cached = [kernel(f"k{n}", 10 + n / 10) for n in range(4)]
    assert count(cached, EIGHT, 2, None, 11) == Counts(8, 4, 0, None)
    both = [*cached, kernel("k4", 30), kernel("k5", 31)]
    assert count(both, EIGHT, 2, None, 32) == Counts(8, 6, 2, 22.0)
    late = [*both, kernel("k6", 31.2)]
    assert count(late, EIGHT, 2, None, 32).compiled == 2


def test_a_batch_is_all_its_kernels() -> None:
    """Prevents: a build of 48 kernels that counts four batches; others' actions counted."""
    linked = [kernel("lib", 0, "CppLink"), kernel("k0", 9, "CppCompile")]
    batches = {"b0": 16, "b1": 12, "k0": 1}
    assert count(linked, batches, 4, None, 22) == Counts(29, 0, 0, None)
    assert count([*linked, kernel("b1", 24)], batches, 1, None, 24) == Counts(29, 12, 12, 34.0)


def test_what_bazel_has_already_is_done() -> None:
    """Prevents: "1 of 8" to the end where seven are in Bazel's own output tree."""
    found = count([kernel("k0", 0), kernel("k1", 25)], EIGHT, 1, 2, 25)
    assert found == Counts(8, 6, 1, 50.0)


def test_the_first_compiles_are_the_quickest() -> None:
    """Prevents: "about 2 min left" by one kernel of a hundred, which grows to an hour."""
    hundred = {f"k{n}": 1 for n in range(100)}
    done = [kernel("lib", 0, "CppLink"), *(kernel(f"k{n}", 3 * (n + 1)) for n in range(12))]
    assert count(done[:10], hundred, 1, None, 30).seconds_left is None
    assert count(done, hundred, 1, None, 40).seconds_left is not None
    # Nor by the first of sixteen that run at a time.
    assert count(done, hundred, 16, None, 40).seconds_left is None


@pytest.mark.parametrize(
    ("left", "words"),
    [(None, ""), (20.0, ", about 1 min left"), (260.0, ", about 4 min left"), (3e4, "8 h left")],
)
def test_words(left: float | None, words: str) -> None:
    """Prevents: a time in seconds for what takes hours."""
    found = Counts(48, 12, 9, left).describe()
    assert found.startswith("12 of 48 kernels, 3 from cache")
    assert found.endswith(words)


def feed(reader: EventReader, seconds: float, **event: object) -> None:
    reader.feed(json.dumps(event), seconds)


def test_events_of_a_build(tmp_path: Path) -> None:
    """Prevents: fields of Bazel's events read that it does not write: these are as 7.7 has them."""
    kernels = (plans.kernel("k0"), plans.kernel("k1"))
    plan = plans.plan(kernels=kernels, modules=(plans.module(kernels=(0, 1)),))
    file = tmp_path / "external/qola~~qola~qola_mine/plan.json"
    file.parent.mkdir(parents=True)
    reader = EventReader()
    status = Status(reader, planned_kernels({"mine": ["libmha_fwd"]}), 2)
    assert status.text(0) == ""
    options = ["--jobs=4", "--keep_going", "--jobs=1"]
    feed(reader, 0, id={"optionsParsed": {}}, optionsParsed={"cmdLine": options})
    info = {"localExecRoot": str(tmp_path / "execroot/_main")}
    feed(reader, 0, id={"workspace": {}}, workspaceInfo=info)
    said = {"stderr": "Analyzing: 2 targets (0 packages loaded)\n\n"}
    feed(reader, 1, id={"progress": {}}, progress=said)
    assert reader.jobs == 1
    assert status.text(1) == "Analyzing: 2 targets (0 packages loaded)"
    system = {"primaryOutput": "bazel-out/stable-status.txt", "configuration": {"id": "system"}}
    done = {"success": True, "type": "BazelWorkspaceStatusAction"}
    feed(reader, 2, id={"actionCompleted": system}, action=done)
    assert status.text(2) == "Analyzing: 2 targets (0 packages loaded)"
    file.write_text(plan.to_json())
    said = {"stderr": "\x1b[32m[0 / 1,002]\x1b[0m Compiling k0\n"}
    feed(reader, 3, id={"progress": {}}, progress=said)
    assert reader.remaining() == 1002
    compile = {"label": "@@qola_compile~//:kernels", "primaryOutput": "bazel-out/x/bin/k0.pic.o"}
    feed(
        reader, 22, id={"actionCompleted": compile}, action={"success": True, "type": "QolaCompile"}
    )
    assert status.text(22) == "1 of 2 kernels, 0 from cache, about 1 min left"
    feed(reader, 23, id={"buildFinished": {}}, finished={"exitCode": {"name": "SUCCESS"}})
    assert status.share == 0.5
    assert status.text(23) == "2 of 2 kernels, 1 from cache"
    assert status.share == 1


def test_the_plans_of_several_manifests(tmp_path: Path) -> None:
    """Prevents: kernels counted twice that two manifests have, or those of an earlier workspace."""
    text = plans.plan(
        kernels=(plans.kernel("k0"), plans.kernel("k1")),
        modules=(plans.module(kernels=(0, 1)),),
    ).to_json()
    names = ("mine", "yours", "theirs")
    for repository in ("qola~~qola~qola_mine", "qola++qola+qola_yours", "qola~~qola~qola_theirs"):
        write(tmp_path / repository, {"plan.json": text})
    read = planned_kernels(dict.fromkeys(names, ("libmha_fwd",)))
    assert read(tmp_path) == {"k0": 1, "k1": 1}
    write(tmp_path / "qola++qola+qola_mine", {"plan.json": text})
    assert planned_kernels({"mine": ["libmha_fwd"]})(tmp_path) == {}
