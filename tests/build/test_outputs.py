"""Which output base a build gets: shared by manifests, by one build at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from qola.build.outputs import output_base

# Builds in a workspace, or keeps what it built there, until its standard input ends.
_PROGRAM = """
import sys
from pathlib import Path
from qola.build.outputs import output_base
cache, workspace, keeps = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "keeps"
with output_base(cache, "pinned", workspace) as found:
    if keeps:
        found.keep()
    else:
        print(found.directory.name, flush=True)
        sys.stdin.read()
print(found.directory.name, flush=True)
sys.stdin.read()
"""


def chosen(cache: Path, workspace: str, source: str = "pinned") -> str:
    """Return the name of the output base that a build gets now."""
    with output_base(cache, source, Path("/w", workspace)) as found:
        assert found.directory.parent == cache / "outputs"
        return found.directory.name


@contextmanager
def another(cache: Path, workspace: str, what: str) -> Iterator[str]:
    """Another process that builds, or keeps, until the block is left."""
    command = [sys.executable, "-c", _PROGRAM, str(cache), f"/w/{workspace}", what]
    with subprocess.Popen(command, text=True, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


def test_manifests_share_what_was_fetched(tmp_path: Path) -> None:
    """Prevents: 550 MB and a server for each manifest; repositories fetched at each change."""
    first = chosen(tmp_path, "a")
    assert chosen(tmp_path, "b") == first
    assert chosen(tmp_path, "b", "qola.aiter_local(path = '/aiter')") != first


def test_two_builds_at_once(tmp_path: Path, logged: list[str]) -> None:
    """Prevents: a build that waits for hours for another manifest's, without a word."""
    with another(tmp_path, "a", "builds") as busy:
        own = chosen(tmp_path, "b")
        (line,) = logged
        assert own == busy.replace("-1", "-2") != busy
        assert str(tmp_path / "outputs" / own) in line
    assert chosen(tmp_path, "b") == busy


def test_programs_that_run_stay_as_they_are(tmp_path: Path) -> None:
    """Prevents: libraries replaced below `qola verify` by the next manifest's of the same name."""
    with another(tmp_path, "a", "keeps") as kept:
        assert chosen(tmp_path, "b") != kept
        # Builds of the same manifest, of eight processes say, have the same program.
        assert chosen(tmp_path, "a") == kept
        with another(tmp_path, "a", "keeps") as again:
            assert again == kept
    assert chosen(tmp_path, "b") == kept


@pytest.mark.parametrize("what", ["builds", "keeps"])
def test_a_process_that_was_killed_keeps_nothing(tmp_path: Path, what: str) -> None:
    """Prevents: an output base lost for good, and another one of 550 MB, after each kill -9."""
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path), "/w/a", what]
    with subprocess.Popen(command, text=True, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        process.kill()
        process.wait()
    assert chosen(tmp_path, "b") == first
