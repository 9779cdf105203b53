"""Fetches one pinned wheel with the machine's own pip and verifies it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from qola.common.ruleset import ruleset_root
from qola_base.errors import AiterError, Finding, ToolchainError
from qola_base.files import sha256_of, writing
from qola_base.progress import Pace
from qola_base.rule_main import run_main

_REMOTE = "https://github.com/ROCm/aiter"


def read_pin(ruleset: Path) -> tuple[dict[str, str], str]:
    """Return qola's pinned wheel (package, sha256, version), and the commit of its sources.

    If the index no longer has the wheel, build from this commit instead; the bytes can differ.
    """
    text = (ruleset / "third_party/aiter/wheel.json").read_text(encoding="utf-8")
    pin: dict[str, str] = json.loads(text)
    return pin, pin.pop("commit")


_PROGRESS_SECONDS = 3.0


def pip_download(package: str, version: str, directory: Path) -> Path:
    """Download exactly one wheel into an empty directory, or raise AiterError with pip's message.

    `verify` checks the digest: pip's --require-hashes would not name the pin's place in its error.
    """
    requirement = f"{package}=={version}"
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--quiet", "--pre", "--no-deps", "--only-binary=:all:", "-d", str(directory)]
    with tempfile.TemporaryDirectory(prefix="pip.", dir=directory) as temporary:
        # pip writes unfinished files here: their size is the progress.
        env = {**os.environ, "TMPDIR": temporary}
        with subprocess.Popen(
            [*command, requirement],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            pace, there = Pace(), 0
            while True:
                try:
                    _, said = process.communicate(timeout=_PROGRESS_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    before, there = there, _size(directory) // 1_000_000
                    if there > before:
                        pace.report(f"fetching {requirement}: {there} MB so far")
                except BaseException:
                    process.kill()
                    raise
    wheels = sorted(directory.glob("*.whl"))
    if process.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    fix = "python3 -m pip config debug shows which index pip asks"
    if "No module named pip" in said:
        fix = f"{sys.executable} -m ensurepip"
    with suppress(OSError, ToolchainError):
        pin, commit = read_pin(ruleset_root())
        if (pin["package"], pin["version"]) == (package, version):
            fix += (
                '\nif the wheel was removed, its sources by git: qola.aiter_git(name = "aiter", '
                f'remote = "{_REMOTE}", commit = "{commit}") in MODULE.bazel, or '
                f"--aiter-commit {commit}"
            )
    raise AiterError(
        Finding(
            requirement,
            f"pip exit code {process.returncode}: {said.strip() or 'no wheel'}",
            "one wheel, from the index of this machine's pip configuration",
            fix,
        )
    )


def _size(directory: Path) -> int:
    """Return the size of all files below a directory; some may be removed concurrently."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def verify(wheel: Path, sha256: str, place: str) -> None:
    """Check a wheel's digest; raise AiterError with both digests if they differ."""
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


def unpack(wheel: Path, tree: Path) -> None:
    """Unpack a wheel into a directory.

    Raises:
        OSError, zipfile.BadZipFile: it cannot be read or written, or is not a wheel.
    """
    with writing(tree), zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree)


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
    parser.add_argument("--place", required=True, help="location of the pin, for errors")
    parser.add_argument("--output", required=True, type=Path, help="file to write")
    args = parser.parse_args(argv)
    return run_main(lambda: _fetch(args))


if __name__ == "__main__":
    sys.exit(main())
