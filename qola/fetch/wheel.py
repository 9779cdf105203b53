"""Fetches one pinned wheel with the machine's own pip and verifies it."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from qola.errors import AiterError, Finding
from qola.files import sha256_of
from qola.rule_main import run_main


def pip_download(package: str, version: str, directory: Path) -> Path:
    """Download exactly one wheel into an empty directory.

    No --require-hashes: pip's own refusal names neither the pin's place nor the
    way to change it; verify() does.

    Raises:
        AiterError: pip failed, with pip's words.
    """
    requirement = f"{package}=={version}"
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--quiet", "--pre", "--no-deps", "--only-binary=:all:", "-d", str(directory)]
    run = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
    wheels = sorted(directory.glob("*.whl"))
    if run.returncode != 0 or len(wheels) != 1:
        raise AiterError(
            Finding(
                requirement,
                f"pip exit code {run.returncode}: {run.stderr.strip() or 'no wheel'}",
                "one wheel, from the index of this machine's pip configuration",
                "python3 -m pip config debug shows which index pip asks",
            )
        )
    return wheels[0]


def verify(wheel: Path, sha256: str, place: str) -> None:
    """Refuse a file that is not the pinned one: raise AiterError with both digests."""
    found = sha256_of(wheel)
    if found != sha256.lower():
        raise AiterError(
            Finding(
                place,
                f"{wheel.name} with sha256 {found}",
                f"sha256 {sha256}",
                "the file is not the pinned one: do not use it; if the pin is to change, "
                "put the new digest at that place",
            )
        )


def _fetch(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=args.output.resolve().parent) as directory:
        wheel = pip_download(args.package, args.version, Path(directory))
        verify(wheel, args.sha256, args.place)
        shutil.move(wheel, args.output)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the aiter_wheel repository rule."""
    parser = argparse.ArgumentParser(prog="qola.fetch.wheel", description=__doc__)
    parser.add_argument("--package", required=True, help="name on the package index")
    parser.add_argument("--version", required=True, help="exact version")
    parser.add_argument("--sha256", required=True, help="digest of the wheel")
    parser.add_argument("--place", required=True, help="where the pin stands, for messages")
    parser.add_argument("--output", required=True, type=Path, help="file to write")
    args = parser.parse_args(argv)
    return run_main(lambda: _fetch(args))


if __name__ == "__main__":
    sys.exit(main())
