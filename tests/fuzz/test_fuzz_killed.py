"""qola fetch and publish, killed at random steps: files stay complete, and the next run works."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from qola.common.layout import RECORD
from tests.fuzz.fuzzing import fuzz
from tests.prebuilt.users import LIBRARY_FILE, SIGNED, User, user
from tests.support.folders import read

__all__ = ["user"]

FILES = ("open", "os.", "shutil.", "tempfile.", "fcntl.")
"""Prefixes of Python audit events that precede a change of files."""


def count_steps(work: Callable[[], object], end: int = -1) -> tuple[int, int]:
    """Run a function in a forked process, and kill the process at step `end`.

    Returns:
        The number of steps that ran, and the exit code.
    """
    read_end, write_end = os.pipe()
    if not (child := os.fork()):
        code = 1
        try:

            def step(event: str, _: object) -> None:
                if event.startswith(FILES):
                    os.write(write_end, b".")
                    left[0] -= 1
                    if not left[0]:
                        os.kill(os.getpid(), signal.SIGKILL)

            left = [end]
            sys.addaudithook(step)
            work()
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        count = len(pipe.read())
    return count, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_at_random_steps(
    work: Callable[[], object], begin: Callable[[], None], check: Callable[[], None]
) -> None:
    """Kill a function at random steps, each time after `begin`, and check the files."""
    begin()
    total, code = count_steps(work)
    assert code == 0
    assert total > 40

    def take(end: int) -> None:
        begin()
        assert count_steps(work, end)[1] == -signal.SIGKILL
        check()

    fuzz(lambda rng: rng.randint(1, total), take, ())


def installed_size(files: dict[str, bytes]) -> object:
    """Return the size of the installed library, from the record."""
    return json.loads(files[RECORD])["modules"][0]["size"]


def restore(directory: Path, copy: Path) -> None:
    """Restore a directory from a copy."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(copy, directory)


def test_fetch(user: User) -> None:
    """Prevents: a killed fetch leaves a partial library or temporary files, or blocks the next."""
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
        restore(user.output, before)
        shutil.rmtree(cache)
        cache.mkdir(0o700)

    def check() -> None:
        installed = visible()
        assert installed.keys() == old.keys()
        assert all(data in (old[n], new[n]) for n, data in installed.items() if n != RECORD)
        if installed_size(installed) == installed_size(new):
            assert installed | {RECORD: new[RECORD]} == new
        else:
            assert installed[RECORD] == old[RECORD]
        user.fetch("published")
        installed = visible()
        assert installed | {RECORD: new[RECORD]} == new
        assert installed_size(installed) == installed_size(new)
        assert len([*user.output.iterdir()]) == len({name.partition("/")[0] for name in new})
        cached = {Path(name).name for name in read(cache)}
        assert cached == {user.archive, user.record, "lock"}

    kill_at_random_steps(lambda: user.fetch("published"), begin, check)


def test_publish(user: User) -> None:
    """Prevents: a killed publish leaves a partial archive or record, or blocks the next publish."""
    before = user.directory / "before"
    new = read(user.published)
    user.put("other", overwrite=True)
    shutil.copytree(user.published, before)
    old = read(user.published)

    def begin() -> None:
        restore(user.published, before)
        shutil.rmtree(user.directory / "cache", ignore_errors=True)

    def check() -> None:
        for name, data in read(user.published).items():
            # Record and signature contain the time.
            if name[0] != "." and name not in (user.record, user.signature):
                assert data in (old[name], new[name])
        user.put("bundle", overwrite=True)
        assert (user.published / user.archive).read_bytes() == new[user.archive]
        user.fetch("published", SIGNED)

    kill_at_random_steps(lambda: user.put("bundle", overwrite=True), begin, check)
