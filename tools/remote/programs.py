"""Runs programs of pinned Debian packages from their unpacked directory."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Programs:
    """The unpacked packages of one group."""

    root: Path

    def command(self, name: str) -> list[str]:
        """Return a command that runs a program with the loader and libraries of the packages.

        Raises:
            FileNotFoundError: no package contains the program.
        """
        libraries = self.root / "usr/lib/x86_64-linux-gnu"
        for directory in ("usr/bin", "usr/sbin"):
            if (self.root / directory / name).is_file():
                program = str(self.root / directory / name)
                loader = str(libraries / "ld-linux-x86-64.so.2")
                return [loader, "--library-path", str(libraries), program]
        raise FileNotFoundError(f"no program {name} in {self.root}/usr/bin and usr/sbin")

    def wrapper(self, name: str, directory: Path) -> Path:
        """Write a script that runs a program, for programs that start it by path."""
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(self.command(name))} "$@"\n', "utf-8")
        script.chmod(0o755)
        return script


def unpacked(group: str, listed: str) -> Path:
    """Return the directory of a group's packages.

    Args:
        listed: runfiles path of <group>.packages, next to the directory. The working directory must
            be the main repository's runfiles, as in `bazel run` and tests.
    """
    return (Path("..") / listed).resolve().parent / group


def shell_root(directory: Path, shell: Path = Path("/bin/sh")) -> Path:
    """Create and return a root directory with only a shell and its libraries, for workers.

    A worker mounts its bin, lib and lib64.
    """
    # The loader of glibc and of musl prints the libraries instead of running the program.
    listed = subprocess.run(
        [shell],
        env={"LD_TRACE_LOADED_OBJECTS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    words = listed.stdout.split()
    for file in [str(shell), *sorted({word for word in words if word.startswith("/")})]:
        copy = directory / file.removeprefix("/").removeprefix("usr/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(Path(file).read_bytes())
        copy.chmod(0o755)
    for needed in ("bin", "lib", "lib64"):
        (directory / needed).mkdir(exist_ok=True)
    if not (directory / "bin/sh").exists():
        (directory / "bin/sh").symlink_to(shell.name)
    return directory
