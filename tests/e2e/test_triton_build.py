"""Build Triton kernels with qola build, and check their results."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from gfxemu.hip import Hip
from gfxemu.launch import Options
from tests.e2e.nested_bazel import User
from tests.support.folders import git, write
from tests.triton.c_library import Library

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).absolute()
MANIFEST = """\
[build]
architectures = ["gfx942"]

[[triton]]
kernels = ["halve"]
file = "kernels/halve.py"
deps = ["kernels/half.py"]
choices = { BLOCK = 256 }
"""
HALVE = """\
import triton
import triton.language as tl
from half import half


@triton.jit
def halve(x: "*fp32:16", n: "i32", BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, half(tl.load(x + at, mask=at < n)), mask=at < n)
"""
HALF = """\
import triton


@triton.jit
def half(x):
    return x * 0.5
"""
OF_COMMIT = """\
remote = "file://{}"
commit = "{}"
signature = {{ x = "*fp32:16", n = "i32" }}
"""
LIBRARY, PACK = "lib/qola_triton.so", "lib/qola_triton-gfx942.qpack"


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user who built the kernel into out/."""
    directory = tmp_path_factory.mktemp("user")
    files = {"mine.toml": MANIFEST, "kernels/halve.py": HALVE, "kernels/half.py": HALF}
    user = User(write(directory, files))
    built = user.build("mine.toml")
    assert built.stdout.startswith("qola_triton: built, ")
    return user


def test_a_built_library_runs(user: User) -> None:
    """Prevents: a library does not load or find its pack; wrong results."""
    output = user.directory / "out"
    record = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    (module,) = record["modules"]
    assert (module["md_name"], module["library"]) == ("qola_triton", LIBRARY)
    assert [pack["path"] for pack in module["packs"]] == [PACK]
    assert (output / "include/qola_triton.h").is_file()
    hip = Hip(FAKE, "gfx942", Options(strict=True))
    library = Library(output / LIBRARY, "")
    numbers = np.arange(300, dtype=np.float32)
    buffer = hip.allocate(numbers.copy())
    status = library.launch("halve", {}, {"x": buffer.address, "n": 299}, (2, 1, 1))
    hip.raise_error()
    assert status == 0, library.error()
    assert buffer.array.tolist() == [*(numbers[:299] / 2), 299]


def test_a_kernel_of_a_commit(tmp_path: Path) -> None:
    """Prevents: Bazel does not fetch a kernel of another repository, or ignores its signature."""
    bare = HALVE.replace('x: "*fp32:16", n: "i32"', "x, n")
    theirs = write(tmp_path / "theirs", {"their/halve.py": bare, "their/half.py": HALF})
    git(theirs, "init", "-q")
    git(theirs, "add", ".")
    git(theirs, "commit", "-qm", "kernels")
    commit = git(theirs, "rev-parse", "HEAD")
    text = MANIFEST.replace("kernels/", "their/") + OF_COMMIT.format(theirs, commit)
    user = User(write(tmp_path / "user", {"mine.toml": text}))
    user.build("mine.toml")
    assert (user.directory / "out" / PACK).is_file()
    (user.directory / "mine.toml").write_text(text.replace(commit, "0" * 40), encoding="utf-8")
    failed = user.build("mine.toml", code=3)
    assert "git could not fetch a commit" in failed.stderr
    assert f"commit {'0' * 40} of file://{theirs}" in failed.stderr


def test_a_kernel_that_does_not_compile(user: User) -> None:
    """Prevents: a failure omits Triton's error text; an old library looks like a new one."""
    file = user.directory / "kernels/half.py"
    file.write_text(HALF.replace("0.5", "nothing"), encoding="utf-8")
    failed = user.build("mine.toml", code=7)
    file.write_text(HALF, encoding="utf-8")
    assert "Build complete: 0/1 succeeded, 1 failed." in failed.stdout
    assert "halve.py: halve: gfx942 BLOCK=256" in failed.stdout
    assert "NameError('nothing is not defined')" in failed.stdout
    assert not (user.directory / "out" / LIBRARY).exists()
    user.build("mine.toml")
    assert (user.directory / "out" / LIBRARY).is_file()
