"""Runs the pinned CMake, and finds the programs of the pinned wheels that it works with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path


def site() -> Path:
    """Return the directory that the wheels of third_party/python/cmake.txt are unpacked in."""
    spec = find_spec("cmake")
    # Outside of Bazel the name finds the folder of this repository.
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'cmake'")
    return Path(spec.origin).resolve().parents[1]


CMAKE = site() / "cmake/data/bin/cmake"
NINJA = site() / "bin/ninja"
PKGCONF = site() / "pkgconf/.bin/pkgconf"


def bundle(variable: str) -> Path:
    """Directory of a bundle; through a file of it, since a sandbox has a link in its place."""
    return Path(os.environ[variable], "manifest.json").resolve().parent


@dataclass(frozen=True)
class Project:
    """A CMake project, which is configured without any variable of the test's own environment.

    Attributes:
        source: its directory.
        build: its build directory.
        options: further arguments of each configuration.
        env: environment variables besides PATH.
    """

    source: Path
    build: Path
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def configure(self, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run CMake, whatever its exit code; standard error follows standard output."""
        return self._cmake(
            *("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={NINJA}"),
            *("-S", str(self.source), "-B", str(self.build), *self.options, *options),
            env=env,
        )

    def make(self, *args: str) -> str:
        """Build the configured project, or install it with --install; return the output."""
        run = self._cmake(*(args or ("--build",)), str(self.build), env={})
        assert run.returncode == 0, run.stdout
        return run.stdout

    def _cmake(self, *args: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(CMAKE), *args],
            env={"PATH": "/usr/bin:/bin", **self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


def succeeds(run: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a run that must have succeeded."""
    assert run.returncode == 0, run.stdout
    return run.stdout


def fails(run: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a run that must have failed, with single spaces between words."""
    assert run.returncode != 0, run.stdout
    return " ".join(run.stdout.split())
