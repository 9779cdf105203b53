"""Reading of execution logs, with entries as Bazel 7 writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qola.report.execution_log import LoggedFile, read_spawns
from tests.support.log_entries import entry, file, spawns, text_of


def compiled(kernel: str, *inputs: dict[str, Any], **changed: Any) -> dict[str, Any]:
    changed.setdefault("platform", {"properties": [{"name": "OSFamily", "value": "linux"}]})
    source = file(f"external/k/fwd/{kernel}.cpp", kernel, 10)
    output = file(f"bazel-out/{kernel}.o", f"{kernel}o", 7)
    changed.setdefault("runner", "remote")
    return entry(f"@@k//fwd:{kernel}", [source, *inputs], [output], **changed)


def test_entries_are_read_one_by_one() -> None:
    """Prevents: a log read as one document, or a field taken from another entry."""
    first, second = spawns(compiled("a"), compiled("b", runner="disk cache hit", platform=None))
    assert (first.label, first.runner, second.runner) == ("@@k//fwd:a", "remote", "disk cache hit")
    assert first.properties == {"OSFamily": "linux"}
    assert second.properties == {}
    assert first.inputs == (LoggedFile("external/k/fwd/a.cpp", "a", 10),)
    assert second.outputs == (LoggedFile("bazel-out/b.o", "bo", 7),)


def test_an_action_took_what_it_did_not_wait() -> None:
    """Prevents: a build with few jobs whose actions look slow because they waited."""
    metrics = {"totalTime": "20.5s", "queueTime": "0.5s"}
    first, second = spawns(compiled("a", metrics=metrics), compiled("b"))
    assert (first.seconds, second.seconds) == (20.0, 0.0)


def test_duration_without_unit_is_an_error() -> None:
    """Prevents: milliseconds read as seconds should the log's form change."""
    with pytest.raises(ValueError, match="'1200' is not a duration"):
        spawns(compiled("a", metrics={"totalTime": "1200"}))


def test_a_log_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    """Prevents: figures over half a build, of a Bazel that was killed."""
    log = tmp_path / "log"
    log.write_text(text_of(compiled("a"), compiled("b"))[:-100], encoding="utf-8")
    with pytest.raises(ValueError, match="ends within an entry"):
        list(read_spawns(log))
