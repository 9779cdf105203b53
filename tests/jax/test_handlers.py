"""The FFI handlers of wheels, called as XLA calls them on a GPU, on the fake HIP runtime."""

from __future__ import annotations

import os
from pathlib import Path

from qola.launch.fake_hip import FakeHip, read_log

CALL = os.environ["QOLA_TEST_CALL"]
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"])
HANDLERS = Path(os.environ["QOLA_TEST_HANDLERS"]).absolute()
LIBRARY = Path(os.environ["QOLA_TEST_LIBRARY"]).absolute()
FP16, BF16 = "1", "2"


def call(log: Path, dtype: str, library: Path = LIBRARY) -> list[str]:
    """Return the lines that the program prints."""
    fake = FakeHip(FAKE.absolute(), "gfx950", (HANDLERS.parent,))
    command = [CALL, str(HANDLERS), str(library), "qola_forward_mha_fwd", dtype]
    done = fake.run(command, log)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_call_launches_on_the_stream_of_xla(tmp_path: Path) -> None:
    """Prevents: kernels on another stream than XLA's, buffers as other tensors, a newer FFI."""
    assert call(tmp_path / "log", FP16) == ["FFI 0.1"]
    (launch,) = read_log(tmp_path / "log")
    assert "FmhaFwdKernel" in launch.kernel
    assert launch.stream == 1


def test_errors_reach_xla(tmp_path: Path) -> None:
    """Prevents: a failed launch that XLA takes for a result."""
    _, line = call(tmp_path / "log", BF16)
    assert line.startswith("qola_forward_mha_fwd: no kernel of the library serves the problem")
    _, line = call(tmp_path / "log", FP16, tmp_path / "absent.so")
    assert "absent.so: cannot open shared object file" in line
    assert read_log(tmp_path / "log") == []
