"""Hostile patches, and hostile AITER.json files of local trees."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from qola.checkout.source import LocalSource, source_record
from qola.fetch.patches import apply_patches, try_patches
from qola.fetch.pins import RECORD, pinned_id, recorded_patches
from tests.fuzz.fuzzing import HOSTILE, fuzz, mutate, mutate_json
from tests.support.folders import read, write

FILES = {
    "aiter/a.py": "".join(f"line {n}\n" for n in range(40)),
    "csrc/b.cpp": "one\ntwo\nthree",
    "csrc/gone.h": "x\n",
    "3rdparty/composable_kernel/c.hpp": "a\nb\nc\n",
}
PATCH = """\
From 0 Mon Sep 17 00:00:00 2001
Subject: [PATCH] it

diff --git a/aiter/a.py b/aiter/a.py
index 0..1 100644
--- a/aiter/a.py
+++ b/aiter/a.py
@@ -3,4 +3,4 @@ where
 line 2
-line 3
+line three
 line 4
 line 5
@@ -30,3 +30,4 @@
 line 29
 line 30
+more
 line 31
diff --git a/csrc/b.cpp b/csrc/other.cpp
similarity index 60%
rename from csrc/b.cpp
rename to csrc/other.cpp
--- a/csrc/b.cpp
+++ b/csrc/other.cpp
@@ -1,3 +1,3 @@
 one
-two
+2
 three
\\ No newline at end of file
diff --git a/csrc/gone.h b/csrc/gone.h
deleted file mode 100644
--- a/csrc/gone.h
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/csrc/new.sh b/csrc/new.sh
new file mode 100755
--- /dev/null
+++ b/csrc/new.sh
@@ -0,0 +1,2 @@
+#!/bin/sh
+true
"""
INSERTIONS = (
    *HOSTILE,
    *(
        "@@ -1 +1 @@\n",
        "@@ -0,0 +1 @@\n",
        "@@ -1,0 +1,0 @@\n",
        f"@@ -{'9' * 30},{'9' * 30} +1 @@\n",
    ),
    *("--- a/../../out\n", "+++ b/../out\n", "+++ /out\n", "+++ b//out\n"),
    *("+++ b/aiter_meta//out\n", "rename to ../out\n", "copy from aiter/a.py\n"),
    *("new file mode 120000\n", "GIT binary patch\n", "new mode 100755\n"),
    *("Binary files a/x and b/y differ\n", '+++ "b/\\303\\251"\n', "\\ No newline"),
    *(
        f"+++ b/{'d/' * 3000}x\n",
        f"+++ b/{'n' * 300}\n",
        "+++ b/a\0b\n",
        "+++ b/csrc\n",
        "+++ b/.\n",
    ),
)


def test_patches(tmp_path: Path) -> None:
    """Prevents: a patch causes a traceback, is applied partly, or writes outside the tree."""
    directory, tree = tmp_path / "place", tmp_path / "place/tree"
    patch = directory / "a.patch"

    def make(rng: random.Random) -> str:
        return PATCH if rng.random() < 0.02 else mutate(rng, PATCH, INSERTIONS)

    def take(text: str) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        write(tree, FILES)
        patch.write_text(text, encoding="utf-8", errors="surrogatepass")
        before = read(tree)
        list(try_patches(tree, [patch]))
        assert read(tree) == before
        try:
            touched = apply_patches(tree, [patch])
        except BaseException:
            assert read(tree) == before
            raise
        finally:
            assert {path.name for path in directory.iterdir()} == {"a.patch", "tree"}
        after = read(tree)
        changed = {name for name in before.keys() | after if before.get(name) != after.get(name)}
        assert changed <= set(touched)

    fuzz(make, take)


def test_unmodified_patch_applies(tmp_path: Path) -> None:
    """Prevents: errors in the fuzzer's patch itself reject all inputs."""
    write(tmp_path / "tree", FILES)
    (tmp_path / "a.patch").write_text(PATCH, encoding="utf-8")
    assert len(apply_patches(tmp_path / "tree", [tmp_path / "a.patch"])) == 5


def test_records_of_trees(tmp_path: Path) -> None:
    """Prevents: an AITER.json of a local tree causes a traceback."""
    record = {"kind": "local", "commit": "a" * 40, "patches": [{"name": "a", "sha256": "b" * 64}]}

    def take(text: str) -> None:
        (tmp_path / RECORD).write_text(text, encoding="utf-8", errors="surrogatepass")
        pinned_id(tmp_path)
        source_record(LocalSource(tmp_path), ())
        for pin in recorded_patches(tmp_path):
            assert type(pin.name) is type(pin.sha256) is str

    fuzz(lambda rng: mutate_json(rng, json.dumps(record), (None, 0, [], {}, [[]])), take)
