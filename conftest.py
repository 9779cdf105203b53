"""Fixtures that tests share, and which files are skipped without Bazel."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from qola_base.progress import STATUS, log

TREE_VARIABLE = "QOLA_TEST_AITER_TREE"

Disk = Callable[[str], Path]
"""Mounts a disk of the test's own with some options of a tmpfs, and returns where."""


class OptionalModule(pytest.Module):
    """Skips a file without Bazel if it needs something that only Bazel builds or installs."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Import the file and return its tests."""
        try:
            return super().collect()
        except (self.CollectError, KeyError) as error:
            missing = error if isinstance(error, KeyError) else error.__cause__
            named = str(missing.args[0] if isinstance(missing, KeyError) else missing)
            if not re.match(
                "QOLA_|No module named '(?!qola|gfxemu|runtime|tests|tools|bench)", named
            ):
                raise
            pytest.skip(f"needs {named}", allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> OptionalModule | None:
    """Skip files only outside of Bazel, which provides all that each of them needs."""
    if "TEST_SRCDIR" in os.environ:
        return None
    module: OptionalModule = OptionalModule.from_parent(parent, path=module_path)
    return module


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """Return the root of this repository (of the runfiles, under Bazel)."""
    return Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def aiter_tree() -> Path:
    """Return the root of a real AITER source tree: the folder that holds ``aiter/``."""
    value = os.environ.get(TREE_VARIABLE)
    if not value:
        pytest.skip(f"needs a real AITER tree: set {TREE_VARIABLE} to its root")
    tree = Path(value).resolve()
    # A wrong path is a mistake to fix, not a reason to skip half of the tests.
    assert (tree / "aiter/jit/optCompilerConfig.json").is_file(), f"{TREE_VARIABLE}={value}"
    return tree


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Return what mounts a small disk; called again, it changes the options."""
    place = tmp_path / "disk"

    def mount(options: str) -> Path:
        again = "remount," if place.exists() else ""
        place.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"{again}{options}", "tmpfs", str(place)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("needs to mount a tmpfs")
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Collect the messages that qola logs with level INFO and above."""
    messages: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    level = log.level
    log.setLevel(STATUS)
    yield messages
    log.setLevel(level)
    log.removeHandler(handler)
