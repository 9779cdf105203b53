"""RUNPATH of libraries, with the loader and objcopy of this machine."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from qola.build.install import install
from qola.bundle.python_wheel import write_wheel
from qola_base.runpath import show_runpath
from runtime.wheel._hip import PIP_PACKAGES
from tests.build.test_install import make_record
from tests.support.folders import write

RUNTIME = "libqola_test_hip.so.7"
STRIP = Path(__file__).parents[2] / "rules/private/strip.sh"
FLAGS = [f"-Wl,-rpath,$ORIGIN/{up}{name}/lib" for name in PIP_PACKAGES for up in ("../", "../../")]


def compile_library(output: Path, source: str, *flags: str) -> Path:
    """Compile C to a shared library."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-shared", "-fPIC", "-xc", "-", "-xnone", *flags, "-o", str(output)]
    subprocess.run(command, input=source, text=True, check=True)
    return output


def strip(library: Path) -> bytes:
    """Strip a library as Bazel does, and return it as it would be without `strip.sh`."""
    objcopy = shutil.which("llvm-objcopy") or shutil.which("objcopy")
    if objcopy is None:
        pytest.skip("needs objcopy")
    output = library.with_suffix(".stripped")
    subprocess.run([objcopy, "--strip-all", library, output], check=True)
    original = output.read_bytes()
    subprocess.run(["sh", STRIP, objcopy, library, output, "--strip-all"], check=True)
    output.replace(library)
    return original


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return lib/te.so of a bundle below a directory in which another user put a runtime."""
    planted = tmp_path / "rocm/lib" / RUNTIME
    runtime = compile_library(planted, "int hip(void) { return 7; }", f"-Wl,-soname,{RUNTIME}")
    source = "int hip(void); int te(void) { return hip(); }"
    return compile_library(tmp_path / "te/lib/te.so", source, str(runtime), *FLAGS)


def loads(library: Path) -> bool:
    """Return whether the loader finds the runtime that a library needs."""
    program = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).te())"
    command = [sys.executable, "-c", program, str(library)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0 or RUNTIME in run.stderr
    return run.stdout == "7\n"


def test_a_library_finds_no_planted_runtime(library: Path) -> None:
    """Prevents: root's process runs the library that another user put next to a bundle in /tmp."""
    assert loads(library)
    original = strip(library)
    assert not loads(library)
    assert len(library.read_bytes()) == len(original)
    shown = show_runpath(library.read_bytes())
    assert shown == original
    assert show_runpath(shown) == shown
    library.write_bytes(shown)
    assert loads(library)


def test_a_wheel_finds_the_runtime_of_pip(library: Path, tmp_path: Path) -> None:
    """Prevents: a wheel without the entries, or with the digests of the bundle's library."""
    original = strip(library)
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    module = {"name": "libmha_fwd", "library": "lib/te.so", "sha256": digest}
    record = {"archs": ["gfx950"], "inputs": {"aiter": {"id": "1"}}, "modules": [module]}
    write(library.parent.parent, {"manifest.json": json.dumps(record)})
    wheel = tmp_path / "qola_te-1.0-py3-none-linux_x86_64.whl"
    write_wheel(library.parent.parent, wheel, [RUNTIME])
    with ZipFile(wheel) as file:
        assert file.read("qola_te/lib/te.so") == original
        (module,) = json.loads(file.read("qola_te/manifest.json"))["modules"]
    assert module["sha256"] == hashlib.sha256(original).hexdigest()


@pytest.mark.parametrize(
    "flags", [[], ["-Wl,-rpath,$ORIGIN"], ["-Wl,-rpath,$ORIGIN/../lib:/opt/rocm/lib"]]
)
def test_a_wheel_shows_no_other_entries(flags: list[str], tmp_path: Path) -> None:
    """Prevents: a RUNPATH that is not for HIP's runtime, or a library that a wheel changes."""
    library = compile_library(tmp_path / "x.so", "int x(void) { return 1; }", *flags)
    linked = library.read_bytes()
    assert show_runpath(linked) == linked
    strip(library)
    stripped = library.read_bytes()
    assert show_runpath(stripped) == stripped


@pytest.mark.parametrize("size", [0, 5, 60, 64, 400, 2000])
def test_damaged_files_stay(size: int, library: Path) -> None:
    """Prevents: a traceback for a file that is not, or not completely, a library."""
    strip(library)
    damaged = library.read_bytes()[:size]
    assert show_runpath(damaged) == damaged


def test_directories_of_others(library: Path, tmp_path: Path, logged: list[str]) -> None:
    """Prevents: no warning for a bundle next to which everybody can create files."""
    output = tmp_path / "shared/private/out"
    output.parent.mkdir(parents=True, mode=0o700)
    for mode in (0o777, 0o1777, 0o755):
        output.parent.parent.chmod(mode)
        logged.clear()
        install(output, {"lib/te.so": library}, (), make_record(output))
        named = [line for line in logged if f"is below {tmp_path}/shared, writable by" in line]
        assert len(named) == (mode != 0o755)
