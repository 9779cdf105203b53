"""The forward bundle's wheel: its system requirements, and its installation with pip."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata
from packaging.tags import Tag, platform_tags
from packaging.utils import parse_wheel_filename

from qola.bundle.__main__ import main
from qola.bundle.elf_versions import highest, read_needs, system_floor
from qola_base.runpath import show_runpath

BUNDLES = {
    kind: Path(os.environ[f"QOLA_TEST_{kind}"], "manifest.json").resolve().parent
    for kind in ("BUNDLE", "LAZY_BUNDLE")
}
BUNDLE = BUNDLES["BUNDLE"]
WHEEL = Path(os.environ["QOLA_TEST_WHEEL"])
NM = Path(os.environ["QOLA_TEST_LLVM"]).resolve()
LIBRARY = "lib/ci_libmha_fwd.so"
HIP = "libamdhip64.so.7"
PLATFORM = "manylinux_2_28_x86_64"


def pack(directory: Path, platform: str, *external: str, bundle: Path = BUNDLE) -> int:
    """Pack the bundle as a wheel for a platform, as the rule does; return the exit code."""
    output = directory / f"qola_forward-0.1.0-py3-none-{platform}.whl"
    command = ["wheel", "--directory", str(bundle), "--output", str(output)]
    code = main([*command, *(f"--external-library={name}" for name in external)])
    assert output.exists() == (code == 0)
    return code


@pytest.mark.parametrize("kind", sorted(BUNDLES))
def test_versions_match_nm(kind: str) -> None:
    """Prevents: qola does not detect a required symbol version."""
    for needs in read_needs(BUNDLES[kind]):
        listing = subprocess.run(
            [NM, "-D", "--undefined-only", BUNDLES[kind] / needs.path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        bound = set(re.findall(r" [Uvw] (\S+)@(\S+)$", listing, re.M))
        assert len(bound) > 20
        assert bound == {(symbol, v) for v, symbols in needs.symbols.items() for symbol in symbols}
        assert set(needs.symbols) <= set(needs.versions)


def test_metadata_lists_system_requirements() -> None:
    """Prevents: METADATA of a wheel lacks its system requirements."""
    with ZipFile(WHEEL) as wheel:
        text = wheel.read("qola_forward-0.1.0.dist-info/METADATA")
    external = Metadata.from_email(text).requires_external
    assert external is not None
    assert tuple(external) == system_floor(read_needs(BUNDLE))
    requirements = dict(line.partition(" ")[::2] for line in external)
    assert HIP in requirements
    versions = re.findall(r"\w+_[\d.]+", " ".join(external))
    assert {v.partition("_")[0] for v in versions} >= {"CXXABI", "GLIBC", "GLIBCXX"}
    # For each library, only the highest version of a kind.
    assert highest(versions) == tuple(sorted({*versions} - {"GLIBC_2.3"}))


def test_declared_platform_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a policy accepts every file, or the suggested platform fails too."""
    # The platform that the rule of Bazel's wheel declares.
    assert WHEEL.name == f"qola_forward-0.1.0-py3-none-{PLATFORM}.whl"
    assert pack(tmp_path, PLATFORM, HIP) == 0
    assert (tmp_path / WHEEL.name).read_bytes() == WHEEL.read_bytes()
    # An old name of a policy is an alias.
    assert pack(tmp_path, "manylinux2014_x86_64", HIP) == 8
    error = capsys.readouterr().err
    assert f"error: {LIBRARY}\n  found     GLIBCXX_3.4." in error
    assert re.search(r"of libstdc\+\+\.so\.6, for std::", error)
    assert "expected  at most GLIBCXX_3.4.19: manylinux_2_17_x86_64" in error
    (fitting,) = set(re.findall(r'fix +platform = "(\w+)"', error))
    assert pack(tmp_path, fitting, HIP) == 0


def test_external_libraries_are_declared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a wheel requires ROCm without declaring it, or declares an unused library."""
    assert pack(tmp_path, PLATFORM) == 8
    error = capsys.readouterr().err
    assert f"found     needs {HIP}, which {PLATFORM} does not guarantee" in error
    assert f'fix       external_libraries = ["{HIP}"]' in error
    assert pack(tmp_path, PLATFORM, HIP, "libgone.so.1") == 8
    assert 'remove "libgone.so.1" from external_libraries' in capsys.readouterr().err
    # The name without version also covers libraries with another soname.
    assert pack(tmp_path, PLATFORM, HIP.removesuffix(".7")) == 0
    # Without a policy, no declaration is necessary.
    assert pack(tmp_path, "linux_x86_64") == 0


def test_lazy_libraries_and_their_program_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: qola does not check the requirements of programs in bin/."""
    bundle = BUNDLES["LAZY_BUNDLE"]
    assert pack(tmp_path, PLATFORM, HIP, bundle=bundle) == 0
    assert pack(tmp_path, "manylinux_2_17_x86_64", HIP, bundle=bundle) == 8
    assert "error: bin/qola-kernels\n  found     GLIBCXX_3.4." in capsys.readouterr().err


def test_pip_installs_the_wheel(tmp_path: Path) -> None:
    """Prevents: pip rejects the tag, or the installed package does not print its paths."""
    (tag,) = parse_wheel_filename(WHEEL.name)[3]
    assert tag in {Tag("py3", "none", platform) for platform in platform_tags()}
    pytest.importorskip("pip", reason="needs pip for this Python")
    site = tmp_path / "site"
    # Not every pip follows Bazel's symlink.
    wheel = Path(shutil.copy(WHEEL, tmp_path))
    options = ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    env = {**os.environ, "PYTHONPATH": ""}
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(site), str(wheel)]
    subprocess.run(pip, env=env, check=True)

    def query_path(option: str) -> Path:
        command = [sys.executable, "-m", "qola_forward", option]
        env = {**os.environ, "PYTHONPATH": str(site)}
        return Path(subprocess.check_output(command, env=env, text=True).strip())

    assert query_path("--path") == site / "qola_forward"
    assert (query_path("--include") / "qola_mha_fwd.h").is_file()
    installed = query_path("--lib") / "ci_libmha_fwd.so"
    of_bundle = (BUNDLE / LIBRARY).read_bytes()
    assert installed.read_bytes() == show_runpath(of_bundle) != of_bundle
    assert os.access(installed, os.X_OK)
