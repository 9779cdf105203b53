"""``qola inspect`` on real libraries, and on one with device code of two compilers."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from qola.cli.command_line import main

CLANG = Path(os.environ["QOLA_TEST_CLANG"]).absolute()
ASSEMBLY = os.environ["QOLA_TEST_ASSEMBLY"]


def linked(directory: Path, language: str, source: str, *words: str) -> Path:
    """Compile a source with the pinned clang, and link a library of it."""
    names = [str(directory / name) for name in ("source", "object.o", "linked.so")]
    Path(names[0]).write_text(source, "utf-8")
    compile_words = ["-x", language, *words, "-fPIC", "-O1", "-c", "-o", names[1], names[0]]
    subprocess.run([str(CLANG), *compile_words], check=True)
    lld = CLANG.with_name("ld.lld")
    subprocess.run([str(lld), "-shared", "-o", names[2], names[1]], check=True)
    return Path(names[2])


def compiled(directory: Path) -> bytes:
    """Return a code object with one kernel."""
    words = ["-cl-no-stdinc", "-nogpulib", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx942"]
    source = "kernel void store(global int *p) { *p = 1; }"
    return linked(directory, "cl", source, *words).read_bytes()


def library(directory: Path, *code: bytes) -> Path:
    """Return a library that contains code objects as data."""
    lines = []
    for number, content in enumerate(code):
        path = directory / f"{number}.co"
        path.write_bytes(content)
        lines.append(rf'__asm__(".data\n.balign 4096\n.incbin \"{path}\"\n.text");')
    return linked(directory, "c", "\n".join([*lines, ""]))


def test_all_device_code_of_a_library_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: code objects without arch, compiler or kernels, or that are not listed."""
    assert main(["inspect", ASSEMBLY, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["libraries"]
    assert found["archs"] == ["gfx942", "gfx950"]
    assert found["hip"] == "libamdhip64.so.7"
    version = subprocess.check_output([str(CLANG), "--version"], text=True).splitlines()[0]
    assert found["compilers"] == [version]
    by_kind = {one["embedded"]: one for one in found["code_objects"]}
    assert by_kind[False]["compiler"] == version
    assert by_kind[True]["compiler"] is None, "AITER's assembly kernels"
    assert all(one["kernels"] and one["version"] in {5, 6} for one in found["code_objects"])
    assert main(["inspect", ASSEMBLY]) == 0
    printed = capsys.readouterr().out
    assert all(one["sha256"][:16] in printed for one in found["code_objects"])


def test_a_code_object_is_its_own_device_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a .hsaco of hip_code_object without device code."""
    path = tmp_path / "store.hsaco"
    path.write_bytes(compiled(tmp_path))
    assert main(["inspect", str(path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["libraries"]
    (code,) = found["code_objects"]
    assert (code["arch"], code["kernels"], code["embedded"]) == ("gfx942", ["store"], False)


def test_a_file_that_is_not_a_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: `qola build` as the fix for a library of another build system."""
    path = tmp_path / "lib.a"
    path.write_bytes(b"!<arch>")
    assert main(["inspect", str(path)]) == 1
    failed = capsys.readouterr().err
    assert "not a little-endian ELF file" in failed
    assert "expected  a library (.so), or a code object (.hsaco)" in failed
    assert "the file cannot be inspected" in failed
    assert "qola build" not in failed


def test_device_code_of_another_compiler_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: shipping kernels of a compiler that somebody tried out."""
    code = compiled(tmp_path)
    assert main(["inspect", str(library(tmp_path, code, code))]) == 0
    other = re.sub(rb"clang version \d", b"clang version 9", code)
    assert main(["inspect", str(library(tmp_path, code, other))]) == 1
    failed = capsys.readouterr()
    assert "device code of 2 compilers" in failed.err
    assert "clang version 9" in failed.err
    assert "fix       build the libraries again with one ROCm" in failed.err
    assert "sha256" in failed.out
    assert main(["inspect", str(tmp_path / "linked.so"), "--json"]) == 1
    assert set(json.loads(capsys.readouterr().out)) == {"error"}


def test_a_library_without_device_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: an empty table for a library whose device code was lost."""
    path = library(tmp_path)
    assert main(["inspect", str(path)]) == 0
    assert "contains no device code" in capsys.readouterr().out
