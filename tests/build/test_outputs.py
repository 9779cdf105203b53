"""The output base of a build: manifests share it, and a single build uses it at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from qola.build.outputs import _WORKSPACE, output_base

# Builds in a workspace, or locks the built files there, until its standard input ends.
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


def choose_output_base(cache: Path, workspace: str, source: str = "pinned") -> str:
    """Return the name of the output base that a build gets now."""
    with output_base(cache, source, Path("/w", workspace)) as found:
        assert found.directory.parent == cache / "outputs"
        return found.directory.name


@contextmanager
def other_process(cache: Path, workspace: str, action: str) -> Iterator[str]:
    """Run another process that builds in an output base, or keeps it in use."""
    command = [sys.executable, "-c", _PROGRAM, str(cache), f"/w/{workspace}", action]
    with subprocess.Popen(command, text=True, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


def test_manifests_share_an_output_base(tmp_path: Path) -> None:
    """Prevents: 550 MB and a server for each manifest, or a fetch after each change."""
    first = choose_output_base(tmp_path, "a")
    assert choose_output_base(tmp_path, "b") == first
    assert choose_output_base(tmp_path, "b", "qola.aiter_local(path = '/aiter')") != first


def test_damaged_record_of_the_last_workspace(tmp_path: Path) -> None:
    """Prevents: a traceback in every build after one that was cut off, or a name in bytes."""
    first = choose_output_base(tmp_path, "a")
    for content in (b"\xff\xfe", b"", b"{}" * 5000):
        (tmp_path / "outputs" / first / _WORKSPACE).write_bytes(content)
        assert choose_output_base(tmp_path, "w\udce4") == first


def test_concurrent_builds_use_separate_output_bases(tmp_path: Path, logged: list[str]) -> None:
    """Prevents: a build that silently waits for hours until another manifest's build ends."""
    with other_process(tmp_path, "a", "builds") as busy:
        output_base_name = choose_output_base(tmp_path, "b")
        (line,) = logged
        assert output_base_name == busy.replace("-1", "-2") != busy
        assert str(tmp_path / "outputs" / output_base_name) in line
    assert choose_output_base(tmp_path, "b") == busy


def test_running_programs_are_not_replaced(tmp_path: Path) -> None:
    """Prevents: libraries that another manifest's build replaces while `qola verify` uses them."""
    with other_process(tmp_path, "a", "keeps") as locked_base:
        assert choose_output_base(tmp_path, "b") != locked_base
        # Builds of the same manifest, such as from eight processes, share the output base.
        assert choose_output_base(tmp_path, "a") == locked_base
        with other_process(tmp_path, "a", "keeps") as second_base:
            assert second_base == locked_base
    assert choose_output_base(tmp_path, "b") == locked_base


@pytest.mark.parametrize("action", ["builds", "keeps"])
def test_killed_process_releases_its_output_base(tmp_path: Path, action: str) -> None:
    """Prevents: an output base of 550 MB lost after each kill -9."""
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path), "/w/a", action]
    with subprocess.Popen(command, text=True, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        process.kill()
        process.wait()
    assert choose_output_base(tmp_path, "b") == first
