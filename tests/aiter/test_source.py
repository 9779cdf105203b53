"""Which AITER a build uses, and what happens to the directory that is named for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from qola.checkout.prepare import GitSource, LocalSource, WheelSource
from qola.checkout.request import AiterRequest
from qola.checkout.source import checkout, choose, pinned_source, use_as_is
from qola.errors import AiterError
from tests.aiter.trees import FILES, PATCH
from tests.support.folders import git, write

PIN = {"package": "amd-aiter", "sha256": "a" * 64, "version": "0.1.7.post2"}
NOTHING = AiterRequest(
    root=None, commit=None, commit_asked=False, remote="/no/remote", patches_dir=None, pin=PIN
)


@pytest.fixture
def patches(tmp_path: Path) -> Path:
    """A folder with a patch of the tree above."""
    return write(tmp_path / "patches", {"0001.patch": PATCH})


@pytest.fixture
def remote(tmp_path: Path) -> tuple[str, str]:
    """A repository with the tree above, and its commit."""
    root = write(tmp_path / "remote", FILES)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["tag", "v1"]):
        git(root, *command)
    return str(root), git(root, "rev-parse", "HEAD")


def test_without_a_word_it_is_the_pinned_wheel(patches: Path) -> None:
    """Prevents: a build that needs git, or a commit, where qola has a pin."""
    assert choose(NOTHING).source == WheelSource("0.1.7.post2", "a" * 64)
    for commit in ("0.1.7.post2", "v0.1.7.post2"):
        found = choose(replace(NOTHING, commit=commit, patches_dir=patches))
        assert found.source == WheelSource("0.1.7.post2", "a" * 64)
        assert found.patches_dir == patches


def test_commit_comes_from_the_remote(remote: tuple[str, str]) -> None:
    """Prevents: a tag that is handed to Bazel, whose meaning may change, in place of its commit."""
    url, commit = remote
    for name in (commit, "v1", commit[:8]):
        request = replace(NOTHING, commit=name, remote=url)
        assert pinned_source(request) == GitSource(url, commit)


def test_own_tree_is_left_as_it_is(tmp_path: Path, patches: Path) -> None:
    """Prevents: a user's checkout that is reset or patched in place."""
    root = write(tmp_path / "own", FILES)
    request = replace(NOTHING, root=root, commit="d32b0cb62", patches_dir=patches)
    found = choose(request)
    assert (found.source, found.patches_dir) == (LocalSource(root), patches)
    assert (root / "csrc/include/mha_fwd.h").read_text() == "// one\n"
    with pytest.raises(AiterError, match=f"fix .*git -C {root} checkout d32b0cb62"):
        choose(replace(request, commit_asked=True))


def test_absent_root_is_made(tmp_path: Path, remote: tuple[str, str], patches: Path) -> None:
    """Prevents: QoLA's `build --aiter-root NEW`, which clones, failing; patches applied twice."""
    url, commit = remote
    root = tmp_path / "new"
    request = replace(NOTHING, root=root, commit="v1", remote=url, patches_dir=patches)
    for _ in range(2):
        found = choose(request)
        assert (found.source, found.patches_dir) == (LocalSource(root), None)
        assert (root / "csrc/include/mha_fwd.h").read_text() == "// two\n"
    assert json.loads((root / "AITER.json").read_text())["commit"] == commit
    # No commit is named: the tree is what it is, patched as it should be or not.
    found = choose(replace(request, commit=None))
    assert (found.source, found.patches_dir) == (LocalSource(root), None)


def test_prepared_tree_with_other_patches(
    tmp_path: Path, remote: tuple[str, str], patches: Path
) -> None:
    """Prevents: patches on top of others; a tree built with patches that nobody asked for."""
    root = tmp_path / "new"
    request = replace(NOTHING, root=root, commit="v1", remote=remote[0], patches_dir=patches)
    checkout(request, root)
    with pytest.raises(AiterError, match=r"found .*0001\.patch.*\n +expected +with no patches"):
        choose(replace(request, commit=None, patches_dir=None))
    (patches / "0002.patch").write_text("another")
    fix = f"fix +qola checkout --aiter-root {root} --patches-dir {patches} "
    with pytest.raises(AiterError, match=fix):
        choose(replace(request, commit=None))
    assert (root / "csrc/include/mha_fwd.h").read_text() == "// two\n"


def test_no_tree(tmp_path: Path) -> None:
    """Prevents: --skip-checkout without a tree that fails only in Bazel."""
    with pytest.raises(AiterError, match=r"found +no such directory"):
        use_as_is(tmp_path / "absent")
