"""qola fetch and publish, killed at any moment: what is seen is whole, and the next run works."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qola.layout import RECORD
from tests.fuzz.fuzzing import fuzz
from tests.prebuilt.users import LIBRARY_FILE, SIGNED, User, make_user
from tests.support.folders import read

FILES = ("open", "os.", "shutil.", "tempfile.", "fcntl.")
"""Beginnings of audit events before something changes on a disk."""


def steps_of(work: Callable[[], object], end: int = -1) -> tuple[int, int]:
    """Do some work in a process of its own, killed at one of its steps; return how far it got.

    Returns:
        The steps that were seen, and how the process ended.
    """
    told, tell = os.pipe()
    if not (child := os.fork()):
        code = 1
        try:

            def step(event: str, _: object) -> None:
                if event.startswith(FILES):
                    os.write(tell, b".")
                    left[0] -= 1
                    if not left[0]:
                        os.kill(os.getpid(), signal.SIGKILL)

            left = [end]
            sys.addaudithook(step)
            work()
            code = 0
        finally:
            os._exit(code)
    os.close(tell)
    with open(told, "rb") as pipe:
        count = len(pipe.read())
    return count, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed(
    work: Callable[[], object], begin: Callable[[], None], check: Callable[[], None]
) -> None:
    """Kill some work at random steps, each time from the beginning, and check what is there."""
    begin()
    total, code = steps_of(work)
    assert code == 0
    assert total > 40

    def take(end: int) -> None:
        begin()
        assert steps_of(work, end)[1] == -signal.SIGKILL
        check()

    fuzz(lambda rng: rng.randint(1, total), take, ())


@pytest.fixture
def user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[User]:
    """A user, and a bundle of what they want, signed by key k."""
    with make_user(tmp_path, monkeypatch, capsys) as someone:
        yield someone


def size_of(files: dict[str, bytes]) -> object:
    """Return the size of the library that is installed, as the record has it."""
    return json.loads(files[RECORD])["modules"][0]["size"]


def put_back(place: Path, kept: Path) -> None:
    """Make a directory what it was."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(kept, place)


def test_fetch(user: User) -> None:
    """Prevents: half a library that a program loads, a bundle that cannot be fetched, or litter."""
    cache, before = user.directory / "cache", user.directory / "before"
    user.fetch("published")
    old = read(user.output)
    shutil.copytree(user.output, before)
    shutil.rmtree(cache)
    user.put("other", overwrite=True)
    user.fetch("published")
    new = read(user.output)
    assert old[LIBRARY_FILE] != new[LIBRARY_FILE]

    def visible() -> dict[str, bytes]:
        return {name: data for name, data in read(user.output).items() if name[0] != "."}

    def begin() -> None:
        put_back(user.output, before)
        shutil.rmtree(cache)
        cache.mkdir(0o700)

    def check() -> None:
        found = visible()
        assert found.keys() == old.keys()
        assert all(data in (old[n], new[n]) for n, data in found.items() if n != RECORD)
        if size_of(found) == size_of(new):
            assert found | {RECORD: new[RECORD]} == new
        else:
            assert found[RECORD] == old[RECORD]
        user.fetch("published")
        found = visible()
        assert found | {RECORD: new[RECORD]} == new
        assert size_of(found) == size_of(new)
        assert len([*user.output.iterdir()]) == len({name.partition("/")[0] for name in new})
        kept = {Path(name).name for name in read(cache)}
        assert kept == {user.archive, user.record, "lock"}

    killed(lambda: user.fetch("published"), begin, check)


def test_publish(user: User) -> None:
    """Prevents: half an archive or record at its name, or one that cannot be published again."""
    before = user.directory / "before"
    new = read(user.published)
    user.put("other", overwrite=True)
    shutil.copytree(user.published, before)
    old = read(user.published)

    def begin() -> None:
        put_back(user.published, before)
        shutil.rmtree(user.directory / "cache", ignore_errors=True)

    def check() -> None:
        for name, data in read(user.published).items():
            # Those have the time in them.
            if name[0] != "." and name not in (user.record, user.signature):
                assert data in (old[name], new[name])
        user.put("bundle", overwrite=True)
        assert (user.published / user.archive).read_bytes() == new[user.archive]
        user.fetch("published", SIGNED)

    killed(lambda: user.put("bundle", overwrite=True), begin, check)
