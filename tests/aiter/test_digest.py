"""The digest of a tree: trees that a build can distinguish have different digests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qola.fetch.fetched import tree_digest
from qola_base.errors import AiterError
from qola_base.files import sha256_of_text
from tests.support.folders import write

_ONE = sha256_of_text("1")


def _link(target: str, name: str = "l", **files: str) -> Callable[[Path], object]:
    """Return a function that writes a symlink and files; __ in file names stands for a slash."""

    def make(root: Path) -> None:
        write(root, {file.replace("__", "/") + ".h": text for file, text in files.items()})
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).symlink_to(target)

    return make


def _files(files: dict[str, str]) -> Callable[[Path], object]:
    return lambda root: write(root, files)


def _bytes_name(name: bytes, mode: int = 0o644) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"1")
        Path(os.fsdecode(path)).chmod(mode)

    return make


def _outside(content: str) -> Callable[[Path], object]:
    """Return a function that writes a symlink to an outside directory, which links back."""

    def make(root: Path) -> None:
        outside = write(root.parent / f"{root.name}.beside", {"x.h": content})
        (outside / "back").symlink_to(root)
        (root / "l").symlink_to(outside)

    return make


def _git(content: str) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        write(root, {".git/x.h": content})
        (root / "l").symlink_to(".git/x.h")
        (root / "m").symlink_to(".git")

    return make


TREES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda root: None,
    "an empty directory": lambda root: (root / "a").mkdir(),
    "one file": _files({"a": "1"}),
    "the same elsewhere": _files({"b": "1"}),
    "other content": _files({"a": "2"}),
    "two files": _files({"a": "1", "b": "1"}),
    "two in one name": _files({f"a\n{_ONE}  b": "1"}),
    "digest before": _files({f"{_ONE}  a": "1"}),
    "a program": _bytes_name(b"a", 0o755),
    "in a directory": _files({"a/b": "1"}),
    "a name that is not UTF-8": _bytes_name(b"\xff"),
    "another": _bytes_name(b"\xfe"),
    "such a directory": _bytes_name(b"\xff/a"),
    "text in place of a link": _files({"l": "link to nowhere"}),
    "a link to nowhere": _link("nowhere"),
    "a link to elsewhere": _link("elsewhere"),
    "a link to itself": _link("l"),
    "a link to a file": _link("a.h", a="1"),
    "a copy": _files({"a.h": "1", "l": "1"}),
    "a link to another file": _link("b.h", a="1", b="1"),
    "a link to the same, there": _link("a.h", a="1", b="1"),
    "a directory": _files({"d/a.h": "1"}),
    "a link to a directory": _link("d", d__a="1"),
    "a link before a directory": _link("d", "a", d__a="1"),
    "a copy of a directory": _files({"d/a.h": "1", "l/a.h": "1"}),
    "the other way round": _link("l", "d", l__a="1"),
    "a link to the root": _link("."),
    "a link out": _outside("1"),
    "a link out to other content": _outside("2"),
    "a link to git's": _git("1"),
    "a link to others of git's": _git("2"),
    "of a ruleset's name": _files({"_ruleset/x.py": "1"}),
    "byte code without a source": _files({"x.pyc": "1"}),
    "a header among byte code": _files({"__pycache__/x.h": "1"}),
}


def test_different_trees_have_different_digests(tmp_path: Path) -> None:
    """Prevents: a cache returns the bundle of another tree."""
    first_names: dict[str, str] = {}
    for number, (name, write_tree) in enumerate(TREES.items()):
        root = tmp_path / str(number)
        root.mkdir()
        write_tree(root)
        digest = tree_digest(root)
        assert digest not in first_names, f"{name} has the digest of {first_names[digest]}"
        first_names[digest] = name
    assert len(first_names) == len(TREES)


def test_digest_ignores_place_mode_git_and_bytecode(tmp_path: Path) -> None:
    """Prevents: a cache miss because of another path, umask, .git files or Python byte code."""
    first = write(tmp_path / "one", {"d/a.py": "1", "b": "2"})
    (first / "d/l").symlink_to(first / "b")
    two = write(tmp_path / "deeper/two", {"d/a.py": "1", "b": "2"})
    (two / "d/l").symlink_to("../b")
    before = tree_digest(first)
    write(two, {"d/__pycache__/a.cpython-311.pyc": "3", ".git/HEAD": "4", "d/.git": "gitdir: x"})
    (two / "d/a.py").chmod(0o600)
    assert tree_digest(two) == before
    (tmp_path / "link").symlink_to(two)
    assert tree_digest(tmp_path / "link") == before
    shutil.rmtree(two / "d/__pycache__")
    assert tree_digest(two) == before


def test_special_files_are_rejected(tmp_path: Path) -> None:
    """Prevents: qola blocks on a pipe, or leaves special files out of the digest."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AiterError, match=rf"error: {tmp_path}/pipe\n +found +a pipe"):
        tree_digest(tmp_path)
