"""Threads that find and load kernels of a qola_triton_library, under ThreadSanitizer."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from gfxemu.fake_hip import FakeHip, read_log

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
PROGRAM = Path(os.environ["QOLA_TEST_THREADS"]).resolve()
FILES = [Path(path).resolve() for path in os.environ["QOLA_TEST_LIBRARY"].split()]
THREADS, ROUNDS = 16, 12
#: Linux randomizes addresses over a wider range than ThreadSanitizer supports.
_ADDR_NO_RANDOMIZE = 0x0040000


def _disable_address_randomization() -> None:
    ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)


def test_first_calls_of_many_threads(tmp_path: Path) -> None:
    """Prevents: a race when a pack or kernel is loaded, or an error reported to another thread."""
    shutil.copy(PROGRAM, tmp_path / "threads")
    for file in FILES:
        if file.suffix == ".qpack":
            shutil.copy(file, tmp_path)
    log = tmp_path / "log"
    environ = FakeHip(FAKE, "gfx942").environment(log) | {"TSAN_OPTIONS": "exitcode=66"}
    result = subprocess.run(
        [tmp_path / "threads", str(THREADS), str(ROUNDS)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_disable_address_randomization,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    launched = Counter(launch.kernel for launch in read_log(log))
    # Half of the rounds run forward, half backward.
    half = THREADS * ROUNDS // 2
    backward = ("attention_backward_delta", "attention_backward_dkdv", "attention_backward_dq")
    assert launched == dict.fromkeys(("attention_forward", *backward), half)
    # Each of the four kernels is loaded twice: for VARLEN 0 and 1.
    assert len({launch.code_object_sha256 for launch in read_log(log)}) == 8
