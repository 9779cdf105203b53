"""Patches of AITER's sources: what git writes applies exactly, and what does not fit is printed."""

from __future__ import annotations

import difflib
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from unidiff.patch import PatchSet

from qola.errors import AiterError
from qola.fetch.hunks import apply_hunks
from qola.fetch.patches import (
    PatchPin,
    apply_patches,
    main,
    patch_files,
    pin_patches,
    recorded_patches,
)

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


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with one source."""
    (tmp_path / "tree/csrc").mkdir(parents=True)
    (tmp_path / "tree/csrc/a.cpp").write_text(BODY)
    return tmp_path / "tree"


def patch(tree: Path, text: str, name: str = "0001.patch") -> Path:
    file = tree.parent / name
    file.write_bytes(text.encode())
    return file


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def refusal(tree: Path, *patches: Path) -> str:
    """Return what a refused call says, having changed nothing."""
    before = contents(tree)
    with pytest.raises(AiterError) as error:
        apply_patches(tree, patches, display="patches")
    assert contents(tree) == before
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
        patch_files(directory, place="MODULE.bazel: qola.wheel")
    assert f"{directory}" in str(error.value)
    assert found in str(error.value)
    assert "MODULE.bazel: qola.wheel" in str(error.value)


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
    text = CHANGE.partition("@@")[0] + "@@ -5,3 +5,3 @@\n a\n-b\n+B\n c\n"
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


def test_context_has_to_be_exact(tree: Path) -> None:
    """Prevents: fuzz, which puts a change where its surroundings mean something else."""
    (tree / "csrc/a.cpp").write_text(BODY.replace("line 11\n", "line  11\n"))
    assert "lines 9-11" in refusal(tree, patch(tree, CHANGE))


def test_all_rejected_hunks_of_a_patch_come_together(tree: Path) -> None:
    """Prevents: one reject per attempt; a tree in which the hunks that do fit were applied."""
    hunks = "@@ -1,3 +1,3 @@\n line 1\n-no\n+x\n line 3\n"
    hunks += "@@ -4,3 +4,3 @@\n line 4\n-line 5\n+y\n line 6\n"
    hunks += "@@ -12,3 +12,3 @@\n line 12\n-nor this\n+z\n line 14\n"
    text = refusal(tree, patch(tree, CHANGE.partition("@@")[0] + hunks))
    assert "2 errors" in text
    assert "hunk 1" in text
    assert "hunk 3" in text
    assert "hunk 2" not in text


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
    wheel = tree.parent / "wheel"
    (wheel / "aiter_meta/csrc").mkdir(parents=True)
    (wheel / "aiter_meta/csrc/a.cpp").write_text(BODY)
    (wheel / "aiter").mkdir()
    (wheel / "aiter/b.py").write_text("b\n")
    (tree / "aiter").mkdir()
    (tree / "aiter/b.py").write_text("b\n")
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


def test_what_links_lead_to_is_never_written(tree: Path) -> None:
    """Prevents: a user's own checkout patched through a tree of links."""
    (tree / "csrc/deep").mkdir()
    (tree / "csrc/deep/b.cpp").write_text(BODY)
    forest = tree.parent / "forest"
    forest.mkdir()
    (forest / "csrc").symlink_to(tree / "csrc")
    before = contents(tree)
    text = CHANGE.replace("a.cpp", "deep/b.cpp")
    text += "diff --git a/csrc/n.cpp b/csrc/n.cpp\nnew file mode 100755\n--- /dev/null\n"
    text += "+++ b/csrc/n.cpp\n@@ -0,0 +1 @@\n+new\n"
    text += "diff --git a/csrc/a.cpp b/csrc/a2.cpp\nrename from csrc/a.cpp\nrename to csrc/a2.cpp\n"
    touched = apply_patches(forest, [patch(tree, text)])
    assert touched == ("csrc/a.cpp", "csrc/a2.cpp", "csrc/deep/b.cpp", "csrc/n.cpp")
    assert contents(tree) == before
    assert "line ten" in (forest / "csrc/deep/b.cpp").read_text()
    assert (forest / "csrc/a2.cpp").read_text() == BODY
    assert not (forest / "csrc/a.cpp").exists()
    assert os.access(forest / "csrc/n.cpp", os.X_OK)
    assert not (forest / "csrc/a2.cpp").is_symlink()


def test_untouched_files_stay_links(tree: Path) -> None:
    """Prevents: copies of a local tree, in which an edit no longer shows."""
    (tree / "csrc/b.cpp").write_text("b\n")
    forest = tree.parent / "forest"
    forest.mkdir()
    (forest / "csrc").symlink_to(tree / "csrc")
    apply_patches(forest, [patch(tree, CHANGE)])
    (tree / "csrc/b.cpp").write_text("edited\n")
    assert (forest / "csrc/b.cpp").read_text() == "edited\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no diff at all\n", "no change of any file"),
        (CHANGE.replace("-line 10\n", ""), "Hunk is shorter than expected"),
        (CHANGE.replace("csrc/a.cpp", "csrc/gone.cpp"), "no such file in the tree"),
        (CHANGE.replace("/csrc/a.cpp", "/../a.cpp"), "a path out of the tree"),
        (
            "diff --git a/csrc/a.cpp b/csrc/a.cpp\nnew file mode 100644\n--- /dev/null\n"
            "+++ b/csrc/a.cpp\n@@ -0,0 +1 @@\n+new\n",
            "the tree has such a file already",
        ),
        (
            "diff --git a/csrc/a.cpp b/csrc/a.cpp\ndeleted file mode 100644\n--- a/csrc/a.cpp\n"
            "+++ /dev/null\n@@ -1 +0,0 @@\n-line 1\n",
            "hunk 1",
        ),
        (
            "diff --git a/csrc/l b/csrc/l\nnew file mode 120000\n--- /dev/null\n"
            "+++ b/csrc/l\n@@ -0,0 +1 @@\n+a.cpp\n\\ No newline at end of file\n",
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
        (CHANGE.partition("@@")[0] + "@@ -5,0 +6 @@\n+x\n", "no context"),
    ],
)
def test_what_does_not_fit_is_refused(tree: Path, text: str, found: str) -> None:
    """Prevents: a part of a patch that is passed over in silence."""
    message = refusal(tree, patch(tree, text))
    assert found in message
    assert "patches/0001.patch" in message


def test_what_git_writes_applies(tree: Path) -> None:
    """Prevents: extended headers, mail headers or signatures of git taken for something else."""
    if not shutil.which("git"):
        pytest.skip("needs git")

    def git(*args: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *args]
        env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        run = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True, env=env)
        return run.stdout

    (tree / "csrc/gone.cpp").write_text("gone\n")
    (tree / "csrc/empty.cpp").write_text("")
    (tree / "csrc/mode.sh").write_text("#!/bin/sh\n")
    (tree / "csrc/end.cpp").write_text("no newline\nat the end")
    (tree / "csrc/latin.cpp").write_bytes(b"// caf\xe9\x0c\n" + BODY.encode())
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "base")
    before = shutil.copytree(tree, tree.parent / "before", ignore=shutil.ignore_patterns(".git"))
    moved = BODY.replace("line 3\n", "line three\n")
    (tree / "csrc/moved.cpp").write_text(moved)
    (tree / "csrc/a.cpp").unlink()
    (tree / "csrc/gone.cpp").unlink()
    (tree / "csrc/empty.cpp").unlink()
    (tree / "csrc/mode.sh").chmod(0o755)
    (tree / "csrc/end.cpp").write_text("still no newline\nat the end")
    (tree / "csrc/latin.cpp").write_bytes(b"// caf\xe9s\x0c\n" + BODY.encode())
    (tree / "csrc/new").mkdir()
    (tree / "csrc/new/file.cpp").write_text("--- a line like a header\n+++ and another\n")
    (tree / "csrc/new/empty.cpp").write_text("")
    git("add", "-A")
    git("commit", "-qm", "everything\n\n+ a list\n- in the message")
    git("format-patch", "-q", "-1", "-o", str(tree.parent), "--start-number", "7")
    (file,) = patch_files(tree.parent)
    assert file.name == "0007-everything.patch"
    assert b"rename from csrc/a.cpp" in file.read_bytes()
    apply_patches(before, [file])
    shutil.rmtree(tree / ".git")
    assert contents(before) == contents(tree)
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
    record = tmp_path / "AITER.json"
    record.write_text('{"kind": "wheel"}')
    assert recorded_patches(tmp_path) == ()
    record.write_text('{"patches": [{"name": "1.patch", "sha256": "00"}]}')
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
