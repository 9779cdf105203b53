"""rules_hip/kernels/compile_batch.sh: error messages for a batch that does not compile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.running import run

SCRIPT, CLANG = (Path(os.environ[f"QOLA_TEST_{name}"]).resolve() for name in ("SCRIPT", "CLANG"))
GOOD = "template <int> void kernel();\ntemplate <> void kernel<{n}>() {{}}\n"


def compile_batch(
    directory: Path, *kernels: str, once: bool = False, compiler: Path = CLANG
) -> subprocess.CompletedProcess[str]:
    """Compile kernels as a batch; `once` adds lines that fail only in the batch."""
    (directory / "batches").mkdir()
    for n, text in enumerate(kernels):
        (directory / f"k{n}.cpp").write_text(text.format(n=n), encoding="utf-8")
    lines = [f'#include "../k{n}.cpp"' for n in range(len(kernels))]
    batch = directory / "batches/b.cpp"
    batch.write_text("\n".join(["int x;"] * (1 + once) + lines) + "\n", encoding="utf-8")
    command: list[str | Path] = [SCRIPT, batch, *sorted(directory.glob("k*.cpp")), "--"]
    # Flags come from AITER's files and may contain blanks and quotes.
    command += [compiler, '-DTEXT="a b*"', "-o", directory / "b.o", "-c"]
    # A remote worker has only a shell.
    (directory / "none").mkdir()
    return run(command, env={"PATH": str(directory / "none")})


def test_a_batch_compiles(tmp_path: Path) -> None:
    """Prevents: a message without an error, or a missing object."""
    result = compile_batch(tmp_path, GOOD, GOOD)
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "b.o").is_file()


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        ("#error does not fit\n", ["k1", "k3"]),
        # An unknown instruction: only the last step of the compiler rejects it. The script names
        # only the first broken kernel, because each try costs a full compile.
        ('void f() {{ asm("no_such_instruction"); }}\n', ["k1"]),
    ],
)
def test_the_broken_kernels_are_named(tmp_path: Path, broken: str, names: list[str]) -> None:
    """Prevents: a batch hides the broken kernel instance, or the error names another one."""
    result = compile_batch(tmp_path, GOOD, broken, GOOD, broken.replace("f()", "g()"))
    assert result.returncode == 1
    reported = [line for line in result.stderr.splitlines() if line.startswith("qola: kernel")]
    assert reported == [f"qola: kernel instance {name} does not compile" for name in names]
    assert "a batch of 4 kernel instances does not compile; trying each alone" in result.stderr


def test_a_batch_whose_kernels_compile_separately(tmp_path: Path) -> None:
    """Prevents: no remedy for a batch that fails although each kernel instance compiles."""
    result = compile_batch(tmp_path, GOOD, GOOD, once=True)
    assert result.returncode == 1
    assert "each of them compiles alone: [build] batch = 1 in the manifest" in result.stderr


def test_a_killed_compiler_is_not_a_broken_kernel(tmp_path: Path) -> None:
    """Prevents: kernel instances are reported as broken after a lack of memory or disk space."""
    for code, error_text in ((137, ""), (1, "clang++: error: unable to execute command: Killed")):
        directory = tmp_path / str(code)
        directory.mkdir()
        killed = directory / "compiler"
        killed.write_text(f"#!/bin/sh\necho '{error_text}' >&2\nexit {code}\n", encoding="utf-8")
        killed.chmod(0o755)
        result = compile_batch(directory, GOOD, GOOD, compiler=killed)
        assert result.returncode == code
        assert "qola: kernel instance" not in result.stderr
