"""The pinned ROCm: runs from a relative path, reads only the SDK, and matches sdk.json."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

CLANG = Path(os.environ["QOLA_TEST_CLANG"]).absolute()
SDK = CLANG.parent.parent
FLAGS = Path(os.environ["QOLA_TEST_FLAGS"]).read_text(encoding="utf-8")
KNOWN: dict[str, Any] = json.loads(Path(os.environ["QOLA_TEST_SDK_JSON"]).read_text())

SDK_PATHS = [
    "-no-canonical-prefixes",
    "--sysroot=here/sysroot",
    "--rocm-path=here/rocm",
    "-resource-dir=here/resource",
]
HIP = ["-x", "hip", "-std=c++20", "-O3", "-fPIC", "--offload-arch=gfx950", "-cuid=test"]
PROGRAM = """
#include <hip/hip_runtime.h>
#include <cmath>
#include <iostream>
#include <stdexcept>
__global__ void scale(float* p) { p[threadIdx.x] = sinf(p[threadIdx.x]) + std::sqrt(p[0]); }
extern "C" int run(float* p, int n) {
  if (n < 0) throw std::runtime_error("n");
  std::cout << n;
  scale<<<1, 64>>>(p);
  return hipDeviceSynchronize();
}
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory that refers to the SDK only by a relative path."""
    (tmp_path / "here").symlink_to(SDK)
    (tmp_path / "program.cpp").write_text(PROGRAM, encoding="utf-8")
    return tmp_path


def run(work: Path, program: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the SDK with an empty environment."""
    command = [f"here/bin/{program}", *args]
    return subprocess.run(command, cwd=work, env={}, text=True, capture_output=True, check=False)


def starlark_list(name: str) -> Any:
    """Return a list literal of flags.bzl, which is also valid Python."""
    for statement in ast.parse(FLAGS).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return ast.literal_eval(statement.value)
    raise AssertionError(f"flags.bzl has no {name}")


def test_compile_and_link_read_only_the_sdk(work: Path) -> None:
    """Prevents: the compiler's default paths add a header or library of the host to a kernel."""
    compiled = run(work, "clang++", *SDK_PATHS, *HIP, "-MD", "-c", "program.cpp", "-o", "program.o")
    assert compiled.returncode == 0, compiled.stderr
    read = (work / "program.d").read_text().replace("\\\n", " ").split()[1:]
    assert "here/rocm/include/hip/hip_runtime.h" in read
    assert [path for path in read if not path.startswith("here/")] == ["program.cpp"]

    link = ["-shared", "-fuse-ld=lld", *SDK_PATHS[:2], "-Lhere/rocm/lib", "-lamdhip64"]
    linked = run(work, "clang++", *link, "program.o", "-o", "it.so", "-Wl,--trace", "-Wl,-z,defs")
    assert linked.returncode == 0, linked.stderr
    assert [path for path in linked.stdout.split() if not path.startswith("here/")] == ["program.o"]


def test_libraries_load_on_older_systems(work: Path) -> None:
    """Prevents: a library needs the glibc of the compiler's system."""
    run(work, "clang++", *SDK_PATHS, *HIP, "-c", "program.cpp", "-o", "program.o")
    link = ["-shared", "-fuse-ld=lld", *SDK_PATHS[:2], "-Lhere/rocm/lib", "-lamdhip64"]
    run(work, "clang++", *link, "program.o", "-o", "it.so")
    needs = run(work, "llvm-readelf", "-V", "it.so").stdout
    glibc = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", needs)}
    glibcxx = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBCXX_([0-9.]+)", needs)}
    assert max(glibc) <= (2, 36)
    assert max(glibcxx) <= (3, 4, 30)


def test_versions(work: Path) -> None:
    """Prevents: a plan or a bundle names another compiler version than was used."""
    assert f"clang version {KNOWN['clang_version']} " in run(work, "clang++", "--version").stdout
    version = dict(
        line.split("=", 1)
        for line in (SDK / "rocm/share/hip/version").read_text().splitlines()
        if "=" in line
    )
    parts = [version[f"HIP_VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH")]
    assert KNOWN["hip_version"] == ".".join(parts)


def test_the_compiler_accepts_the_optional_flags(work: Path) -> None:
    """Prevents: kernels lack a flag of AITER, or get a flag that the compiler rejects."""
    accepted = []
    amd_only = starlark_list("AMD_CLANG_ONLY")
    for flag in starlark_list("OPTIONAL_FLAGS"):
        if flag in amd_only:
            continue
        probe = [*SDK_PATHS, *HIP, *flag, "-E", "/dev/null", "-o", "/dev/null"]
        if run(work, "clang++", *probe).returncode == 0:
            accepted += flag
    assert accepted == KNOWN["optional_flags"]


@pytest.mark.parametrize("program", sorted(path.name for path in (SDK / "bin").iterdir()))
def test_programs_run(work: Path, program: str) -> None:
    """Prevents: the SDK lacks a library of one of its programs."""
    result = run(work, program, "--version")
    # lld runs only under the name of a linker.
    assert result.returncode == 0 or program == "lld", result.stderr
    assert "error while loading shared libraries" not in result.stderr
