"""Runs a linter on this checkout: lint.py dockerfile|mypy|ruff|ruff_format|shell|BUILDIFIER."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# The runfiles link to the file in the checkout.
ROOT = Path(__file__).resolve().parents[2]

PYTHON = {
    "mypy": ["mypy", "--cache-dir=/dev/null"],
    "ruff": ["ruff", "check", "--no-cache", "."],
    "ruff_format": ["ruff", "format", "--no-cache", "--diff", "."],
}


def starlark_files() -> list[str]:
    """Return BUILD files, extensions and MODULE.bazel files of the checkout."""
    found = [*ROOT.rglob("*.bzl"), *ROOT.rglob("BUILD.bazel"), *ROOT.rglob("MODULE.bazel")]
    names = sorted(path.relative_to(ROOT).as_posix() for path in found)
    # Links such as bazel-bin lead out of the checkout.
    return [name for name in names if not name.startswith("bazel-")]


def find_program(name: str) -> str:
    """Find a program in the bin directory of a directory in sys.path, where pip installs it."""
    found = [Path(path, "bin", name) for path in sys.path]
    return next(str(path) for path in found if path.is_file())


def command(tool: str) -> list[str]:
    """Return the command line of a linter."""
    if tool in PYTHON:
        return [sys.executable, "-m", *PYTHON[tool]]
    if tool == "dockerfile":
        files = [str(path.relative_to(ROOT)) for path in ROOT.glob("examples/**/Dockerfile")]
        return [find_program("hadolint"), "--no-color", *sorted(files)]
    if tool == "shell":
        scripts = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("tools/**/*.sh"))
        return [
            find_program("shellcheck"),
            "-x",
            "bazelw",
            ".ci/run",
            "bench/python",
            "bench/run",
            "bench/timed",
            "examples/ci/cache-credentials",
            "examples/serving/remove-jit",
            "examples/serving/with-environment",
            "rules/rocm/missing_rocm.sh",
            *scripts,
        ]
    return [str(Path(tool).resolve()), "-mode=check", "-lint=warn", *starlark_files()]


def main() -> int:
    """Run the linter in the checkout, with the pinned packages."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(command(sys.argv[1]), cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
