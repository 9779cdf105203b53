"""rules/qola_compile/compile_batch.sh: what a batch that does not compile says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT, CLANG = (Path(os.environ[f"QOLA_TEST_{name}"]).resolve() for name in ("SCRIPT", "CLANG"))
GOOD = "template <int> void kernel();\ntemplate <> void kernel<{n}>() {{}}\n"


def compile_batch(
    directory: Path, *kernels: str, once: bool = False, compiler: Path = CLANG
) -> subprocess.CompletedProcess[str]:
    """Compile kernels as a batch; with `once`, what stands before them fails in a batch."""
    (directory / "batches").mkdir()
    for n, text in enumerate(kernels):
        (directory / f"k{n}.cpp").write_text(text.format(n=n), encoding="utf-8")
    lines = [f'#include "../k{n}.cpp"' for n in range(len(kernels))]
    batch = directory / "batches/b.cpp"
    batch.write_text("\n".join(["int x;"] * (1 + once) + lines) + "\n", encoding="utf-8")
    command: list[str | Path] = [SCRIPT, batch, *sorted(directory.glob("k*.cpp")), "--"]
    # Flags come from AITER's files, with blanks and quotes in them.
    command += [compiler, '-DTEXT="a b*"', "-o", directory / "b.o", "-c"]
    # A worker has a shell, and no other program.
    (directory / "none").mkdir()
    env = {"PATH": str(directory / "none")}
    return subprocess.run(command, text=True, capture_output=True, check=False, env=env)


def test_a_batch_compiles(tmp_path: Path) -> None:
    """Prevents: words where nothing is wrong, or no object."""
    found = compile_batch(tmp_path, GOOD, GOOD)
    assert (found.returncode, found.stderr) == (0, "")
    assert (tmp_path / "b.o").is_file()


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        ("#error does not fit\n", ["k1", "k3"]),
        # Parsed, and refused by the last step: an instruction that no processor has. The first is
        # named, as each costs a whole compile.
        ('void f() {{ asm("no_such_instruction"); }}\n', ["k1"]),
    ],
)
def test_the_broken_kernels_are_named(tmp_path: Path, broken: str, names: list[str]) -> None:
    """Prevents: a broken kernel instance hidden behind its batch; another one blamed."""
    found = compile_batch(tmp_path, GOOD, broken, GOOD, broken.replace("f()", "g()"))
    assert found.returncode == 1
    named = [line for line in found.stderr.splitlines() if line.startswith("qola: kernel")]
    assert named == [f"qola: kernel instance {name} does not compile" for name in names]
    assert "a batch of 4 kernel instances does not compile; trying each alone" in found.stderr


def test_a_batch_that_only_fails_as_one(tmp_path: Path) -> None:
    """Prevents: "does not compile" without a way on, where each kernel instance does."""
    found = compile_batch(tmp_path, GOOD, GOOD, once=True)
    assert found.returncode == 1
    assert "each of them compiles alone: [build] batch = 1 in the manifest" in found.stderr


def test_a_killed_compiler_blames_nobody(tmp_path: Path) -> None:
    """Prevents: kernel instances called broken where memory or the disk was at fault."""
    for code, said in ((137, ""), (1, "clang++: error: unable to execute command: Killed")):
        place = tmp_path / str(code)
        place.mkdir()
        killed = place / "compiler"
        killed.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {code}\n", encoding="utf-8")
        killed.chmod(0o755)
        found = compile_batch(place, GOOD, GOOD, compiler=killed)
        assert found.returncode == code
        assert "qola: kernel instance" not in found.stderr
