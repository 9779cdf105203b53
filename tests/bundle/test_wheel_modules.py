"""The Python modules of wheels: C structures as in the header, and no import of torch."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from gfxemu.tests.sdk import compiler_of
from runtime.wheel import _c

BUNDLE = Path(os.environ["QOLA_TEST_BUNDLE"], "manifest.json").resolve().parent
SDK = Path(os.environ["QOLA_TEST_CLANG"]).absolute().parent.parent
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
WHEEL = Path(os.environ["QOLA_TEST_WHEEL"])
STRUCTURES: dict[str, type[ctypes.Structure]] = {
    "qola_tensor": _c.Tensor,
    "qola_mha_args": _c.Arguments,
    "qola_stage": _c.Stage,
    "qola_found": _c.Found,
}
ENUMERATED = ("FP16", "BF16", "FP32", "MASK_", "BIAS_")


def compiler_messages(lines: list[str], directory: Path) -> str:
    """Compile a C program with assertions, and return the compiler's messages."""
    source = directory / "check.c"
    source.write_text("\n".join(['#include "qola_c.h"', *lines, ""]), encoding="utf-8")
    options = ["-xc", "-std=c11", "-fsyntax-only", "-Werror", f"-I{BUNDLE}/include", str(source)]
    result = subprocess.run(
        [*compiler_of(SDK), *options], capture_output=True, text=True, check=False
    )
    assert (result.returncode == 0) == (result.stderr == "")
    return result.stderr


def static_assertion(expression: str, value: int) -> str:
    return f'_Static_assert({expression} == {value}, "");'


def test_structures_match_the_header(tmp_path: Path) -> None:
    """Prevents: a library reads a field of a structure at the wrong offset."""
    lines = []
    for name, structure in STRUCTURES.items():
        end = 0
        for field in (entry[0] for entry in structure._fields_):
            descriptor = getattr(structure, field)
            # Each field begins at the end of the previous field, so no field of C is missing.
            assert descriptor.offset == end, field
            end += descriptor.size
            lines.append(static_assertion(f"offsetof({name}, {field})", descriptor.offset))
            lines.append(static_assertion(f"sizeof((({name}*)0)->{field})", descriptor.size))
        lines.append(static_assertion(f"sizeof({name})", end))
        assert ctypes.sizeof(structure) == end
    assert len(lines) > 150
    assert compiler_messages(lines, tmp_path) == ""
    assert "error" in compiler_messages(
        [static_assertion("offsetof(qola_mha_args, mask)", 4)], tmp_path
    )


def test_numbers_match_the_header(tmp_path: Path) -> None:
    """Prevents: a mask or type has another number than in the header."""
    numbers = {name: value for name, value in vars(_c).items() if name.startswith(ENUMERATED)}
    numbers["NO_KERNEL"] = _c._NO_KERNEL
    assert len(numbers) > 8
    assert (
        compiler_messages(
            [static_assertion(f"QOLA_{name}", n) for name, n in numbers.items()], tmp_path
        )
        == ""
    )


LIBRARY = "qola_forward/lib/ci_libmha_fwd.so"
#: A soname that does not exist on any machine.
SONAME = "libamdhip64.so.9"
#: Load the library directly, and by the package's Python code.
LINKED = "import ctypes; ctypes.CDLL(sys.argv[1])"
CALLED = "from qola_forward import _c; _c.entry('mha_fwd')"
PRINT = """
maps = open("/proc/self/maps").read().splitlines()
print(*{line.split(None, 5)[5] for line in maps if "libamdhip64" in line})
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a site-packages directory with the wheel; its library needs SONAME."""
    directory = tmp_path_factory.mktemp("lib") / "site-packages"
    with ZipFile(WHEEL) as wheel:
        wheel.extractall(directory)
    rename_runtime(directory / LIBRARY, directory / LIBRARY)
    return directory


def rename_runtime(source: Path, target: Path) -> Path:
    """Copy a library, and replace the fake runtime's name by SONAME."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes().replace(FAKE.name.encode(), SONAME.encode()))
    return target


@pytest.fixture
def rocm_sdk(tmp_path: Path) -> Path:
    """Return a directory like that of the installed wheel rocm-sdk-core, with the fake HIP."""
    package = tmp_path / "_rocm_sdk_core"
    rename_runtime(FAKE, package / "lib" / SONAME)
    (package / "__init__.py").touch()
    return package


def python(program: str, *path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program with packages of some directories; it prints the paths of HIP's runtime."""
    env |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "FAKE_HIP_ARCH": "gfx950"}
    program = f"import sys\n{program}\n{PRINT}"
    command = [sys.executable, "-S", "-c", program, str(path[0] / LIBRARY)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_loader_finds_hip_installed_by_pip(site: Path, rocm_sdk: Path, tmp_path: Path) -> None:
    """Prevents: C and C++ programs need LD_LIBRARY_PATH to find HIP of ROCm's wheels."""
    assert f"{SONAME}: cannot open" in python(LINKED, site).stderr
    installed = site / rocm_sdk.name
    rocm_sdk.rename(installed)
    try:
        assert python(LINKED, site).stdout == f"{installed / 'lib' / SONAME}\n"
        # LD_LIBRARY_PATH of the caller has precedence.
        chosen = rename_runtime(FAKE, tmp_path / "chosen" / SONAME)
        result = python(LINKED, site, LD_LIBRARY_PATH=str(chosen.parent))
        assert result.stdout == f"{chosen}\n"
    finally:
        shutil.rmtree(installed)


def test_python_finds_hip_of_another_directory(site: Path, rocm_sdk: Path) -> None:
    """Prevents: a wheel in a virtual environment misses the ROCm of the system's Python."""
    runtime = rocm_sdk / "lib" / SONAME
    result = python(CALLED, site, rocm_sdk.parent)
    assert result.stdout == f"{runtime}\n", result.stderr
    # A ROCm that is not a Python package.
    assert python(CALLED, site, ROCM_PATH=str(rocm_sdk)).stdout == f"{runtime}\n"


def test_error_lists_the_searched_directories(site: Path, rocm_sdk: Path, tmp_path: Path) -> None:
    """Prevents: "cannot open shared object file" omits the searched directories."""
    (rocm_sdk / "lib" / SONAME).rename(rocm_sdk / "lib" / "libamdhip64.so.6")
    env = {"LD_LIBRARY_PATH": str(tmp_path), "ROCM_PATH": "/none"}
    error = python(CALLED, site, rocm_sdk.parent, **env).stderr.partition("RuntimeError: ")[2]
    first, *directories, fix = error.splitlines()
    assert first.startswith(f"{site / LIBRARY}: HIP's runtime {SONAME} was not loaded: ")
    assert directories == [
        f"  {tmp_path} (LD_LIBRARY_PATH)",
        f"  {site}/qola_forward/_rocm_sdk_core/lib (RUNPATH)",
        f"  {site}/_rocm_sdk_core/lib (RUNPATH)",
        f"  {site}/qola_forward/rocm/lib (RUNPATH)",
        f"  {site}/rocm/lib (RUNPATH)",
        f"  {rocm_sdk}/lib (package _rocm_sdk_core): has libamdhip64.so.6",
        "  /none/lib (ROCM_PATH)",
        "  /opt/rocm/lib (ROCm's default)",
        "  the system's directories (ldconfig -p)",
    ]
    assert fix.startswith("Install ROCm with this file, or AMD's wheel rocm-sdk-core")
    # A damaged runtime.
    (rocm_sdk / "lib" / SONAME).write_bytes(b"")
    error = python(CALLED, site, rocm_sdk.parent).stderr
    assert f"was not loaded: {rocm_sdk / 'lib' / SONAME}: file too short" in error


def test_without_torch(tmp_path: Path) -> None:
    """Prevents: a wheel needs torch for other functions, or its error does not name PyTorch."""
    with ZipFile(WHEEL) as wheel:
        wheel.extractall(tmp_path)
    env = {"PYTHONPATH": str(tmp_path)}

    def run(program: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-c", program]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert run("import qola_forward, qola_forward._c").stderr == ""
    result = run("import qola_forward.torch")
    assert "ImportError: qola_forward.torch needs PyTorch 2.4 or later: No module" in result.stderr
    # The first call searches for libraries.
    result = run("from qola_forward import _c; _c.entry('mha_bwd')")
    assert "no library has mha_bwd" in result.stderr
