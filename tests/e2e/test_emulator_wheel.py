"""Install the wheels of gfxemu and qola_base alone, and run the tests of gfxemu there."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.e2e.nested_bazel import QOLA, pip
from tests.support.running import output_of

PARTS = ("gfxemu", "qola_base")


def test_the_emulator_stands_alone(tmp_path: Path) -> None:
    """Prevents: an emulator that needs another part of qola, or a wheel without its engine."""
    site = tmp_path / "site"
    for part in PARTS:
        ignored = shutil.ignore_patterns("__pycache__", "tests")
        shutil.copytree(QOLA / part, tmp_path / part, ignore=ignored)
        pip("wheel", "--no-deps", "--wheel-dir", tmp_path / "dist", tmp_path / part)
    wheels = sorted((tmp_path / "dist").glob("*.whl"))
    assert [wheel.name.partition("-")[0] for wheel in wheels] == [*PARTS]
    pip("install", "--no-deps", "--target", site, *wheels)
    shutil.copytree(QOLA / "gfxemu/tests", site / "gfxemu/tests")
    shutil.copy(QOLA / "conftest.py", site)
    packages = [path for path in sys.path if path and not (Path(path) / "qola").is_dir()]
    environ = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(site), *packages]),
        "QOLA_CACHE_HOME": str(tmp_path / "cache"),
    }
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-m", "not thorough"]
    options += ["--override-ini", "markers=thorough\nquick", "--rootdir", str(site)]
    command = [sys.executable, "-B", "-m", "pytest", *options, "gfxemu/tests"]
    assert " passed" in output_of(command, env=environ, cwd=site)
    for part in ("qola", "qola_lab"):
        assert not (site / part).exists()
