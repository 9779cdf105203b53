"""The check of the functions of HIP that an emulated program calls."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gfxemu.check_program import MissingFunctionsError, check_functions, main

_RUNTIME = """
__attribute__((weak)) void hipGraphLaunch(void) {}
__attribute__((weak)) void hipGraphCreate(void) {}
__attribute__((weak)) void hipMalloc3D(void) {}
void hipMalloc(void) {}
"""
_PROGRAM = """
void hipGraphLaunch(void), hipGraphCreate(void), hipMalloc(void), other(void);
__attribute__((weak)) void hipMalloc3D(void);
int main(void) { hipGraphLaunch(); hipGraphCreate(); hipMalloc(); other(); hipMalloc3D(); }
"""


@pytest.fixture
def libraries(tmp_path: Path) -> tuple[Path, Path]:
    """A runtime that lacks functions, and a program that calls some of them."""
    compiler = next(filter(None, map(shutil.which, ("gcc", "clang", "cc"))), None)
    if compiler is None:
        pytest.skip("no C compiler")
    paths = tmp_path / "runtime.so", tmp_path / "program.so"
    for path, text in zip(paths, (_RUNTIME, _PROGRAM), strict=True):
        command = [compiler, "-xc", "-shared", "-fPIC", "-", "-o", str(path)]
        subprocess.run(command, input=text, text=True, check=True)
    return paths


def test_all_missing_functions_are_named(libraries: tuple[Path, Path]) -> None:
    """Prevents: missing functions that are found one rebuild at a time."""
    with pytest.raises(MissingFunctionsError) as caught:
        check_functions(*libraries, "//:program")
    (finding,) = caught.value.findings
    assert (finding.place, finding.found) == ("//:program", "hipGraphCreate, hipGraphLaunch")
    assert finding.fix.endswith('unused_functions = ["hipGraphCreate", "hipGraphLaunch"]')


def test_unused_functions(
    libraries: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a program that cannot be emulated because of functions that it never calls."""
    runtime, program = map(str, libraries)
    output = tmp_path / "checked"
    words = ["--runtime", runtime, "--program", program, "--place", "x", "--output", str(output)]
    assert main([*words, "--unused", "hipGraphLaunch"]) == 1
    assert not output.exists()
    assert "hipGraphCreate\n" in capsys.readouterr().err
    assert main([*words, "--unused", "hipGraphLaunch", "--unused", "hipGraphCreate"]) == 0
    assert output.read_bytes() == b""
