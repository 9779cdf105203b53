"""Runs a Python linter on the sources in the runfiles, as it would run in a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Copy nothing, cache nothing: the linter sees the repository's own paths."""
    tool, *args = sys.argv[1:]
    root = Path(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([sys.executable, "-m", tool, *args], cwd=root, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
