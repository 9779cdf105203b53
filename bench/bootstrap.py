"""Runs a Python program of bench/ with what it imports, and CMake and ninja, all pinned.

Standard library only: nothing is installed yet.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from qola.cache import cache_directory, own_directory, refuse_foreign  # noqa: E402

_REQUIREMENTS = ("runtime.txt", "bench.txt")


def packages(cache: Path) -> Path:
    """Return the directory of the pinned packages; install them where they are missing."""
    files = [ROOT / "third_party/python" / name for name in _REQUIREMENTS]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    digest.update(sys.version.encode())
    target = cache / "bench" / digest.hexdigest()[:16]
    own_directory(target.parent)
    refuse_foreign(target)
    if target.is_dir():
        return target
    print("bench: installing the pinned packages", file=sys.stderr)
    partial = target.with_suffix(f".{os.getpid()}")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    command += ["--quiet", "--require-hashes", "--only-binary=:all:", "--no-deps", "--no-compile"]
    command += ["--root-user-action=ignore", "--no-warn-script-location", f"--target={partial}"]
    command += [argument for file in files for argument in ("--requirement", str(file))]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(
            "error: pip could not install the packages of third_party/python/bench.txt\n"
            "  fix       python3 -m pip config debug: which index does this machine use?"
        )
    try:
        partial.rename(target)
    except OSError:
        # Somebody else was faster.
        if not target.is_dir():
            raise
    return target


def main() -> None:
    """Become the Python program that the command line names."""
    found = packages(cache_directory(os.environ))
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(found)]),
        "PYTHONSAFEPATH": "1",
        "QOLA_BENCH_PACKAGES": str(found),
    }
    command = [sys.executable, "-B", *sys.argv[1:]]
    os.execve(sys.executable, command, environ)


if __name__ == "__main__":
    main()
