"""Patches of AITER's sources: output of git applies exactly, and rejected hunks are printed."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from qola.fetch.patches import apply_patches, main
from qola.fetch.pins import PatchPin, patch_files, pin_patches, pinned_id, recorded_patches
from qola_base.errors import AiterError
from tests.support.folders import git, read, write

BODY = "".join(f"line {n}\n" for n in range(1, 21))
CHANGE = """\
diff --git a/csrc/a.cpp b/csrc/a.cpp
--- a/csrc/a.cpp
+++ b/csrc/a.cpp
@@ -9,3 +9,3 @@ section
 line 9
-line 10
+line ten
 line 11
"""
HEADER = CHANGE.partition("@@")[0]


def new_file(path: str, mode: str, line: str) -> str:
    """Return a diff that adds a file of one line."""
    header = f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
    return f"{header}@@ -0,0 +1 @@\n+{line}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with one source."""
    return write(tmp_path / "tree", {"csrc/a.cpp": BODY})


def patch(tree: Path, text: str, name: str = "0001.patch") -> Path:
    file = tree.parent / name
    file.write_bytes(text.encode())
    return file


def rejection(tree: Path, *patches: Path) -> str:
    """Return the error text of a rejected patch, and check that the tree did not change."""
    before = read(tree)
    with pytest.raises(AiterError) as error:
        apply_patches(tree, patches, display="patches")
    assert read(tree) == before
    return str(error.value)


def test_patches_are_sorted_by_name(tmp_path: Path) -> None:
    """Prevents: patches are applied in directory order of the file system."""
    for name in ("0010-c.patch", "0002-b.diff", "0001-a.patch", "README.md"):
        (tmp_path / name).write_text(name)
    found = patch_files(tmp_path)
    assert [path.name for path in found] == ["0001-a.patch", "0002-b.diff", "0010-c.patch"]
    pins = pin_patches(found)
    assert [pin.name for pin in pins] == [path.name for path in found]
    assert len({pin.sha256 for pin in pins}) == 3


@pytest.mark.parametrize(
    ("exists", "found"), [(False, "no such directory"), (True, "holds no patch")]
)
def test_patch_directory_without_patches(tmp_path: Path, exists: bool, found: str) -> None:
    """Prevents: a mistyped patches_dir builds an unpatched library."""
    directory = tmp_path / "patches"
    if exists:
        directory.mkdir()
        (directory / "README").write_text("none yet")
    with pytest.raises(AiterError) as error:
        patch_files(directory, place="MODULE.bazel: qola.aiter_wheel")
    assert f"{directory}" in str(error.value)
    assert found in str(error.value)
    assert "MODULE.bazel: qola.aiter_wheel" in str(error.value)


def test_hunks_apply_at_an_offset(tree: Path) -> None:
    """Prevents: an unrelated line above rejects a patch."""
    (tree / "csrc/a.cpp").write_text(f"new\n{BODY}")
    assert apply_patches(tree, [patch(tree, CHANGE)]) == ("csrc/a.cpp",)
    expected = BODY.replace("line 10\n", "line ten\n")
    assert (tree / "csrc/a.cpp").read_text() == f"new\n{expected}"


def test_rejected_hunk_is_printed(tree: Path) -> None:
    """Prevents: an error omits the rejected hunk or the lines in the file at its place."""
    (tree / "csrc/a.cpp").write_text(BODY.replace("line 10\n", "line X\n"))
    text = rejection(tree, patch(tree, CHANGE))
    assert "error: patches/0001.patch hunk 1" in text
    assert "csrc/a.cpp lines 9-11:\n            line 9\n            line X\n" in text
    assert "@@ -9,3 +9,3 @@ section\n             line 9\n            -line 10\n" in text
    assert "git format-patch" in text


def test_all_rejected_hunks_are_reported(tree: Path) -> None:
    """Prevents: qola reports only the first rejected hunk, or leaves a partly patched tree."""
    hunks = "@@ -1,3 +1,3 @@\n line 1\n-no\n+x\n line 3\n"
    hunks += "@@ -4,3 +4,3 @@\n line 4\n-line 5\n+y\n line 6\n"
    hunks += "@@ -12,3 +12,3 @@\n line 12\n-nor this\n+z\n line 14\n"
    text = rejection(tree, patch(tree, HEADER + hunks))
    assert "2 errors" in text
    assert re.findall(r"hunk \d", text) == ["hunk 1", "hunk 3"]


def test_failed_second_patch_reverts_the_first(tree: Path) -> None:
    """Prevents: a failed patch leaves the tree with the patches before it."""
    second = CHANGE.replace("-line 10", "-line 10 of another time")
    text = rejection(tree, patch(tree, CHANGE), patch(tree, second, "0002.patch"))
    assert "0002.patch hunk 1" in text
    assert "0001.patch" not in text


def test_patches_apply_in_sequence(tree: Path) -> None:
    """Prevents: qola compares every patch with the unpatched tree."""
    second = CHANGE.replace("-line 10", "-line ten").replace("+line ten", "+line zehn")
    apply_patches(tree, [patch(tree, CHANGE), patch(tree, second, "0002.patch")])
    assert "line zehn" in (tree / "csrc/a.cpp").read_text()


def test_already_applied_patch_is_reported(tree: Path) -> None:
    """Prevents: qola ignores or does not explain a change that upstream already contains."""
    apply_patches(tree, [patch(tree, CHANGE)])
    assert "the file has this change already" in rejection(tree, patch(tree, CHANGE))


def test_line_endings_are_reported(tree: Path) -> None:
    """Prevents: a reject caused by CRLF shows two blocks that look equal."""
    (tree / "csrc/a.cpp").write_bytes(BODY.replace("\n", "\r\n").encode())
    assert "CRLF" in rejection(tree, patch(tree, CHANGE))
    crlf = patch(tree, CHANGE.replace("10\n", "10\r\n").replace("9\n", "9\r\n"))
    crlf.write_bytes(crlf.read_bytes().replace(b" line 11\n", b" line 11\r\n"))
    apply_patches(tree, [crlf])
    assert b"line 9\r\nline ten\nline 11\r\n" in (tree / "csrc/a.cpp").read_bytes()


def test_patch_applies_to_wheel_and_checkout(tree: Path) -> None:
    """Prevents: users must write separate patches for wheels and checkouts."""
    files = {"aiter_meta/csrc/a.cpp": BODY, "aiter/b.py": "b\n"}
    wheel = write(tree.parent / "wheel", files)
    write(tree, {"aiter/b.py": "b\n"})
    both = CHANGE + "--- a/aiter/b.py\n+++ b/aiter/b.py\n@@ -1 +1 @@\n-b\n+B\n"
    with_wheel_paths = both.replace("/csrc/", "/aiter_meta/csrc/")
    for number, text in enumerate((both, with_wheel_paths)):
        for root in (tree, wheel):
            copy = shutil.copytree(root, tree.parent / f"{root.name}{number}")
            touched = apply_patches(copy, [patch(tree, text)])
            meta = "aiter_meta/" if root == wheel else ""
            assert touched == ("aiter/b.py", f"{meta}csrc/a.cpp")
            assert "line ten" in (copy / touched[1]).read_text()
            assert (copy / "aiter/b.py").read_text() == "B\n"


@pytest.fixture
def symlink_tree(tree: Path) -> Path:
    """A tree of symlinks to the checkout."""
    folder = tree.parent / "symlink_tree"
    folder.mkdir()
    (folder / "csrc").symlink_to(tree / "csrc")
    return folder


def test_symlink_targets_are_not_written(tree: Path, symlink_tree: Path) -> None:
    """Prevents: patching a tree of symlinks changes the user's checkout."""
    before = read(write(tree, {"csrc/deep/b.cpp": BODY}))
    text = CHANGE.replace("a.cpp", "deep/b.cpp") + new_file("csrc/n.cpp", "100755", "new")
    text += "diff --git a/csrc/a.cpp b/csrc/a2.cpp\nrename from csrc/a.cpp\nrename to csrc/a2.cpp\n"
    touched = apply_patches(symlink_tree, [patch(tree, text)])
    assert touched == ("csrc/a.cpp", "csrc/a2.cpp", "csrc/deep/b.cpp", "csrc/n.cpp")
    assert read(tree) == before
    assert "line ten" in (symlink_tree / "csrc/deep/b.cpp").read_text()
    assert (symlink_tree / "csrc/a2.cpp").read_text() == BODY
    assert not (symlink_tree / "csrc/a.cpp").exists()
    assert os.access(symlink_tree / "csrc/n.cpp", os.X_OK)
    assert not (symlink_tree / "csrc/a2.cpp").is_symlink()


def test_unpatched_files_stay_symlinks(tree: Path, symlink_tree: Path) -> None:
    """Prevents: patching copies unpatched files, and later edits of the tree have no effect."""
    write(tree, {"csrc/b.cpp": "b\n"})
    apply_patches(symlink_tree, [patch(tree, CHANGE)])
    write(tree, {"csrc/b.cpp": "edited\n"})
    assert (symlink_tree / "csrc/b.cpp").read_text() == "edited\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no diff at all\n", "no change of any file"),
        (CHANGE.replace("-line 10\n", ""), "Hunk is shorter than expected"),
        (CHANGE.replace("csrc/a.cpp", "csrc/gone.cpp"), "csrc/gone.cpp: No such file"),
        (CHANGE.replace("/csrc/a.cpp", "/../a.cpp"), "../a.cpp: No such file"),
        (new_file("../a.cpp", "100644", "new"), "invalid path '../a.cpp'"),
        (new_file("/a.cpp", "100644", "new"), "invalid path '/a.cpp'"),
        (new_file("csrc/a.cpp", "100644", "new"), "csrc/a.cpp: already exists"),
        (new_file("csrc", "100644", "new"), "the tree has such a file already"),
        (new_file("csrc/a.cpp/b", "100644", "new"), "the tree has such a file already"),
        (
            "diff --git a/csrc/a.cpp b/csrc/a.cpp\ndeleted file mode 100644\n--- a/csrc/a.cpp\n"
            "+++ /dev/null\n@@ -1 +0,0 @@\n-line 1\n",
            "hunk 1",
        ),
        (
            new_file("csrc/l", "120000", "a.cpp\n\\ No newline at end of file"),
            "a symbolic link",
        ),
        *(
            (new_file("csrc/l", mode, "a.cpp\n\\ No newline at end of file"), "a symbolic link")
            # Spellings that git accepts.
            for mode in ("120000 ", " 120000", "0120000", "120000\r")
        ),
        (
            "diff --git a/ck b/ck\nindex 1234567..89abcde 160000\n--- a/ck\n+++ b/ck\n"
            "@@ -1 +1 @@\n-Subproject commit 1\n+Subproject commit 2\n",
            "a submodule",
        ),
        (
            "diff --git a/csrc/x.co b/csrc/x.co\nindex 1234567..89abcde 100644\n"
            "GIT binary patch\nliteral 2\nJc${NkU|;|M00aO5\n",
            "corrupt binary patch",
        ),
        (HEADER + "@@ -5,0 +6 @@\n+x\n", "hunk 1 has no context"),
        (HEADER + "@@ -0,0 +0,0 @@\n", "corrupt patch at line 5"),
        (new_file("csrc/a\0b", "100644", "new"), "a null character"),
        (
            new_file("csrc/q", "100644", "new")
            .replace("a/csrc/q", '"a/csrc/\\033"')
            .replace("b/csrc/q", '"b/csrc/\\033"'),
            "control characters",
        ),
    ],
)
def test_invalid_patches_are_rejected(tree: Path, text: str, found: str) -> None:
    """Prevents: qola silently ignores a part of a patch."""
    message = rejection(tree, patch(tree, text))
    assert found in message
    assert "patches/0001.patch" in message


def test_endless_patch(tree: Path) -> None:
    """Prevents: all memory is used for a patch that only claims its size."""
    file = patch(tree, CHANGE)
    os.truncate(file, 1 << 40)
    assert "more than 65536 KiB" in rejection(tree, file)


def test_git_format_patch_output_applies(tree: Path) -> None:
    """Prevents: extended headers, mail headers or signatures of git are parsed as changes."""
    csrc = tree / "csrc"
    old: dict[str, str | bytes] = {
        "gone.cpp": "gone\n",
        "empty.cpp": "",
        "mode.sh": "#!/bin/sh\n",
        "end.cpp": "no newline\nat the end",
        "latin.cpp": b"// caf\xe9\x0c\n" + BODY.encode(),
    }
    write(csrc, old)
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "base")
    before = shutil.copytree(tree, tree.parent / "before", ignore=shutil.ignore_patterns(".git"))
    for name in ("a.cpp", "gone.cpp", "empty.cpp"):
        (csrc / name).unlink()
    (csrc / "mode.sh").chmod(0o755)
    new: dict[str, str | bytes] = {
        "moved.cpp": BODY.replace("line 3\n", "line three\n"),
        "end.cpp": "still no newline\nat the end",
        "latin.cpp": b"// caf\xe9s\x0c\n" + BODY.encode(),
        "new/file.cpp": "--- a line like a header\n+++ and another\n",
        "new/empty.cpp": "",
    }
    write(csrc, new)
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "everything\n\n+ a list\n- in the message")
    git(tree, "format-patch", "-q", "-1", "-o", str(tree.parent), "--start-number", "7")
    (file,) = patch_files(tree.parent)
    assert file.name == "0007-everything.patch"
    assert b"rename from csrc/a.cpp" in file.read_bytes()
    apply_patches(before, [file])
    shutil.rmtree(tree / ".git")
    assert read(before) == read(tree)
    assert os.access(before / "csrc/mode.sh", os.X_OK)


def test_record_of_a_tree(tmp_path: Path) -> None:
    """Prevents: a patched tree counts as unpatched, or the reverse."""
    assert recorded_patches(tmp_path) == ()
    assert pinned_id(tmp_path) == ""
    for record, pinned in (
        ('{"kind": "wheel", "version": "0.1.7"}', "0.1.7"),
        ('{"commit": "abc"}', "abc"),
    ):
        write(tmp_path, {"AITER.json": record})
        assert (pinned_id(tmp_path), recorded_patches(tmp_path)) == (pinned, ())
    write(tmp_path, {"AITER.json": '{"patches": [{"name": "1.patch", "sha256": "00"}]}'})
    assert recorded_patches(tmp_path) == (PatchPin("1.patch", "00"),)


def test_repository_rule_gets_the_exit_code_of_aiter_errors(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: `qola build` reports a patch that does not apply as an internal error."""
    patch(tree, CHANGE.replace("-line 10", "-line x"))
    options = ["--patches-dir", str(tree.parent), "--display", "patches", "--place", "MODULE.bazel"]
    code = main([*options, "--root", str(tree), "--output", str(tree.parent / "patched.json")])
    assert code == AiterError.exit_code
    assert capsys.readouterr().err.startswith("qola: AiterError: the patches do not fit")
    assert not (tree.parent / "patched.json").exists()


CK_AND_AITER = """\
diff --git a/3rdparty/composable_kernel/include/k.hpp b/3rdparty/composable_kernel/include/k.hpp
--- a/3rdparty/composable_kernel/include/k.hpp
+++ b/3rdparty/composable_kernel/include/k.hpp
@@ -1 +1 @@
-int k;
+long k;
"""


@pytest.mark.parametrize("prefix", ["", "aiter_meta/"])
def test_patch_of_aiter_and_ck(tree: Path, prefix: str, tmp_path: Path, logged: list[str]) -> None:
    """Prevents: qola rejects ROCm/QoLA's patches, which change AITER and CK in one file."""
    root = tmp_path / "both"
    (root / prefix / "csrc").mkdir(parents=True)
    (root / prefix / "csrc/a.cpp").write_bytes((tree / "csrc/a.cpp").read_bytes())
    header = root / prefix / "3rdparty/composable_kernel/include/k.hpp"
    file = patch(tmp_path, CK_AND_AITER + CHANGE)
    header.parent.parent.mkdir(parents=True)
    # A checkout without submodules has an empty directory here.
    touched = apply_patches(root, [file], display="patches")
    assert touched == (f"{prefix}csrc/a.cpp",)
    assert logged == [
        f"patches/{file.name}: 1 of 2 files skipped: the tree has no 3rdparty/composable_kernel"
    ]
    header.parent.mkdir(parents=True)
    header.write_text("int k;\n")
    (root / prefix / "csrc/a.cpp").write_bytes((tree / "csrc/a.cpp").read_bytes())
    logged.clear()
    assert len(apply_patches(root, [file])) == 2
    assert (header.read_text(), logged) == ("long k;\n", [])
    with pytest.raises(AiterError) as error:  # the file exists, with other content
        apply_patches(root, [patch(tmp_path, CK_AND_AITER, "0002.patch")])
    assert "k.hpp" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        *("[]", '{"commit": ["c"], "patches": 7}', "[" * 100_000, "\0"),
        *(
            '{"patches": [{"name": {}, "sha256": "0"}]}',
            '{"commit": "\\u001b[31m", "patches": [7]}',
        ),
    ],
)
def test_invalid_record(tmp_path: Path, text: str) -> None:
    """Prevents: a traceback if AITER.json has an unknown format."""
    (tmp_path / "AITER.json").write_text(text)
    assert pinned_id(tmp_path) == ""
    assert recorded_patches(tmp_path) == ()


def test_record_that_is_a_fifo(tmp_path: Path) -> None:
    """Prevents: a command blocks if AITER.json is a FIFO."""
    os.mkfifo(tmp_path / "AITER.json")
    assert (pinned_id(tmp_path), recorded_patches(tmp_path)) == ("", ())
