"""Many threads that find and load kernels of one qola_triton_library, under ThreadSanitizer."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from qola.launch.fake_hip import FakeHip, read_log

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
PROGRAM = Path(os.environ["QOLA_TEST_THREADS"]).resolve()
FILES = [Path(path).resolve() for path in os.environ["QOLA_TEST_LIBRARY"].split()]
THREADS, ROUNDS = 16, 12
#: Addresses of this kernel are further apart than the sanitizer's own map of them allows.
_ADDR_NO_RANDOMIZE = 0x0040000


def _plain_addresses() -> None:
    ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)


def test_first_lookups_and_launches_of_many_threads(tmp_path: Path) -> None:
    """Prevents: a race for a pack or a kernel that is loaded, and errors told to another thread."""
    shutil.copy(PROGRAM, tmp_path / "threads")
    for file in FILES:
        if file.suffix == ".qpack":
            shutil.copy(file, tmp_path)
    log = tmp_path / "log"
    environ = FakeHip(FAKE, "gfx942").environment(log) | {"TSAN_OPTIONS": "exitcode=66"}
    done = subprocess.run(
        [tmp_path / "threads", str(THREADS), str(ROUNDS)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_plain_addresses,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    launched = Counter(launch.kernel for launch in read_log(log))
    # Half of all rounds are forward's, half backward's.
    half = THREADS * ROUNDS // 2
    backward = ("attention_backward_delta", "attention_backward_dkdv", "attention_backward_dq")
    assert launched == dict.fromkeys(("attention_forward", *backward), half)
    # One of each is loaded, for sequences of one length and of several.
    assert len({launch.code_object_sha256 for launch in read_log(log)}) == 8
