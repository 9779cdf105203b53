"""Runs the pinned CMake, and locates the programs of the pinned wheels."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path


def site() -> Path:
    """Return the directory into which Bazel unpacks the wheels of third_party/python/cmake.txt."""
    spec = find_spec("cmake")
    # Outside of Bazel, `cmake` is the directory of this repository.
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'cmake'")
    return Path(spec.origin).resolve().parents[1]


CMAKE = site() / "cmake/data/bin/cmake"
NINJA = site() / "bin/ninja"
PKGCONF = site() / "pkgconf/.bin/pkgconf"


def bundle(variable: str) -> Path:
    """Return a bundle's directory, resolved from a file in it (sandboxes contain symlinks)."""
    return Path(os.environ[variable], "manifest.json").resolve().parent


@dataclass(frozen=True)
class Project:
    """A CMake project, configured without the environment variables of the test.

    Attributes:
        source: the directory with CMakeLists.txt.
        build: the build directory.
        options: additional arguments of each configuration.
        env: environment variables in addition to PATH.
    """

    source: Path
    build: Path
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def configure(self, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run CMake and return the result; the output contains stdout and stderr."""
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
    """Check that a run succeeded, and return its output."""
    assert run.returncode == 0, run.stdout
    return run.stdout


def fails(run: subprocess.CompletedProcess[str]) -> str:
    """Check that a run failed, and return its output with single spaces between words."""
    assert run.returncode != 0, run.stdout
    return " ".join(run.stdout.split())
