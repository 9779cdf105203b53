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

from qola.bundle.in_wheel import _c
from tests.support.sdk import compiler_of

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


def compiles(lines: list[str], directory: Path) -> str:
    """Return the compiler's messages for a C program with these assertions."""
    source = directory / "check.c"
    source.write_text("\n".join(['#include "qola_c.h"', *lines, ""]), encoding="utf-8")
    options = ["-xc", "-std=c11", "-fsyntax-only", "-Werror", f"-I{BUNDLE}/include", str(source)]
    done = subprocess.run(
        [*compiler_of(SDK), *options], capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr


def same(found: str, wanted: int) -> str:
    return f'_Static_assert({found} == {wanted}, "");'


def test_structures_are_those_of_the_header(tmp_path: Path) -> None:
    """Prevents: a field that a library reads as another one."""
    lines = []
    for name, structure in STRUCTURES.items():
        end = 0
        for field in (one[0] for one in structure._fields_):
            of = getattr(structure, field)
            # Where each begins as the one before ends, none of C's is left out.
            assert of.offset == end, field
            end += of.size
            lines.append(same(f"offsetof({name}, {field})", of.offset))
            lines.append(same(f"sizeof((({name}*)0)->{field})", of.size))
        lines.append(same(f"sizeof({name})", end))
        assert ctypes.sizeof(structure) == end
    assert len(lines) > 150
    assert compiles(lines, tmp_path) == ""
    assert "error" in compiles([same("offsetof(qola_mha_args, mask)", 4)], tmp_path)


def test_numbers_are_those_of_the_header(tmp_path: Path) -> None:
    """Prevents: one mask or type for another."""
    numbers = {name: value for name, value in vars(_c).items() if name.startswith(ENUMERATED)}
    numbers["NO_KERNEL"] = _c._NO_KERNEL
    assert len(numbers) > 8
    assert compiles([same(f"QOLA_{name}", n) for name, n in numbers.items()], tmp_path) == ""


LIBRARY = "qola_forward/lib/forward_libmha_fwd.so"
#: A soname that no machine has.
SONAME = "libamdhip64.so.9"
#: Loads the library without this package's Python, and with it.
LINKED = "import ctypes; ctypes.CDLL(sys.argv[1])"
CALLED = "from qola_forward import _c; _c.entry('mha_fwd')"
PRINT = """
maps = open("/proc/self/maps").read().splitlines()
print(*{line.split(None, 5)[5] for line in maps if "libamdhip64" in line})
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory as pip fills it with the wheel; the library needs SONAME."""
    found = tmp_path_factory.mktemp("lib") / "site-packages"
    with ZipFile(WHEEL) as wheel:
        wheel.extractall(found)
    rename_runtime(found / LIBRARY, found / LIBRARY)
    return found


def rename_runtime(source: Path, target: Path) -> Path:
    """Copy a library, with SONAME in place of the fake runtime's name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes().replace(FAKE.name.encode(), SONAME.encode()))
    return target


@pytest.fixture
def rocm_sdk(tmp_path: Path) -> Path:
    """Return a directory as pip fills it with rocm-sdk-core, whose HIP is the fake one."""
    package = tmp_path / "_rocm_sdk_core"
    rename_runtime(FAKE, package / "lib" / SONAME)
    (package / "__init__.py").touch()
    return package


def python(program: str, *path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program with packages of some directories, and print the paths of HIP's runtime."""
    env |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "FAKE_HIP_ARCH": "gfx950"}
    program = f"import sys\n{program}\n{PRINT}"
    command = [sys.executable, "-S", "-c", program, str(path[0] / LIBRARY)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_the_linker_finds_hip_that_pip_installed(
    site: Path, rocm_sdk: Path, tmp_path: Path
) -> None:
    """Prevents: a C or C++ program that needs LD_LIBRARY_PATH next to ROCm's wheels."""
    assert f"{SONAME}: cannot open" in python(LINKED, site).stderr
    installed = site / rocm_sdk.name
    rocm_sdk.rename(installed)
    try:
        assert python(LINKED, site).stdout == f"{installed / 'lib' / SONAME}\n"
        # A caller's own choice comes first.
        chosen = rename_runtime(FAKE, tmp_path / "chosen" / SONAME)
        done = python(LINKED, site, LD_LIBRARY_PATH=str(chosen.parent))
        assert done.stdout == f"{chosen}\n"
    finally:
        shutil.rmtree(installed)


def test_python_finds_hip_of_another_directory(site: Path, rocm_sdk: Path) -> None:
    """Prevents: a wheel in a virtual environment that misses ROCm of the system's Python."""
    runtime = rocm_sdk / "lib" / SONAME
    done = python(CALLED, site, rocm_sdk.parent)
    assert done.stdout == f"{runtime}\n", done.stderr
    # A ROCm that is no package.
    assert python(CALLED, site, ROCM_PATH=str(rocm_sdk)).stdout == f"{runtime}\n"


def test_the_error_lists_the_directories_searched(
    site: Path, rocm_sdk: Path, tmp_path: Path
) -> None:
    """Prevents: "cannot open shared object file", which does not say where, or what is there."""
    (rocm_sdk / "lib" / SONAME).rename(rocm_sdk / "lib" / "libamdhip64.so.6")
    more = {"LD_LIBRARY_PATH": str(tmp_path), "ROCM_PATH": "/none"}
    error = python(CALLED, site, rocm_sdk.parent, **more).stderr.partition("RuntimeError: ")[2]
    first, *places, fix = error.splitlines()
    assert first.startswith(f"{site / LIBRARY}: HIP's runtime {SONAME} was not loaded: ")
    assert places == [
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
    # A runtime that is found, and is damaged.
    (rocm_sdk / "lib" / SONAME).write_bytes(b"")
    error = python(CALLED, site, rocm_sdk.parent).stderr
    assert f"was not loaded: {rocm_sdk / 'lib' / SONAME}: file too short" in error


def test_without_torch(tmp_path: Path) -> None:
    """Prevents: a wheel that fails without torch where it need not, or not in so many words."""
    with ZipFile(WHEEL) as wheel:
        wheel.extractall(tmp_path)
    env = {"PYTHONPATH": str(tmp_path)}

    def run(program: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-c", program]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert run("import qola_forward, qola_forward._c").stderr == ""
    done = run("import qola_forward.torch")
    assert "ImportError: qola_forward.torch needs PyTorch 2.4 or later: No module" in done.stderr
    # Libraries are looked for at the first call, not before.
    done = run("from qola_forward import _c; _c.entry('mha_bwd')")
    assert "no library has mha_bwd" in done.stderr
