"""The cache of answers: what is read from it, what is written, and what counts as absent."""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qola import answers
from qola.answers import AnswerCache, prune_entries, read_entry, write_entry
from qola.cache import foreign
from tests.setup.cache_rule import give_away

KEY = "0" * 64


class Question:
    """Asks one question of a cache, each time as a new process would, and counts the answers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = "a"
        self.runs = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def ask(self, question: object = "q") -> object:
        """Return the answer: how often one was computed until then."""
        with AnswerCache(self.directory, lambda: self.state) as cache:
            return cache.find(question, Any, self._make)

    def _make(self) -> object:
        self.runs += 1
        self.meanwhile()
        return {"runs": [self.runs]}

    def entries(self) -> list[Path]:
        """Return the files of entries."""
        return sorted(self.directory.iterdir()) if self.directory.is_dir() else []


@pytest.fixture
def question(tmp_path: Path) -> Question:
    return Question(tmp_path / "cache/generated")


def test_an_answer_is_computed_once(question: Question) -> None:
    """Prevents: work that is done again for each command, or an answer to another question."""
    assert [question.ask(), question.ask()] == [{"runs": [1]}] * 2
    assert question.ask("another") == {"runs": [2]}
    question.state = "b"
    assert question.ask() == {"runs": [3]}
    question.state = "a"
    assert question.ask() == {"runs": [1]}


def test_within_one_command(tmp_path: Path) -> None:
    """Prevents: a generator that runs for each module that asks it the same."""
    runs: list[int] = []
    with AnswerCache(tmp_path / "cache", lambda: "a") as cache:
        for _ in range(2):
            assert cache.find_bytes("q", lambda: runs.append(1) or b"x") == b"x"  # type: ignore[func-returns-value]
    assert runs == [1]


def test_an_unknown_state_has_no_answers(question: Question) -> None:
    """Prevents: an answer that something decided which is in no key."""
    question.state = ""
    assert [question.ask(), question.ask()] == [{"runs": [1]}, {"runs": [2]}]
    assert question.entries() == []


def test_a_state_that_changes_meanwhile(question: Question) -> None:
    """Prevents: an answer half of the one and half of the other state, cached as that of one."""
    question.meanwhile = lambda: setattr(question, "state", "b")
    question.ask()
    assert question.entries() == []


def test_an_error_is_not_cached(question: Question) -> None:
    """Prevents: a failure that stays, such as of a full disk."""

    def fail() -> None:
        raise OSError("full")

    question.meanwhile = fail
    with pytest.raises(OSError, match="full"):
        question.ask()
    assert question.entries() == []


def to_fifo(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry)


def to_foreign_link(entry: Path) -> None:
    entry.rename(entry.with_name("x"))
    entry.symlink_to("x")
    give_away(entry)


def to_directory(entry: Path) -> None:
    entry.unlink()
    (entry / "in").mkdir(parents=True)


def to_link_to_itself(entry: Path) -> None:
    entry.unlink()
    entry.symlink_to(entry.name)


def to_bomb(entry: Path) -> None:
    packed = zlib.compress(bytes(answers.UNPACKED + 1))
    entry.write_bytes(hashlib.sha256(entry.name.encode() + packed).digest() + packed)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut short": lambda entry: entry.write_bytes(entry.read_bytes()[:50]),
    "empty": lambda entry: entry.write_bytes(b""),
    "longer": lambda entry: entry.write_bytes(entry.read_bytes() + b"\0"),
    "a byte altered": lambda entry: entry.write_bytes(entry.read_bytes()[:-1] + b"\0"),
    "a FIFO": to_fifo,
    "a directory": to_directory,
    "a link to itself": to_link_to_itself,
    "a bomb": to_bomb,
    "another user's": give_away,
    "a link of another user's": to_foreign_link,
    "writable by a group": lambda entry: entry.chmod(0o620),
    "writable by all": lambda entry: entry.chmod(0o602),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_entry_that_is_damaged_or_foreign_is_replaced(
    question: Question, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Prevents: half an answer, somebody else's sources in one's library, or one that stays so."""
    monkeypatch.setattr(answers, "UNPACKED", 1 << 20)
    question.ask()
    (entry,) = question.entries()
    DAMAGES[damage](entry)
    assert question.ask() == {"runs": [2]}
    assert question.ask() == {"runs": [2]}
    assert (entry.lstat().st_uid, entry.lstat().st_mode & 0o777) == (os.geteuid(), 0o600)


@pytest.mark.parametrize("whose", ["another user's", "this user's, for all to write"])
def test_what_was_planted_does_not_survive_the_repair(question: Question, whose: str) -> None:
    """Prevents: another user's plan, after the command that our own message recommends."""
    question.ask()
    (entry,) = question.entries()
    question.directory.chmod(0o777)
    # A whole entry with this key, as another user who can write to the directory makes it.
    entry.unlink()
    write_entry(question.directory.with_name("theirs"), entry.name, b'"planted"')
    shutil.move(question.directory.with_name("theirs") / entry.name, entry)
    if whose.startswith("this"):
        entry.chmod(0o666)
    else:
        give_away(entry)
    assert question.ask() == {"runs": [2]}
    finding = foreign(question.directory)
    assert finding is not None
    assert f"chmod go-w {question.directory}" in finding.fix
    question.directory.chmod(0o755)
    assert foreign(question.directory) is None
    assert question.ask() == {"runs": [3]}
    assert question.ask() == {"runs": [3]}


def test_an_entry_is_this_users_whatever_the_umask(tmp_path: Path) -> None:
    """Prevents: entries that Debian's umask 0002 makes writable for a group, and so never read."""
    previous = os.umask(0)
    try:
        write_entry(tmp_path / "cache", KEY, b"content")
    finally:
        os.umask(previous)
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert read_entry(tmp_path / "cache", KEY) == b"content"


def test_an_entry_of_another_name_is_absent(tmp_path: Path) -> None:
    """Prevents: an answer to another question, from a cache that was copied or mixed up."""
    write_entry(tmp_path, KEY, b"content")
    assert read_entry(tmp_path, KEY) == b"content"
    other = KEY[:-1] + "1"
    shutil.copy2(tmp_path / KEY, tmp_path / other)
    assert read_entry(tmp_path, other) is None


def test_a_directory_that_others_write_to_gets_nothing(tmp_path: Path) -> None:
    """Prevents: sources of somebody else's in one's own libraries."""
    place = tmp_path / "cache"
    write_entry(place, KEY, b"content")
    place.chmod(0o777)
    assert read_entry(place, KEY) is None
    write_entry(place, KEY[:-1] + "1", b"content")
    assert [path.name for path in place.iterdir()] == [KEY]


def test_a_place_that_takes_nothing_is_not_an_error(tmp_path: Path) -> None:
    """Prevents: a plan that fails because it cannot be cached."""
    (tmp_path / "file").write_text("")
    write_entry(tmp_path / "file/below", KEY, b"content")
    assert read_entry(tmp_path / "file/below", KEY) is None
    (tmp_path / "qola").symlink_to("qola")
    write_entry(tmp_path / "qola", KEY, b"content")
    assert read_entry(tmp_path / "qola", KEY) is None


def test_the_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a cache that grows for ever, or loses the entries that are used most."""
    monkeypatch.setattr(answers, "LIMIT", 3000)
    keys = [KEY[:-1] + str(number) for number in range(4)]
    for age, key in enumerate(keys[:3]):
        write_entry(tmp_path, key, os.urandom(900))
        os.utime(tmp_path / key, (age, age))
    assert read_entry(tmp_path, keys[0]) is not None
    write_entry(tmp_path, keys[3], os.urandom(900))
    prune_entries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [keys[0], keys[2], keys[3]]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3000
