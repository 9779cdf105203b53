"""Selection of the AITER tree for a build, and preparation of the directory that a user names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from qola.checkout.request import AiterRequest
from qola.checkout.source import (
    GitSource,
    LocalSource,
    WheelSource,
    checkout,
    choose,
    pinned_source,
    use_as_is,
)
from qola_base.errors import AiterError
from tests.aiter.trees import FILES, PATCH
from tests.support.folders import git, write

PINNED = WheelSource("0.1.7.post2", "a" * 64)
DEFAULTS = AiterRequest(
    root=None, commit=None, commit_asked=False, remote="/no/remote", patches_dir=None
)


@pytest.fixture(autouse=True)
def pin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pin another wheel than the ruleset's file."""
    monkeypatch.setattr("qola.checkout.source.pinned_wheel", lambda: PINNED)


@pytest.fixture
def patches(tmp_path: Path) -> Path:
    """A directory with a patch of the tree in trees.py."""
    return write(tmp_path / "patches", {"0001.patch": PATCH})


@pytest.fixture
def remote(tmp_path: Path) -> tuple[str, str]:
    """A repository with the tree in trees.py, and its commit."""
    root = write(tmp_path / "remote", FILES)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["tag", "v1"]):
        git(root, *command)
    return str(root), git(root, "rev-parse", "HEAD")


def test_default_is_the_pinned_wheel(patches: Path) -> None:
    """Prevents: a build needs git or a commit although qola pins a wheel."""
    assert choose(DEFAULTS).source == PINNED
    for commit in ("0.1.7.post2", "v0.1.7.post2"):
        found = choose(replace(DEFAULTS, commit=commit, patches_dir=patches))
        assert (found.source, found.patches_dir) == (PINNED, patches)


def test_names_are_resolved_to_commits(remote: tuple[str, str]) -> None:
    """Prevents: qola passes Bazel a tag, which may move, instead of a commit."""
    url, commit = remote
    for name in (commit, "v1", commit[:8]):
        request = replace(DEFAULTS, commit=name, remote=url)
        assert pinned_source(request) == GitSource(url, commit)


def test_user_tree_is_not_changed(tmp_path: Path, patches: Path) -> None:
    """Prevents: qola resets or patches a user's checkout in place."""
    root = write(tmp_path / "own", FILES)
    request = replace(DEFAULTS, root=root, commit="d32b0cb62", patches_dir=patches)
    found = choose(request)
    assert (found.source, found.patches_dir) == (LocalSource(root), patches)
    assert (root / "csrc/include/mha_fwd.h").read_text() == "// one\n"
    with pytest.raises(AiterError, match=f"fix .*git -C {root} checkout d32b0cb62"):
        choose(replace(request, commit_asked=True))


def test_missing_root_is_cloned(tmp_path: Path, remote: tuple[str, str], patches: Path) -> None:
    """Prevents: QoLA's `build --aiter-root NEW` fails to clone, or applies patches twice."""
    url, commit = remote
    root = tmp_path / "new"
    request = replace(DEFAULTS, root=root, commit="v1", remote=url, patches_dir=patches)
    for _ in range(2):
        found = choose(request)
        assert (found.source, found.patches_dir) == (LocalSource(root), None)
        assert (root / "csrc/include/mha_fwd.h").read_text() == "// two\n"
    assert json.loads((root / "AITER.json").read_text())["commit"] == commit
    # Without a commit, qola uses the tree with its recorded patches.
    found = choose(replace(request, commit=None))
    assert (found.source, found.patches_dir) == (LocalSource(root), None)


def test_prepared_tree_with_other_patches(
    tmp_path: Path, remote: tuple[str, str], patches: Path
) -> None:
    """Prevents: qola patches a patched tree again, or builds it with patches not requested."""
    root = tmp_path / "new"
    request = replace(DEFAULTS, root=root, commit="v1", remote=remote[0], patches_dir=patches)
    checkout(request, root)
    with pytest.raises(AiterError, match=r"found .*0001\.patch.*\n +expected +with no patches"):
        choose(replace(request, commit=None, patches_dir=None))
    (patches / "0002.patch").write_text("another")
    fix = f"fix +qola checkout --aiter-root {root} --patches-dir {patches} "
    with pytest.raises(AiterError, match=fix):
        choose(replace(request, commit=None))
    assert (root / "csrc/include/mha_fwd.h").read_text() == "// two\n"


def test_missing_tree(tmp_path: Path) -> None:
    """Prevents: --skip-checkout without a tree fails only in Bazel."""
    with pytest.raises(AiterError, match=r"found +no such directory"):
        use_as_is(tmp_path / "absent")
