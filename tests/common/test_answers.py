"""The cache of answers: cached and computed answers, and damaged or foreign entries."""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qola.common import answers
from qola.common.answers import AnswerCache, prune_entries, read_entry, write_entry
from qola_base.cache import foreign
from tests.setup.cache_rule import give_away

KEY = "0" * 64


class CachedQuestion:
    """Asks a cache as a new process would, and counts computed answers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = "a"
        self.runs = 0
        self.during_computation: Callable[[], object] = lambda: None

    def ask(self, question: object = "q") -> object:
        """Return the answer, which contains the number of computed answers at that time."""
        with AnswerCache(self.directory, lambda: self.state) as cache:
            return cache.find(question, Any, self._compute)

    def _compute(self) -> object:
        self.runs += 1
        self.during_computation()
        return {"runs": [self.runs]}

    def entries(self) -> list[Path]:
        """Return the files of cache entries."""
        return sorted(self.directory.iterdir()) if self.directory.is_dir() else []


@pytest.fixture
def question(tmp_path: Path) -> CachedQuestion:
    return CachedQuestion(tmp_path / "cache/generated")


def test_answer_is_computed_once(question: CachedQuestion) -> None:
    """Prevents: an answer computed again for each command, or an answer to another question."""
    assert [question.ask(), question.ask()] == [{"runs": [1]}] * 2
    assert question.ask("another") == {"runs": [2]}
    question.state = "b"
    assert question.ask() == {"runs": [3]}
    question.state = "a"
    assert question.ask() == {"runs": [1]}


def test_answers_are_shared_within_a_command(tmp_path: Path) -> None:
    """Prevents: a generator that runs for each module although their questions are equal."""
    runs: list[int] = []
    with AnswerCache(tmp_path / "cache", lambda: "a") as cache:
        for _ in range(2):
            assert cache.find_read("q", lambda: runs.append(1) or b"x", bytes) == b"x"  # type: ignore[func-returns-value]
    assert runs == [1]


def test_unknown_state_has_no_answers(question: CachedQuestion) -> None:
    """Prevents: a cached answer that depends on a state which its key does not contain."""
    question.state = ""
    assert [question.ask(), question.ask()] == [{"runs": [1]}, {"runs": [2]}]
    assert question.entries() == []


def test_state_that_changes_during_computation(question: CachedQuestion) -> None:
    """Prevents: an answer computed from two states of a tree, cached for one of these states."""
    question.during_computation = lambda: setattr(question, "state", "b")
    question.ask()
    assert question.entries() == []


def test_errors_are_not_cached(question: CachedQuestion) -> None:
    """Prevents: a temporary failure, such as a full disk, that is cached."""

    def fail() -> None:
        raise OSError("full")

    question.during_computation = fail
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
def test_damaged_or_foreign_entry_is_replaced(
    question: CachedQuestion, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Prevents: a partial answer, another user's sources in a library, or a permanent error."""
    monkeypatch.setattr(answers, "UNPACKED", 1 << 20)
    question.ask()
    (entry,) = question.entries()
    DAMAGES[damage](entry)
    assert question.ask() == {"runs": [2]}
    assert question.ask() == {"runs": [2]}
    assert (entry.lstat().st_uid, entry.lstat().st_mode & 0o777) == (os.geteuid(), 0o600)


@dataclass(frozen=True)
class Counted:
    """An answer with a type."""

    name: str
    runs: tuple[int, ...]


@pytest.mark.parametrize(
    "content",
    [b"{}", b"[]", b"null", b"", b"\xff", b"[" * 5000, b'{"name": 1, "runs": []}', b"9" * 5000],
)
def test_entry_of_another_shape_is_replaced(tmp_path: Path, content: bytes) -> None:
    """Prevents: a traceback for an entry with the right digest that is not such an answer."""
    runs: list[int] = []

    def find() -> Counted:
        def compute() -> Counted:
            runs.append(len(runs) + 1)
            return Counted("a", tuple(runs))

        with AnswerCache(tmp_path, lambda: "a") as cache:
            found: Counted = cache.find("q", Counted, compute)
            return found

    find()
    (entry,) = tmp_path.iterdir()
    write_entry(tmp_path, entry.name, content)
    assert [find(), find()] == [Counted("a", (1, 2))] * 2


def test_answer_outside_of_the_locales_encoding_is_returned(tmp_path: Path) -> None:
    """Prevents: a traceback for a manifest's path with bytes that the locale cannot decode."""
    answer = Counted(os.fsdecode(b"q\xff"), (1,))
    for _ in range(2):
        with AnswerCache(tmp_path, lambda: "a") as cache:
            assert cache.find("q", Counted, lambda: answer) == answer


@pytest.mark.parametrize("owner", ["another user's", "this user's, for all to write"])
def test_planted_entries_do_not_survive_the_repair(question: CachedQuestion, owner: str) -> None:
    """Prevents: another user's plan used after the user ran the chmod that qola recommends."""
    question.ask()
    (entry,) = question.entries()
    question.directory.chmod(0o777)
    # A complete entry with this key, as another user with write permission can create.
    entry.unlink()
    write_entry(question.directory.with_name("theirs"), entry.name, b'"planted"')
    shutil.move(question.directory.with_name("theirs") / entry.name, entry)
    if owner.startswith("this"):
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


def test_entries_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    """Prevents: entries that are group-writable by Debian's umask 0002, and so ignored."""
    previous = os.umask(0)
    try:
        write_entry(tmp_path / "cache", KEY, b"content")
    finally:
        os.umask(previous)
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert read_entry(tmp_path / "cache", KEY) == b"content"


def test_renamed_entry_is_absent(tmp_path: Path) -> None:
    """Prevents: an answer to another question, from a cache whose files were copied or renamed."""
    write_entry(tmp_path, KEY, b"content")
    assert read_entry(tmp_path, KEY) == b"content"
    other = KEY[:-1] + "1"
    shutil.copy2(tmp_path / KEY, tmp_path / other)
    assert read_entry(tmp_path, other) is None


def test_unusable_cache_directory_is_no_error(tmp_path: Path) -> None:
    """Prevents: a plan that fails because its answers cannot be cached."""
    (tmp_path / "file").write_text("")
    write_entry(tmp_path / "file/below", KEY, b"content")
    assert read_entry(tmp_path / "file/below", KEY) is None
    (tmp_path / "qola").symlink_to("qola")
    write_entry(tmp_path / "qola", KEY, b"content")
    assert read_entry(tmp_path / "qola", KEY) is None


def test_cache_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a cache that grows without limit, or loses recently used entries."""
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
