"""Executables and Python files on the fake HIP runtime, as `qola emulate` starts them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gfxemu.executable import is_executable
from gfxemu.tests.emulated import run_emulated
from gfxemu.tests.sdk import compiler_of

RUNTIME = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
SDK = Path(os.environ["QOLA_TEST_CLANG"]).absolute().parent.parent
PLAIN = """\
#include <cstdio>
#include <iostream>
extern "C" int hipGetDeviceCount(int*);
struct Static { Static() { std::cout << "begin\\n"; } ~Static() { std::cout << "end\\n"; } } object;
int main(int argc, char** argv) {
    int count = -1;
    const int status = hipGetDeviceCount(&count);
    std::cout << status << ' ' << count << ' ' << argv[argc - 1] << std::endl;
    return 3;
}
"""
KERNEL = """\
#include <hip/hip_runtime.h>
#include <cstdio>
__global__ void add(float* out, int count) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) out[at] += at;
}
int main(int argc, char**) {
    float host[100] = {}, *device;
    hipMalloc(&device, sizeof host);
    hipMemcpy(device, host, sizeof host, hipMemcpyHostToDevice);
    add<<<2, 64>>>(device, argc > 1 ? 1000 : 100);
    hipMemcpy(host, device, sizeof host, hipMemcpyDeviceToHost);
    std::printf("%g %g\\n", host[1], host[99]);
}
"""
PYTHON = """\
import atexit, ctypes, sys
hip, count = ctypes.CDLL("libamdhip64.so.7"), ctypes.c_int(-1)
print(hip.hipGetDeviceCount(ctypes.byref(count)), count.value, sys.argv[-1])
atexit.register(print, "end")
sys.exit(4)
"""


def compile_program(directory: Path, source: str, *flags: str) -> Path:
    """Compile a program that needs the runtime."""
    program = directory / "program"
    (directory / RUNTIME.name).unlink(missing_ok=True)
    (directory / RUNTIME.name).symlink_to(RUNTIME)
    (directory / "source").write_text(source)
    command = [*compiler_of(SDK), *flags, str(directory / "source"), "-xnone"]
    command += [str(directory / RUNTIME.name), "-o", str(program), "-no-hip-rt", "-fuse-ld=lld"]
    subprocess.run(command, check=True)
    return program


def emulate(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program as `qola emulate` does."""
    return run_emulated(RUNTIME, "gfx942", program, *arguments)


@pytest.mark.parametrize("flags", [(), ("-s",), ("-fdirect-access-external-data",)])
def test_a_program_of_plain_cpp(flags: tuple[str, ...], tmp_path: Path) -> None:
    """Prevents: a user of C or CMake without a GPU cannot run the program that was built."""
    program = compile_program(tmp_path, PLAIN, "-xc++", "-O1", "-fPIE", "-pie", *flags)
    assert is_executable(program)
    ran = emulate(program, "one", "two")
    assert (ran.returncode, ran.stdout) == (3, "begin\n0 1 two\nend\n"), ran.stderr


def test_kernels_of_a_program_run(tmp_path: Path) -> None:
    """Prevents: a program whose kernels do nothing, or whose invalid kernel counts as success."""
    program = compile_program(tmp_path, KERNEL, "-xhip", "--offload-arch=gfx942", "-O1")
    ran = emulate(program)
    assert (ran.returncode, ran.stdout) == (0, "1 99\n"), ran.stderr
    assert emulate(program, "beyond").returncode == 1


def test_a_python_file(tmp_path: Path) -> None:
    """Prevents: a Python program does not find the runtime, or ends without its own exit code."""
    (tmp_path / "program.py").write_text(PYTHON)
    ran = emulate(tmp_path / "program.py", "last")
    assert (ran.returncode, ran.stdout) == (4, "0 1 last\nend\n"), ran.stderr
    (tmp_path / "program.py").write_text("import sys\nsys.exit('message')\n")
    ran = emulate(tmp_path / "program.py")
    assert (ran.returncode, ran.stderr) == (1, "message\n")
    (tmp_path / "program.py").write_text("1 / 0\n")
    ran = emulate(tmp_path / "program.py")
    assert ran.returncode == 1
    assert "ZeroDivisionError" in ran.stderr


COUNTER = 'extern "C" int optind; int main() { return optind; }'


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (("-no-pie", "-fno-pie"), "a program at a fixed address"),
        (("-fPIE", "-pie", "-fdirect-access-external-data"), "a copy of optind"),
    ],
)
def test_refused_programs(flags: tuple[str, ...], found: str, tmp_path: Path) -> None:
    """Prevents: a crash, or another result than without the emulator."""
    ran = emulate(compile_program(tmp_path, COUNTER, "-xc++", *flags))
    assert ran.returncode != 0
    assert f"found     {found}" in ran.stderr


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + bytes(80)])
def test_other_files(content: bytes, tmp_path: Path) -> None:
    """Prevents: a traceback for a script or a damaged file."""
    (tmp_path / "program").write_bytes(content)
    ran = emulate(tmp_path / "program")
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert "error: " in ran.stderr
