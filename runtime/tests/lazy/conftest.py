"""Fixtures for tests of the runtime."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from qola.lazy.__main__ import identity_line
from runtime.tests.lazy.lazy import FILL, SCALE, Tools, Toy, tools
from tests.support.running import output_of

os.umask(0o022)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """Programs and files that Bazel built."""
    return tools(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="session")
def identity(built: Tools, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Identity of the compiler, computed in the way of a build system."""
    output = tmp_path_factory.mktemp("identity") / "identity.txt"
    options = ["-x", "hip", "--offload-host-only", "-nogpulib", "-E", "-P", "-o", str(output)]
    output_of([*built.compiler, *options, str(built.runtime / "identity.hip")])
    return identity_line(output.read_text(encoding="utf-8"))


@pytest.fixture
def toy(built: Tools, identity: str, tmp_path: Path) -> Toy:
    """A lazy module with an empty cache."""
    return Toy(tmp_path / "toy", built, identity)


@pytest.fixture(scope="session")
def filled(built: Tools, identity: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with two kernels."""
    toy = Toy(tmp_path_factory.mktemp("filled") / "toy", built, identity)
    result = toy.tool("build", SCALE, FILL)
    assert result.returncode == 0, result.stderr
    return toy.cache


@pytest.fixture
def warm(toy: Toy, filled: Path) -> Toy:
    """A lazy module whose cache has two kernels."""
    shutil.copytree(filled, toy.cache)
    return toy
