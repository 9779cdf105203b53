"""Runs a linter on the checkout: lint.py dockerfile|mypy|ruff|ruff_format|shell|BUILDIFIER."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from qola_base.cache import cache_directory, own_directory
from tests.support.checkout import checkout_root

PYTHON = {
    "ruff": ["ruff", "check", "--no-cache", "."],
    "ruff_format": ["ruff", "format", "--no-cache", "--diff", "."],
}


def starlark_files(root: Path) -> list[str]:
    """Return BUILD files, extensions and MODULE.bazel files of the checkout."""
    found = [*root.rglob("*.bzl"), *root.rglob("BUILD.bazel"), *root.rglob("MODULE.bazel")]
    names = sorted(path.relative_to(root).as_posix() for path in found)
    # Links such as bazel-bin lead out of the checkout.
    return [name for name in names if not name.startswith("bazel-")]


def find_program(name: str) -> str:
    """Find a program in the bin directory of a directory in sys.path, where pip installs it."""
    found = [Path(path, "bin", name) for path in sys.path]
    return next(str(path) for path in found if path.is_file())


def command(tool: str, root: Path) -> list[str]:
    """Return the command line of a linter."""
    if tool == "mypy":
        # What mypy found out about a module is valid for the same content in any checkout.
        kept = cache_directory(os.environ) / "mypy"
        own_directory(kept)
        return [sys.executable, "-m", "mypy", f"--cache-dir={kept}"]
    if tool in PYTHON:
        return [sys.executable, "-m", *PYTHON[tool]]
    if tool == "dockerfile":
        files = [str(path.relative_to(root)) for path in root.glob("examples/**/Dockerfile")]
        return [find_program("hadolint"), "--no-color", *sorted(files)]
    if tool == "shell":
        scripts = sorted(path.relative_to(root).as_posix() for path in root.glob("tools/**/*.sh"))
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
            *scripts,
        ]
    return [str(Path(tool).resolve()), "-mode=check", "-lint=warn", *starlark_files(root)]


def main() -> int:
    """Run the linter in the checkout, with the pinned packages."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    root = checkout_root()
    return subprocess.run(command(sys.argv[1], root), cwd=root, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
