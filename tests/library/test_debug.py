"""Debug symbols of a stripped library, read by gdb."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.running import run
from tools.remote.programs import Programs, unpacked

LIBRARY = Path(os.environ["QOLA_TEST_LIBRARY"]).resolve()
DEBUG = Path(os.environ["QOLA_TEST_DEBUG"]).resolve()
GDB = unpacked("gdb", os.environ["QOLA_GDB"])


def build_id() -> str:
    """Return the build ID of the library."""
    with LIBRARY.open("rb") as file:
        section: Any = ELFFile(file).get_section_by_name(".note.gnu.build-id")
        (note,) = section.iter_notes()
        return str(note["n_desc"])


@pytest.mark.parametrize("location", ["same directory", "build-id"])
def test_gdb_finds_the_symbols(location: str, tmp_path: Path) -> None:
    """Prevents: gdb does not find the debug file, and a backtrace lacks the library's functions."""
    library, debug = shutil.copy(LIBRARY, tmp_path), tmp_path / DEBUG.name
    if location == "build-id":
        debug = tmp_path / f".build-id/{build_id()[:2]}/{build_id()[2:]}.debug"
        debug.parent.mkdir(parents=True)
    shutil.copy(DEBUG, debug)
    assert debug.stat().st_size > LIBRARY.stat().st_size / 10
    # On load, an internal function registers the device code of each source.
    commands = ["set breakpoint pending on", "break __hipRegisterFatBinary", "run", "backtrace"]
    command = [
        *Programs(GDB).command("gdb"),
        *("-nx", "-batch", f"--data-directory={GDB}/usr/share/gdb"),
        *("-iex", f"set debug-file-directory {tmp_path}"),
        *(argument for text in commands for argument in ("-ex", text)),
        *("--args", sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", library),
    ]
    result = run(command, env={**os.environ, "PYTHONHOME": f"{GDB}/usr"})
    assert re.search(r"#1 .* __hip_module_ctor \(\)", result.stdout), result
