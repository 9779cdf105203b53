"""``qola inspect`` on built libraries, and on a library with device code of two compilers."""

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


def link_library(directory: Path, language: str, source: str, *options: str) -> Path:
    """Compile a source with the pinned clang, and link a library."""
    names = [str(directory / name) for name in ("source", "object.o", "linked.so")]
    Path(names[0]).write_text(source, "utf-8")
    arguments = ["-x", language, *options, "-fPIC", "-O1", "-c", "-o", names[1], names[0]]
    subprocess.run([str(CLANG), *arguments], check=True)
    lld = CLANG.with_name("ld.lld")
    subprocess.run([str(lld), "-shared", "-o", names[2], names[1]], check=True)
    return Path(names[2])


def compile_code_object(directory: Path) -> bytes:
    """Return a code object with a kernel."""
    options = ["-cl-no-stdinc", "-nogpulib", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx942"]
    source = "kernel void store(global int *p) { *p = 1; }"
    return link_library(directory, "cl", source, *options).read_bytes()


def library(directory: Path, *code: bytes) -> Path:
    """Return a library that contains code objects as data."""
    lines = []
    for number, content in enumerate(code):
        path = directory / f"{number}.co"
        path.write_bytes(content)
        lines.append(rf'__asm__(".data\n.balign 4096\n.incbin \"{path}\"\n.text");')
    return link_library(directory, "c", "\n".join([*lines, ""]))


def test_all_device_code_of_a_library_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a code object is missing, or listed without arch, compiler or kernels."""
    assert main(["inspect", ASSEMBLY, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["libraries"]
    assert found["archs"] == ["gfx942", "gfx950"]
    assert found["hip"] == "libamdhip64.so.7"
    version = subprocess.check_output([str(CLANG), "--version"], text=True).splitlines()[0]
    assert found["compilers"] == [version]
    by_kind = {code_object["embedded"]: code_object for code_object in found["code_objects"]}
    assert by_kind[False]["compiler"] == version
    assert by_kind[True]["compiler"] is None, "AITER's assembly kernels"
    assert all(
        code_object["kernels"] and code_object["version"] in {5, 6}
        for code_object in found["code_objects"]
    )
    assert main(["inspect", ASSEMBLY]) == 0
    printed = capsys.readouterr().out
    assert all(code_object["sha256"][:16] in printed for code_object in found["code_objects"])


def test_code_object_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a .hsaco of hip_code_object is listed without device code."""
    path = tmp_path / "store.hsaco"
    path.write_bytes(compile_code_object(tmp_path))
    assert main(["inspect", str(path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["libraries"]
    (code,) = found["code_objects"]
    assert (code["arch"], code["kernels"], code["embedded"]) == ("gfx942", ["store"], False)


def test_file_that_is_not_a_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: the error for a library of another build system suggests `qola build`."""
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
    """Prevents: a library ships kernels of a compiler that a developer only tried."""
    code = compile_code_object(tmp_path)
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


def test_library_without_device_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: an empty table for a library that lost its device code."""
    path = library(tmp_path)
    assert main(["inspect", str(path)]) == 0
    assert "contains no device code" in capsys.readouterr().out
