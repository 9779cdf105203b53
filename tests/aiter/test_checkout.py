"""Prepared AITER trees from a wheel, a commit or a directory: complete and recorded, or absent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from conftest import Disk
from qola.checkout.source import GitSource, LocalSource, WheelSource, prepare_tree
from qola.fetch.fetched import fetched_digest
from qola.fetch.pins import pinned_id, recorded_patches
from qola_base.errors import AiterError
from qola_base.files import sha256_of
from tests.aiter.trees import FILES, GENERATOR, PATCH, use_index, write_wheel
from tests.support.folders import git, write


def siblings(directory: Path) -> list[str]:
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
    """Make a repository whose submodule has a relative URL, as in forks."""
    for key, value in {
        # By default git rejects local paths as submodule URLs.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "protocol.file.allow",
        "GIT_CONFIG_VALUE_0": "always",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        # Git hooks set this variable for the programs that they start.
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


def test_patched_wheel(wheel: WheelSource, patch: Path, tmp_path: Path, logged: list[str]) -> None:
    """Prevents: a tree lacks its patches, or AITER.json does not list them."""
    tree = prepare_tree(wheel, tmp_path / "deep/tree", [patch])
    assert (tree / "aiter_meta/csrc/include/mha_fwd.h").read_text() == "// two\n"
    assert pinned_id(tree) == "1.0"
    assert [(p.name, p.sha256) for p in recorded_patches(tree)] == [("1.patch", sha256_of(patch))]
    assert logged == ["fetching qola-tiny==1.0", "applying 1 patch"]
    assert siblings(tree) == ["tree"]


def test_prepared_tree_is_reused(wheel: WheelSource, tmp_path: Path) -> None:
    """Prevents: every run fetches the tree again and overwrites the user's edits."""
    tree = prepare_tree(wheel, tmp_path / "tree")
    edited = tree / "aiter_meta/csrc/include/mha_fwd.h"
    edited.write_text("// edited\n")
    shutil.rmtree(tmp_path / "index")
    assert prepare_tree(wheel, tree) == tree
    assert edited.read_text() == "// edited\n"


def test_different_tree_is_replaced_only_on_request(
    local: LocalSource, patch: Path, tmp_path: Path
) -> None:
    """Prevents: a build uses outdated patches, or qola deletes user files without a request."""
    tree = prepare_tree(local, tmp_path / "tree")
    with pytest.raises(AiterError, match="another AITER tree"):
        prepare_tree(local, tree, [patch])
    prepare_tree(local, tree, [patch], replace_existing=True)
    assert (tree / "csrc/include/mha_fwd.h").read_text() == "// two\n"
    (tree / "AITER.json").unlink()
    with pytest.raises(AiterError, match="something that is not a prepared AITER tree"):
        prepare_tree(local, tree, replace_existing=True)
    assert (tree / "csrc/include/mha_fwd.h").read_text() == "// two\n"


def test_wheel_with_wrong_digest_leaves_no_files(wheel: WheelSource, tmp_path: Path) -> None:
    """Prevents: the next run uses an incomplete tree."""
    wrong = WheelSource(wheel.version, "0" * 64, wheel.package)
    with pytest.raises(AiterError, match=r"qola-tiny==1\.0"):
        prepare_tree(wrong, tmp_path / "new/tree")
    assert siblings(tmp_path / "new/tree") == []


def test_failed_patch_keeps_the_previous_tree(
    local: LocalSource, patch: Path, tmp_path: Path
) -> None:
    """Prevents: a patch that does not apply deletes the previous tree or leaves it half patched."""
    tree = prepare_tree(local, tmp_path / "trees/tree")
    patch.write_text(PATCH.replace("// one", "// once"))
    with pytest.raises(AiterError, match="-// once"):
        prepare_tree(local, tree, [patch], replace_existing=True)
    assert (tree / "csrc/include/mha_fwd.h").read_text() == "// one\n"
    assert siblings(tree) == ["tree"]


def test_failed_rename_restores_the_previous_tree(
    wheel: WheelSource, local: LocalSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a failed rename leaves neither the old nor the new tree."""
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


def test_commit_with_submodule(commit: GitSource, patch: Path, tmp_path: Path) -> None:
    """Prevents: a tree of another commit, without CK, or with .git directories."""
    tree = prepare_tree(commit, tmp_path / "tree", [patch])
    assert (tree / GENERATOR).read_text() == "# CK\n"
    assert (tree / "csrc/include/mha_fwd.h").read_text() == "// two\n"
    assert pinned_id(tree) == commit.commit
    assert not list(tree.rglob(".git"))


@pytest.mark.parametrize(
    ("requested", "found"),
    [("main", "40 hexadecimal digits"), ("0" * 40, f"commit {'0' * 40} of ")],
)
def test_invalid_commit(commit: GitSource, tmp_path: Path, requested: str, found: str) -> None:
    """Prevents: qola accepts a branch as a pin, or a git error omits the commit and the remote."""
    with pytest.raises(AiterError, match=found):
        prepare_tree(GitSource(commit.remote, requested), tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_local_submodule_error_names_the_setting(
    commit: GitSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: "transport 'file' not allowed" without the git setting that allows it."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "0")
    with pytest.raises(AiterError, match=r"protocol\.file\.allow always"):
        prepare_tree(commit, tmp_path / "tree")


def test_local_tree_is_copied(local: LocalSource, patch: Path, tmp_path: Path) -> None:
    """Prevents: patches change the user's tree, directly or through symlinks in the copy."""
    (local.path / "csrc/include/link.h").symlink_to(local.path / "csrc/include/mha_fwd.h")
    tree = prepare_tree(local, tmp_path / "tree", [patch])
    assert (local.path / "csrc/include/mha_fwd.h").read_text() == "// one\n"
    assert (tree / "csrc/include/mha_fwd.h").read_text() == "// two\n"
    assert not (tree / "csrc/include/link.h").is_symlink()
    assert pinned_id(tree) == ""


def test_copy_of_a_prepared_tree_keeps_its_record(
    local: LocalSource, patch: Path, tmp_path: Path
) -> None:
    """Prevents: a copy of a patched tree counts as unpatched."""
    (local.path / "AITER.json").write_text('{"kind": "wheel", "version": "1.0", "patches": []}')
    first = prepare_tree(local, tmp_path / "first", [patch])
    second_patch = (
        write(tmp_path, {"2.patch": PATCH.replace("two", "3").replace("one", "two")}) / "2.patch"
    )
    second = prepare_tree(LocalSource(first), tmp_path / "second", [second_patch])
    assert pinned_id(second) == "1.0"
    assert [patch.name for patch in recorded_patches(second)] == ["1.patch", "2.patch"]


def test_directory_without_aiter(tmp_path: Path) -> None:
    """Prevents: qola copies for minutes, then reports an error in a temporary directory."""
    (tmp_path / "source").mkdir()
    message = rf"error: {tmp_path}/source.*\n.*no aiter/jit/optCompilerConfig\.json"
    with pytest.raises(AiterError, match=message):
        prepare_tree(LocalSource(tmp_path / "source"), tmp_path / "tree")
    assert siblings(tmp_path / "tree") == ["source"]


@pytest.mark.parametrize("options", ["nr_inodes=6", "nr_inodes=9", "size=8k"])
def test_full_disk(local: LocalSource, patch: Path, disk: Disk, options: str) -> None:
    """Prevents: an incomplete tree counts as complete, or a full disk logs thousands of lines."""
    directory = disk(options)
    with pytest.raises(AiterError) as caught:
        prepare_tree(local, directory / "tree", [patch])
    error_text = str(caught.value)
    assert f"error: {directory}/" in error_text
    assert "No space left on device" in error_text
    assert "df -i" in error_text
    assert len(error_text) < 3000
    assert not list(directory.iterdir())


def test_fetched_trees_have_a_digest(
    wheel: WheelSource, commit: GitSource, patch: Path, tmp_path: Path
) -> None:
    """Prevents: qola caches plans of an editable copy, or no plans of a fetched tree."""
    for source, name in ((wheel, "wheel"), (commit, "git")):
        tree = prepare_tree(source, tmp_path / name, [patch])
        assert fetched_digest(tree)
        copy = prepare_tree(LocalSource(tree), tmp_path / f"{name}-copy")
        assert fetched_digest(copy) == ""
        (next(tree.rglob("mha_fwd.h"))).write_text("// edited\n")
        assert fetched_digest(tree) == ""
