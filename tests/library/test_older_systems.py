"""runtime/older_systems: a program needs no newer system, and runs on the current system."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import stat
from pathlib import Path

import pytest

from qola.bundle.elf_versions import read_needs
from qola.bundle.platform_policy import check_platform
from qola_base.errors import BundleError
from tests.support.running import output_of, run

PROGRAMS = {
    path.name: path for path in map(Path, os.environ["QOLA_TEST_PROGRAMS"].split()) if path.name
}
STUBS = [Path(path) for path in os.environ["QOLA_TEST_STUBS"].split()]
NM = Path(os.environ["QOLA_TEST_LLVM"])
PLATFORM = "manylinux_2_28_x86_64"
RTLD_DEFAULT = None


def _check(program: Path, directory: Path) -> None:
    shutil.copy(program, directory)
    check_platform(read_needs(directory), PLATFORM, ())


def test_the_program_needs_no_newer_system(tmp_path: Path) -> None:
    """Prevents: a program loads on the build machine but not on the target system."""
    _check(PROGRAMS["older_probe"], tmp_path)
    (needs,) = read_needs(tmp_path)
    # Older systems have these functions in separate libraries.
    assert {"libdl.so.2", "libpthread.so.0"} <= set(needs.libraries)


def test_a_plain_program_needs_a_newer_system(tmp_path: Path) -> None:
    """Prevents: the test above cannot fail, because every program passes it."""
    with pytest.raises(BundleError) as error:
        _check(PROGRAMS["older_plain"], tmp_path)
    found = str(error.value)
    assert "GLIBC_2.34 of libc.so.6" in found
    assert "GLIBCXX_3.4.29 of libstdc++.so.6" in found
    assert "CXXABI_1.3.13 of libstdc++.so.6" in found


def test_both_programs_print_the_same(tmp_path: Path) -> None:
    """Prevents: constructors run twice or never, or stat uses another struct than libc."""
    link = tmp_path / "link"
    link.symlink_to(Path(__file__).resolve())
    outputs = {}
    for name, program in PROGRAMS.items():
        result = run([program, link], timeout=60)
        assert (result.returncode, result.stderr) == (7, "")
        outputs[name] = result.stdout
    assert outputs["older_probe"] == outputs["older_plain"]
    target, itself = link.stat(), link.lstat()
    for line in (
        f"arguments 2 {link}",
        "constructed 1",
        "ostringstream 'ostringstream' 'ostringstream'",
        "istringstream '' ''",
        f"stat 0 {target.st_size} {target.st_mode:o}",
        f"lstat 0 {itself.st_size} {itself.st_mode:o}",
        f"fstat 0 {target.st_size} {target.st_mode:o}",
        "missing -1",
        "sqrt 4 1",
        "once 1 1",
        "blocked 0",
        "caught",
        # The exception lives as long as a reference to it exists.
        "exceptions 1 1 0",
        "bad_array_new_length",
        "destroyed",
    ):
        assert line in outputs["older_probe"].splitlines()
    assert stat.S_ISLNK(itself.st_mode)


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.name)
def test_newer_systems_have_the_symbols_of_the_stubs(stub: Path) -> None:
    """Prevents: a stub has a symbol version that no system has, so that a library fails to load."""
    listing = output_of([NM, "--dynamic", "--defined-only", stub])
    names = dict(re.findall(r" T (\w+)@@(\S+)$", listing, re.M))
    assert len(names) >= 5
    find = ctypes.CDLL(stub.name).dlvsym
    find.restype = ctypes.c_void_p
    find.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    missing = {n: v for n, v in names.items() if not find(RTLD_DEFAULT, n.encode(), v.encode())}
    assert missing == {}
