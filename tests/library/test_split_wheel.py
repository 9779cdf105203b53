"""Wheels of a split bundle: a host wheel and a wheel per arch, installed by pip and called."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata

from qola_lab.tests.verify.table import GFX942, GFX950, Device
from tests.library.run_calls import CALL_ROWS, calls, run_table

OK, UNAVAILABLE = 0, -4
PLATFORM = "manylinux_2_28_x86_64"
WHEELS = {
    path.name.partition("-")[0]: path for path in map(Path, os.environ["QOLA_TEST_WHEELS"].split())
}


def metadata(package: str) -> Metadata:
    """Return METADATA of a wheel."""
    with ZipFile(WHEELS[package]) as wheel:
        return Metadata.from_email(wheel.read(f"{package}-0.1.0.dist-info/METADATA"))


def test_contents_of_the_wheels() -> None:
    """Prevents: device code in the host wheel; a file in two wheels; a wheel without license."""
    assert set(WHEELS) == {"qola_ci", "qola_ci_gfx942", "qola_ci_gfx950"}
    names = {package: ZipFile(path).namelist() for package, path in WHEELS.items()}
    assert sum(map(len, names.values())) == len(
        {name for files in names.values() for name in files}
    )
    assert not [name for name in names["qola_ci"] if name.endswith(".qpack")]
    for arch in ("gfx942", "gfx950"):
        package = f"qola_ci_{arch}"
        assert WHEELS[package].name == f"{package}-0.1.0-py3-none-{PLATFORM}.whl"
        info = f"{package}-0.1.0.dist-info"
        assert sorted(names[package]) == [
            *(f"qola_ci/lib/ci_libmha_{d}-{arch}.qpack" for d in ("bwd", "fwd")),
            *(f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL")),
            *(f"{info}/licenses/{c}/LICENSE" for c in ("aiter", "composable_kernel", "qola")),
        ]
        assert metadata(package).name == f"qola-ci-{arch}"
        assert [str(requirement) for requirement in metadata(package).requires_dist or ()] == [
            "qola-ci==0.1.0"
        ]
    host = metadata("qola_ci")
    assert host.provides_extra == ["gfx942", "gfx950"]
    assert [str(requirement) for requirement in host.requires_dist or ()] == [
        f'qola-ci-{arch}==0.1.0; extra == "{arch}"' for arch in ("gfx942", "gfx950")
    ]
    assert "qola-ci-gfx942, qola-ci-gfx950" in str(host.description)


class Installation:
    """A virtual environment for wheels from a directory."""

    def __init__(self, directory: Path) -> None:
        pytest.importorskip("pip", reason="needs pip for this Python")
        self._log = directory / "log"
        self._wheels = directory / "wheels"
        self._wheels.mkdir()
        for wheel in WHEELS.values():
            # Copy the file: pip does not always follow Bazel's link.
            shutil.copy(wheel, self._wheels)
        venv.create(directory / "venv", with_pip=False)
        self._python = directory / "venv/bin/python"
        (self.site,) = directory.glob("venv/lib/python*/site-packages")

    def pip(self, *arguments: str) -> None:
        """Run pip for the environment."""
        offline = (
            ["--no-index", f"--find-links={self._wheels}"] if arguments[0] == "install" else []
        )
        command = [sys.executable, "-m", "pip", "--python", str(self._python), *arguments, *offline]
        quiet = ["--quiet", "--disable-pip-version-check"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([*command, *quiet], env=env, check=True)

    def call(self, device: Device) -> tuple[set[int], str]:
        """Call both entry points; return their statuses, and standard error."""
        rows = {
            row.problem.direction: row
            for row in CALL_ROWS
            if row.device == device and calls(device)[row][0]["status"] == OK
        }
        assert len(rows) == 2
        _, answers, error = run_table([*rows.values()], device, self.site / "qola_ci", self._log)
        return {answer["status"] for answer in answers}, error


def test_pip_installs_and_removes_an_arch(tmp_path: Path) -> None:
    """Prevents: the suggested pip command does not help, or wheels overwrite each other."""
    installed = Installation(tmp_path)
    installed.pip("install", "qola-ci")
    statuses, error = installed.call(GFX950)
    assert statuses == {UNAVAILABLE}
    (command,) = {line.partition("; fix: ")[2] for line in error.splitlines() if "; fix: " in line}
    assert command == "pip install qola-ci-gfx950==0.1.0"
    installed.pip(*shlex.split(command)[1:])
    assert installed.call(GFX950) == ({OK}, "")
    assert installed.call(GFX942)[0] == {UNAVAILABLE}
    installed.pip("install", "qola-ci[gfx942]==0.1.0")
    assert installed.call(GFX942) == ({OK}, "")
    installed.pip("uninstall", "--yes", "qola-ci-gfx950")
    assert installed.call(GFX950)[0] == {UNAVAILABLE}
    assert installed.call(GFX942) == ({OK}, "")
