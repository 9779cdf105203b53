"""Runs programs of users on the emulator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_emulated(
    runtime: Path, arch: str, program: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a program as `qola emulate` does, which builds the runtime itself."""
    command = [sys.executable, "-m", "gfxemu.run_program", f"--arch={arch}"]
    command += [f"--runtime={runtime}", str(program), *arguments]
    paths = os.pathsep.join(filter(None, sys.path))
    env = {**os.environ, "PYTHONPATH": paths, "LD_LIBRARY_PATH": str(runtime.parent)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)
