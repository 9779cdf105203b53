"""Patches of AITER's sources: what git writes applies exactly, and what does not fit is printed."""

from __future__ import annotations

import difflib
import os
import random
import re
import shutil
from pathlib import Path

import pytest
from unidiff.patch import PatchSet

from qola.errors import AiterError
from qola.fetch.hunks import apply_hunks
from qola.fetch.patches import apply_patches, main
from qola.fetch.pins import PatchPin, patch_files, pin_patches, pinned_id, recorded_patches
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
    """A change that makes a file of one line."""
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


def refusal(tree: Path, *patches: Path) -> str:
    """Return what a refused call says, having changed nothing."""
    before = read(tree)
    with pytest.raises(AiterError) as error:
        apply_patches(tree, patches, display="patches")
    assert read(tree) == before
    return str(error.value)


def test_order_is_that_of_names(tmp_path: Path) -> None:
    """Prevents: patches applied in the order the file system happens to have."""
    for name in ("0010-c.patch", "0002-b.diff", "0001-a.patch", "README.md"):
        (tmp_path / name).write_text(name)
    found = patch_files(tmp_path)
    assert [path.name for path in found] == ["0001-a.patch", "0002-b.diff", "0010-c.patch"]
    pins = pin_patches(found)
    assert [pin.name for pin in pins] == [path.name for path in found]
    assert len({pin.sha256 for pin in pins}) == 3


@pytest.mark.parametrize(
    ("make", "found"), [(False, "no such directory"), (True, "holds no patch")]
)
def test_no_patches(tmp_path: Path, make: bool, found: str) -> None:
    """Prevents: a mistyped patches_dir that builds an unpatched library."""
    directory = tmp_path / "patches"
    if make:
        directory.mkdir()
        (directory / "README").write_text("none yet")
    with pytest.raises(AiterError) as error:
        patch_files(directory, place="MODULE.bazel: qola.aiter_wheel")
    assert f"{directory}" in str(error.value)
    assert found in str(error.value)
    assert "MODULE.bazel: qola.aiter_wheel" in str(error.value)


@pytest.mark.parametrize("moved", [0, -3, 5])
def test_lines_may_have_moved(tree: Path, moved: int) -> None:
    """Prevents: a patch refused because of an unrelated line above, or applied at a wrong line."""
    lines = BODY.splitlines(keepends=True)
    lines = lines[-moved:] if moved < 0 else [f"new {n}\n" for n in range(moved)] + lines
    (tree / "csrc/a.cpp").write_text("".join(lines))
    assert apply_patches(tree, [patch(tree, CHANGE)]) == ("csrc/a.cpp",)
    expected = "".join(lines).replace("line 10\n", "line ten\n")
    assert (tree / "csrc/a.cpp").read_text() == expected


def test_the_nearest_of_equal_places_is_taken(tree: Path) -> None:
    """Prevents: the first of several equal places changed instead of the one meant."""
    block = "a\nb\nc\n"
    (tree / "csrc/a.cpp").write_text(f"{block}x\n{block}y\n{block}")
    text = HEADER + "@@ -5,3 +5,3 @@\n a\n-b\n+B\n c\n"
    apply_patches(tree, [patch(tree, text)])
    assert (tree / "csrc/a.cpp").read_text() == f"{block}x\na\nB\nc\ny\n{block}"


def test_a_rejected_hunk_is_printed(tree: Path) -> None:
    """Prevents: "patch failed" without which hunk, and what stands there instead."""
    (tree / "csrc/a.cpp").write_text(BODY.replace("line 10\n", "line X\n"))
    text = refusal(tree, patch(tree, CHANGE))
    assert "error: patches/0001.patch hunk 1" in text
    assert "csrc/a.cpp lines 9-11:\n            line 9\n            line X\n" in text
    assert "@@ -9,3 +9,3 @@ section\n             line 9\n            -line 10\n" in text
    assert "git format-patch" in text


def test_all_rejected_hunks_of_a_patch_come_together(tree: Path) -> None:
    """Prevents: one reject per attempt; a tree in which the hunks that do fit were applied."""
    hunks = "@@ -1,3 +1,3 @@\n line 1\n-no\n+x\n line 3\n"
    hunks += "@@ -4,3 +4,3 @@\n line 4\n-line 5\n+y\n line 6\n"
    hunks += "@@ -12,3 +12,3 @@\n line 12\n-nor this\n+z\n line 14\n"
    text = refusal(tree, patch(tree, HEADER + hunks))
    assert "2 errors" in text
    assert re.findall(r"hunk \d", text) == ["hunk 1", "hunk 3"]


def test_a_second_patch_that_fails_undoes_the_first(tree: Path) -> None:
    """Prevents: a tree left with half of its patches."""
    second = CHANGE.replace("-line 10", "-line 10 of another time")
    text = refusal(tree, patch(tree, CHANGE), patch(tree, second, "0002.patch"))
    assert "0002.patch hunk 1" in text
    assert "0001.patch" not in text


def test_a_patch_builds_on_the_one_before(tree: Path) -> None:
    """Prevents: every patch compared with the unpatched tree."""
    second = CHANGE.replace("-line 10", "-line ten").replace("+line ten", "+line zehn")
    apply_patches(tree, [patch(tree, CHANGE), patch(tree, second, "0002.patch")])
    assert "line zehn" in (tree / "csrc/a.cpp").read_text()


def test_a_patch_applied_twice_is_named_as_such(tree: Path) -> None:
    """Prevents: a change that upstream took over, passed over in silence or not explained."""
    apply_patches(tree, [patch(tree, CHANGE)])
    assert "the file has this change already" in refusal(tree, patch(tree, CHANGE))


def test_line_ends_are_named(tree: Path) -> None:
    """Prevents: a reject whose two sides look the same on the screen."""
    (tree / "csrc/a.cpp").write_bytes(BODY.replace("\n", "\r\n").encode())
    assert "CRLF" in refusal(tree, patch(tree, CHANGE))
    crlf = patch(tree, CHANGE.replace("10\n", "10\r\n").replace("9\n", "9\r\n"))
    crlf.write_bytes(crlf.read_bytes().replace(b" line 11\n", b" line 11\r\n"))
    apply_patches(tree, [crlf])
    assert b"line 9\r\nline ten\nline 11\r\n" in (tree / "csrc/a.cpp").read_bytes()


def test_one_patch_serves_wheel_and_checkout(tree: Path) -> None:
    """Prevents: a set of patches per kind of AITER source."""
    files = {"aiter_meta/csrc/a.cpp": BODY, "aiter/b.py": "b\n"}
    wheel = write(tree.parent / "wheel", files)
    write(tree, {"aiter/b.py": "b\n"})
    both = CHANGE + "--- a/aiter/b.py\n+++ b/aiter/b.py\n@@ -1 +1 @@\n-b\n+B\n"
    made_in_wheel = both.replace("/csrc/", "/aiter_meta/csrc/")
    for number, text in enumerate((both, made_in_wheel)):
        for root in (tree, wheel):
            copy = shutil.copytree(root, tree.parent / f"{root.name}{number}")
            touched = apply_patches(copy, [patch(tree, text)])
            meta = "aiter_meta/" if root == wheel else ""
            assert touched == ("aiter/b.py", f"{meta}csrc/a.cpp")
            assert "line ten" in (copy / touched[1]).read_text()
            assert (copy / "aiter/b.py").read_text() == "B\n"


@pytest.fixture
def forest(tree: Path) -> Path:
    """A tree of links to the checkout."""
    folder = tree.parent / "forest"
    folder.mkdir()
    (folder / "csrc").symlink_to(tree / "csrc")
    return folder


def test_what_links_lead_to_is_never_written(tree: Path, forest: Path) -> None:
    """Prevents: a user's own checkout patched through a tree of links."""
    before = read(write(tree, {"csrc/deep/b.cpp": BODY}))
    text = CHANGE.replace("a.cpp", "deep/b.cpp") + new_file("csrc/n.cpp", "100755", "new")
    text += "diff --git a/csrc/a.cpp b/csrc/a2.cpp\nrename from csrc/a.cpp\nrename to csrc/a2.cpp\n"
    touched = apply_patches(forest, [patch(tree, text)])
    assert touched == ("csrc/a.cpp", "csrc/a2.cpp", "csrc/deep/b.cpp", "csrc/n.cpp")
    assert read(tree) == before
    assert "line ten" in (forest / "csrc/deep/b.cpp").read_text()
    assert (forest / "csrc/a2.cpp").read_text() == BODY
    assert not (forest / "csrc/a.cpp").exists()
    assert os.access(forest / "csrc/n.cpp", os.X_OK)
    assert not (forest / "csrc/a2.cpp").is_symlink()


def test_untouched_files_stay_links(tree: Path, forest: Path) -> None:
    """Prevents: copies of a local tree, in which an edit no longer shows."""
    write(tree, {"csrc/b.cpp": "b\n"})
    apply_patches(forest, [patch(tree, CHANGE)])
    write(tree, {"csrc/b.cpp": "edited\n"})
    assert (forest / "csrc/b.cpp").read_text() == "edited\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no diff at all\n", "no change of any file"),
        (CHANGE.replace("-line 10\n", ""), "Hunk is shorter than expected"),
        (CHANGE.replace("csrc/a.cpp", "csrc/gone.cpp"), "no such file in the tree"),
        (CHANGE.replace("/csrc/a.cpp", "/../a.cpp"), "a path out of the tree"),
        (new_file("csrc/a.cpp", "100644", "new"), "the tree has such a file already"),
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
        (
            "diff --git a/ck b/ck\nindex 1234567..89abcde 160000\n--- a/ck\n+++ b/ck\n"
            "@@ -1 +1 @@\n-Subproject commit 1\n+Subproject commit 2\n",
            "a submodule",
        ),
        (
            "diff --git a/csrc/x.co b/csrc/x.co\nindex 1234567..89abcde 100644\n"
            "GIT binary patch\nliteral 2\nJc${NkU|;|M00aO5\n",
            "a binary file",
        ),
        (HEADER + "@@ -5,0 +6 @@\n+x\n", "no context"),
        (HEADER + "@@ -0,0 +0,0 @@\n", "a hunk without lines"),
        (new_file("csrc/a\0b", "100644", "new"), "control characters"),
    ],
)
def test_what_does_not_fit_is_refused(tree: Path, text: str, found: str) -> None:
    """Prevents: a part of a patch that is passed over in silence."""
    message = refusal(tree, patch(tree, text))
    assert found in message
    assert "patches/0001.patch" in message


def test_what_git_writes_applies(tree: Path) -> None:
    """Prevents: extended headers, mail headers or signatures of git taken for something else."""
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


def test_a_diff_applied_gives_the_other_file() -> None:
    """Prevents: hunks placed a line off, or at another of several equal places."""
    generator = random.Random(0)
    differing = 0
    for _ in range(500):
        old = generator.choices(["a\n", "b\n", "c\n", "\n", "-d\n"], k=generator.randrange(40))
        new = [line for line in old if generator.random() > 0.1]
        for _ in range(generator.randrange(4)):
            new.insert(generator.randint(0, len(new)), generator.choice(["a\n", "+x\n"]))
        context = generator.randint(1, 3)
        diff = "".join(difflib.unified_diff(old, new, "a/f", "b/f", n=context))
        for change in PatchSet.from_string(diff):
            differing += 1
            assert apply_hunks(old, change) == (new, ()), diff
    assert differing > 400


def test_the_record_of_a_tree(tmp_path: Path) -> None:
    """Prevents: a patched tree that counts as unpatched, or the other way round."""
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


def test_a_repository_rule_is_told_whose_fault_it_is(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a patch that does not fit taken by `qola build` for an error of qola's own."""
    patch(tree, CHANGE.replace("-line 10", "-line x"))
    words = ["--patches-dir", str(tree.parent), "--display", "patches", "--place", "MODULE.bazel"]
    code = main([*words, "--root", str(tree), "--output", str(tree.parent / "patched.json")])
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
def test_a_patch_of_aiter_and_ck(
    tree: Path, prefix: str, tmp_path: Path, logged: list[str]
) -> None:
    """Prevents: ROCm/QoLA's patches refused, which change AITER and its submodule in one file."""
    root = tmp_path / "both"
    (root / prefix / "csrc").mkdir(parents=True)
    (root / prefix / "csrc/a.cpp").write_bytes((tree / "csrc/a.cpp").read_bytes())
    header = root / prefix / "3rdparty/composable_kernel/include/k.hpp"
    file = patch(tmp_path, CK_AND_AITER + CHANGE)
    header.parent.parent.mkdir(parents=True)
    # An empty directory is what a checkout without submodules has.
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
    with pytest.raises(AiterError) as error:  # there, and not as the patch has it
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
def test_a_record_that_is_none(tmp_path: Path, text: str) -> None:
    """Prevents: a traceback for a tree whose AITER.json is somebody else's."""
    (tmp_path / "AITER.json").write_text(text)
    assert pinned_id(tmp_path) == ""
    assert recorded_patches(tmp_path) == ()


def test_a_record_that_would_not_end(tmp_path: Path) -> None:
    """Prevents: a command that waits for a FIFO of that name."""
    os.mkfifo(tmp_path / "AITER.json")
    assert (pinned_id(tmp_path), recorded_patches(tmp_path)) == ("", ())
