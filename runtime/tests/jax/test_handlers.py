"""FFI handlers of wheels, called in the way of XLA on a GPU, on the fake HIP runtime."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gfxemu.fake_hip import FakeHip, read_log

CALL = os.environ["QOLA_TEST_CALL"]
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"])
HANDLERS = Path(os.environ["QOLA_TEST_HANDLERS"]).absolute()
LIBRARY = Path(os.environ["QOLA_TEST_LIBRARY"]).absolute()
SPLIT = Path(os.environ["QOLA_TEST_SPLIT"], "manifest.json").resolve().parent
FP16, BF16 = "1", "2"


def call(log: Path, dtype: str, library: Path = LIBRARY) -> list[str]:
    """Return the lines that the program prints."""
    fake = FakeHip(FAKE.absolute(), "gfx950", (HANDLERS.parent,))
    command = [CALL, str(HANDLERS), str(library), "qola_ci_mha_fwd", dtype]
    result = fake.run(command, log)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_a_call_launches_on_the_stream_of_xla(tmp_path: Path) -> None:
    """Prevents: a kernel runs on a wrong stream or with swapped buffers, or needs a newer FFI."""
    assert call(tmp_path / "log", FP16) == ["FFI 0.1"]
    (launch,) = read_log(tmp_path / "log")
    assert "FmhaFwdKernel" in launch.kernel
    assert launch.stream == 1


def test_errors_reach_xla(tmp_path: Path) -> None:
    """Prevents: XLA uses the result of a failed launch."""
    _, line = call(tmp_path / "log", BF16)
    assert line.startswith("qola_ci_mha_fwd: no kernel of the library serves the problem")
    _, line = call(tmp_path / "log", FP16, tmp_path / "absent.so")
    assert "absent.so: cannot open shared object file" in line
    assert read_log(tmp_path / "log") == []


def test_errors_name_the_missing_pack(tmp_path: Path) -> None:
    """Prevents: an XLA error refers only to standard error, which a notebook does not show."""
    library = Path(shutil.copy(SPLIT / "lib/ci_libmha_fwd.so", tmp_path))
    _, line = call(tmp_path / "log", FP16, library)
    pack = "ci_libmha_fwd-gfx950.qpack"
    start = f"qola_ci_mha_fwd: {library.name} has no device code for gfx950: {pack} is missing; "
    assert line.startswith(start)
    assert f"; fix: copy {pack} of the same build to {tmp_path}" in line
    # A new process finds the copied pack.
    shutil.copy(SPLIT / "lib" / pack, tmp_path)
    assert call(tmp_path / "log", FP16, library) == ["FFI 0.1"]
    assert len(read_log(tmp_path / "log")) == 1
