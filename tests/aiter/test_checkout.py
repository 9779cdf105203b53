"""Prepared AITER trees, from wheel, commit and directory: complete and recorded, or absent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from qola.checkout.prepare import GitSource, LocalSource, WheelSource, prepare_tree
from qola.errors import AiterError
from qola.fetch.fetched import fetched_digest
from qola.fetch.pins import pinned_id, recorded_patches
from qola.files import sha256_of
from tests.aiter.trees import FILES, GENERATOR, PATCH, use_index, write_wheel
from tests.conftest import Disk
from tests.support.folders import git, write


def beside(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.parent.iterdir())


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    return write(tmp_path / "patches", {"1.patch": PATCH}) / "1.patch"


@pytest.fixture
def local(tmp_path: Path) -> LocalSource:
    return LocalSource(write(tmp_path / "source", FILES))


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelSource:
    use_index(monkeypatch, tmp_path / "index")
    return WheelSource(
        "1.0", sha256_of(write_wheel(tmp_path / "index", "qola-tiny", "1.0")), "qola-tiny"
    )


@pytest.fixture
def commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitSource:
    """Make a repository whose submodule has a URL relative to it, as forks have."""
    for key, value in {
        # Of submodules git takes no local paths unless the user allows it.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "protocol.file.allow",
        "GIT_CONFIG_VALUE_0": "always",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        # What a hook that starts qola would leave behind.
        "GIT_DIR": str(tmp_path / "nowhere"),
    }.items():
        monkeypatch.setenv(key, value)

    submodule = "3rdparty/composable_kernel"
    for name, prefix in (("ck", f"{submodule}/"), ("aiter", "")):
        files = {
            path.removeprefix(prefix): text
            for path, text in FILES.items()
            if path.startswith(prefix) and (prefix or submodule not in path)
        }
        repository = write(tmp_path / "remote" / name, files)
        git(repository, "init", "-q")
        if not prefix:
            git(repository, "submodule", "add", "-q", "../ck", submodule)
        git(repository, "add", ".")
        git(repository, "commit", "-qm", name)
    pinned = git(repository, "rev-parse", "HEAD")
    git(repository, "commit", "-qm", "later", "--allow-empty")
    return GitSource(str(repository), pinned)


def test_a_wheel_with_patches(
    wheel: WheelSource, patch: Path, tmp_path: Path, logged: list[str]
) -> None:
    """Prevents: a tree without its patches, or one that does not say which it has."""
    tree = prepare_tree(wheel, tmp_path / "deep/tree", [patch])
    assert (tree / "aiter_meta/csrc/include/mha_fwd.h").read_text() == "// two\n"
    assert pinned_id(tree) == "1.0"
    assert [(p.name, p.sha256) for p in recorded_patches(tree)] == [("1.patch", sha256_of(patch))]
    assert logged == ["fetching qola-tiny==1.0", "applying 1 patch"]
    assert beside(tree) == ["tree"]


def test_a_prepared_tree_is_taken_as_it_is(wheel: WheelSource, tmp_path: Path) -> None:
    """Prevents: a fetch per run, and a user's edits lost to it."""
    tree = prepare_tree(wheel, tmp_path / "tree")
    edited = tree / "aiter_meta/csrc/include/mha_fwd.h"
    edited.write_text("// edited\n")
    shutil.rmtree(tmp_path / "index")
    assert prepare_tree(wheel, tree) == tree
    assert edited.read_text() == "// edited\n"


def test_another_tree_is_replaced_only_on_request(
    local: LocalSource, patch: Path, tmp_path: Path
) -> None:
    """Prevents: libraries built with yesterday's patches; work of a user's deleted unasked."""
    tree = prepare_tree(local, tmp_path / "tree")
    with pytest.raises(AiterError, match="another AITER tree"):
        prepare_tree(local, tree, [patch])
    prepare_tree(local, tree, [patch], replace_existing=True)
    assert (tree / "csrc/include/mha_fwd.h").read_text() == "// two\n"
    (tree / "AITER.json").unlink()
    with pytest.raises(AiterError, match="something that is not a prepared AITER tree"):
        prepare_tree(local, tree, replace_existing=True)
    assert (tree / "csrc/include/mha_fwd.h").read_text() == "// two\n"


def test_a_tampered_wheel_leaves_nothing(wheel: WheelSource, tmp_path: Path) -> None:
    """Prevents: half a tree that the next run takes for a whole one."""
    wrong = WheelSource(wheel.version, "0" * 64, wheel.package)
    with pytest.raises(AiterError, match=r"qola-tiny==1\.0"):
        prepare_tree(wrong, tmp_path / "new/tree")
    assert beside(tmp_path / "new/tree") == []


def test_a_patch_that_fails_leaves_what_was_there(
    local: LocalSource, patch: Path, tmp_path: Path
) -> None:
    """Prevents: a good tree lost to a patch that does not fit, or one half patched."""
    tree = prepare_tree(local, tmp_path / "trees/tree")
    patch.write_text(PATCH.replace("// one", "// once"))
    with pytest.raises(AiterError, match="-// once"):
        prepare_tree(local, tree, [patch], replace_existing=True)
    assert (tree / "csrc/include/mha_fwd.h").read_text() == "// one\n"
    assert beside(tree) == ["tree"]


def test_a_tree_that_cannot_be_moved_brings_the_old_one_back(
    wheel: WheelSource, local: LocalSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: neither old nor new tree where a rename fails."""
    tree = prepare_tree(wheel, tmp_path / "tree")
    before = (tree / "AITER.json").read_text()
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self.name == "tree" and self != tree:
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="No space"):
        prepare_tree(local, tree, replace_existing=True)
    assert (tree / "AITER.json").read_text() == before


def test_a_commit_with_its_submodule(commit: GitSource, patch: Path, tmp_path: Path) -> None:
    """Prevents: another commit than the pinned one, a tree without CK, git's files among it."""
    tree = prepare_tree(commit, tmp_path / "tree", [patch])
    assert (tree / GENERATOR).read_text() == "# CK\n"
    assert (tree / "csrc/include/mha_fwd.h").read_text() == "// two\n"
    assert pinned_id(tree) == commit.commit
    assert not list(tree.rglob(".git"))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("main", "40 hexadecimal digits"), ("0" * 40, f"commit {'0' * 40} of ")],
)
def test_a_commit_that_is_none(commit: GitSource, tmp_path: Path, wanted: str, found: str) -> None:
    """Prevents: a branch taken for a pin; git's failure without which commit was asked of whom."""
    with pytest.raises(AiterError, match=found):
        prepare_tree(GitSource(commit.remote, wanted), tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_a_local_submodule_is_explained(
    commit: GitSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: "transport 'file' not allowed" without the setting that allows it."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "0")
    with pytest.raises(AiterError, match=r"protocol\.file\.allow always"):
        prepare_tree(commit, tmp_path / "tree")


def test_a_copy_of_a_directory(local: LocalSource, patch: Path, tmp_path: Path) -> None:
    """Prevents: a user's own tree patched, or reached through links of the copy."""
    (local.path / "csrc/include/link.h").symlink_to(local.path / "csrc/include/mha_fwd.h")
    tree = prepare_tree(local, tmp_path / "tree", [patch])
    assert (local.path / "csrc/include/mha_fwd.h").read_text() == "// one\n"
    assert (tree / "csrc/include/mha_fwd.h").read_text() == "// two\n"
    assert not (tree / "csrc/include/link.h").is_symlink()
    assert pinned_id(tree) == ""


def test_a_copy_of_a_prepared_tree_keeps_its_pin(
    local: LocalSource, patch: Path, tmp_path: Path
) -> None:
    """Prevents: a patched tree that counts as unpatched once it was copied."""
    (local.path / "AITER.json").write_text('{"kind": "wheel", "version": "1.0", "patches": []}')
    first = prepare_tree(local, tmp_path / "first", [patch])
    more = write(tmp_path, {"2.patch": PATCH.replace("two", "3").replace("one", "two")}) / "2.patch"
    second = prepare_tree(LocalSource(first), tmp_path / "second", [more])
    assert pinned_id(second) == "1.0"
    assert [patch.name for patch in recorded_patches(second)] == ["1.patch", "2.patch"]


def test_a_directory_that_is_no_aiter(tmp_path: Path) -> None:
    """Prevents: minutes of copying, and then a message about a temporary directory."""
    (tmp_path / "source").mkdir()
    message = rf"error: {tmp_path}/source.*\n.*no aiter/jit/optCompilerConfig\.json"
    with pytest.raises(AiterError, match=message):
        prepare_tree(LocalSource(tmp_path / "source"), tmp_path / "tree")
    assert beside(tmp_path / "tree") == ["source"]


@pytest.mark.parametrize("options", ["nr_inodes=6", "nr_inodes=9", "size=8k"])
def test_no_room_for_a_copy(local: LocalSource, patch: Path, disk: Disk, options: str) -> None:
    """Prevents: half a tree taken for one; thousands of lines for one full disk."""
    place = disk(options)
    with pytest.raises(AiterError) as caught:
        prepare_tree(local, place / "tree", [patch])
    told = str(caught.value)
    assert f"error: {place}/" in told
    assert "No space left on device" in told
    assert "df -i" in told
    assert len(told) < 3000
    assert not list(place.iterdir())


def test_a_fetched_tree_is_known_as_such(
    wheel: WheelSource, commit: GitSource, patch: Path, tmp_path: Path
) -> None:
    """Prevents: plans that are cached for a copy somebody edits, or not for what was fetched."""
    for source, name in ((wheel, "wheel"), (commit, "git")):
        tree = prepare_tree(source, tmp_path / name, [patch])
        assert fetched_digest(tree)
        copy = prepare_tree(LocalSource(tree), tmp_path / f"{name}-copy")
        assert fetched_digest(copy) == ""
        (next(tree.rglob("mha_fwd.h"))).write_text("// edited\n")
        assert fetched_digest(tree) == ""
