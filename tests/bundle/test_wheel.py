"""A bundle as a Python wheel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from wheel.wheelfile import WheelFile

from qola.bundle.__main__ import main
from qola.bundle.elf_versions import ElfNeeds, highest, read_needs
from qola.bundle.platform_policy import check_platform
from qola.bundle.python_wheel import TorchWheel, write_torch_wheel, write_wheel
from qola.triton.library import Built, pack_built
from qola_base.errors import BundleError
from tests.support.folders import write

NAME = "qola_ns-1.2.3-py3-none-linux_x86_64.whl"
RECORD = {
    "archs": ["gfx942", "gfx950"],
    "inputs": {"aiter": {"id": "0.1.7"}},
    "modules": [{"name": "libmha_fwd", "library": "lib/ns_libmha_fwd.so"}],
}
"""The keys of manifest.json that a wheel's metadata uses."""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A directory with a file of each kind."""
    names = ("lib/ns_libmha_fwd.so", "bin/qola-kernels", "include/a.h", "configs/tuned_fmoe.csv")
    files = {name: name for name in names}
    return write(tmp_path / "bundle", {**files, "manifest.json": json.dumps(RECORD)})


def test_package_prints_its_path(bundle: Path, tmp_path: Path) -> None:
    """Prevents: a build cannot find libraries and headers of the installed wheel."""
    write_wheel(bundle, tmp_path / NAME)
    site = tmp_path / "site"
    with WheelFile(str(tmp_path / NAME)) as wheel:
        # WheelFile verifies each file against RECORD.
        wheel.extractall(site)
    # Bazel removes the working directory from Python's path.
    env = {**os.environ, "PYTHONPATH": str(site)}

    def run_package(*arguments: str) -> str:
        command = [sys.executable, "-m", "qola_ns", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    package = site / "qola_ns"
    assert run_package() == run_package("--path") == f"{package}\n"
    assert (package / "lib/ns_libmha_fwd.so").read_text() == "lib/ns_libmha_fwd.so"
    for directory in ("lib", "include"):
        assert run_package(f"--{directory}") == f"{package / directory}\n"
        assert (package / directory).is_dir()
    assert run_package("--version") == "1.2.3\n"


def test_metadata_and_modes(bundle: Path, tmp_path: Path) -> None:
    """Prevents: pip rejects a wheel, or a program in the wheel is not executable."""
    write_wheel(bundle, tmp_path / NAME)
    with ZipFile(tmp_path / NAME) as wheel:
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in wheel.infolist()}
        metadata = wheel.read("qola_ns-1.2.3.dist-info/METADATA").decode()
        tags = wheel.read("qola_ns-1.2.3.dist-info/WHEEL").decode()
    programs = {"qola_ns/bin/qola-kernels", "qola_ns/lib/ns_libmha_fwd.so"}
    assert {name for name, mode in modes.items() if mode == 0o755} == programs
    assert "Name: qola-ns\nVersion: 1.2.3\n" in metadata
    assert "Root-Is-Purelib: false\nTag: py3-none-linux_x86_64\n" in tags
    assert "qola_ns-1.2.3.dist-info/RECORD" in modes
    description = metadata.partition("\n\n")[2]
    assert "AITER 0.1.7:\n\n- lib/ns_libmha_fwd.so (libmha_fwd), for gfx942, gfx950\n" in metadata
    assert "python -m qola_ns --path" in description


def test_tuning_tables_are_left_out(bundle: Path, tmp_path: Path) -> None:
    """Prevents: an attention wheel contains a megabyte of tuning tables for GEMMs and MoE."""
    write_wheel(bundle, tmp_path / NAME)
    names = ZipFile(tmp_path / NAME).namelist()
    assert "qola_ns/include/a.h" in names
    assert not [name for name in names if "configs" in name]


def test_wheel_is_reproducible(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a wheel's digest depends on the time or the machine."""
    (tmp_path / "again").mkdir()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1600000000")
    command = ["wheel", "--directory", str(bundle), "--output"]
    assert main([*command, str(tmp_path / NAME)]) == 0
    (bundle / "include/a.h").touch()
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    assert main([*command, str(tmp_path / "again" / NAME)]) == 0
    assert (tmp_path / NAME).read_bytes() == (tmp_path / "again" / NAME).read_bytes()


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ((), ()),
        (("GLIBC_2.9", "GLIBC_2.34", "GLIBC_2.2.5"), ("GLIBC_2.34",)),
        (("GLIBCXX_3.4.9", "GLIBCXX_3.4.29", "CXXABI_1.3"), ("CXXABI_1.3", "GLIBCXX_3.4.29")),
        (("GLIBC_2.36", "GLIBC_ABI_DT_RELR"), ("GLIBC_2.36", "GLIBC_ABI_DT_RELR")),
    ],
)
def test_versions_are_compared_as_numbers(
    versions: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """Prevents: qola sorts 2.9 above 2.34, or ignores a version without a number."""
    assert highest(versions) == expected


def test_tag_without_a_policy(bundle: Path, tmp_path: Path) -> None:
    """Prevents: qola accepts a platform tag without a policy."""
    name = NAME.replace("linux_x86_64", "manylinux_2_99_x86_64")
    with pytest.raises(BundleError, match=r"one of manylinux_2_5_x86_64, .*, linux_x86_64"):
        write_wheel(bundle, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_symbols_that_a_policy_forbids() -> None:
    """Prevents: qola accepts a symbol that older systems lack because its version is old."""
    symbol = "__cxa_thread_atexit_impl"
    needs = ElfNeeds("lib/a.so", ("libc.so.6",), {}, {}, frozenset({symbol, "malloc"}))
    with pytest.raises(BundleError, match=f"found +{symbol} of libc.so.6\n") as error:
        check_platform([needs], "manylinux_2_5_x86_64", ())
    (fitting,) = re.findall(r'platform = "(\w+)"', str(error.value))
    check_platform([needs], fitting, ())


def test_truncated_library(bundle: Path, tmp_path: Path) -> None:
    """Prevents: a wheel contains a truncated library, or a traceback does not name the file."""
    (bundle / "lib/ns_libmha_bwd.so").write_bytes(b"\x7fELF\x02")
    with pytest.raises(BundleError, match=r"error: lib/ns_libmha_bwd\.so"):
        write_wheel(bundle, tmp_path / NAME)


def test_requirements_of_packed_kernels_are_read(bundle: Path) -> None:
    """Prevents: a manylinux wheel contains packed kernels that need a newer system."""
    # Python's program needs libc, which exists on every machine.
    program = Path(sys.executable).resolve().read_bytes()
    label: Any = {"name": "one", "arch": "gfx942", "triton": "3"}
    content = pack_built(Built("k", code, label) for code in (program, program + b"more"))
    file = bundle / "share/qola/ns/packs/ns.qpack"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    (first,) = read_needs(bundle)
    assert first.path == "share/qola/ns/packs/ns.qpack: one gfx942"
    assert any(name.startswith("libc.so") for name in first.libraries)
    with pytest.raises(BundleError, match=r"error: share/qola/ns/packs/ns\.qpack: one gfx942\n"):
        check_platform([first], "manylinux_2_5_x86_64", first.libraries[1:])
    for length in (12, 60, len(content) - 100):
        file.write_bytes(content[:length])
        with pytest.raises(BundleError, match=r"ns\.qpack\n +found +a truncated pack"):
            read_needs(bundle)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("qola_ns-yesterday-py3-none-linux_x86_64.whl", "yesterday"),
        ("qola-ns.tar", "qola-ns.tar"),
        ("Qola_ns-1.0-py3-none-linux_x86_64.whl", 'the package "Qola_ns"'),
    ],
)
def test_invalid_wheel_names(
    name: str, reason: str, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: qola writes a wheel that pip rejects."""
    with pytest.raises(BundleError, match=reason):
        write_wheel(bundle, tmp_path / name)
    assert not (tmp_path / name).exists()
    assert main(["wheel", "--directory", str(bundle), "--output", str(tmp_path / name)]) == 8
    assert reason in capsys.readouterr().err


TORCH_NAME = "qola_ns_torch-1.2.3-cp311-cp311-linux_x86_64.whl"


@pytest.fixture
def torch_modules(tmp_path: Path) -> TorchWheel:
    """Inputs of a wheel of a torch module: a file of each kind."""
    names = ("ns_module_x.so", "ns_module_x.pyi", "aiter/LICENSE", "composable_kernel/LICENSE")
    directory = write(tmp_path / "made", {name: name for name in (*names, "LICENSE")})
    module, stub, *licenses = (str(directory / name) for name in names)
    return TorchWheel(
        (module,), (stub,), "2.4.0+rocm6.4", "3.11", tuple(licenses), str(directory / "LICENSE"), ()
    )


def test_wheel_of_torch_modules(torch_modules: TorchWheel, tmp_path: Path) -> None:
    """Prevents: pip installs a torch module for another Python or PyTorch, or without stubs."""
    write_torch_wheel(torch_modules, tmp_path / TORCH_NAME)
    with WheelFile(str(tmp_path / TORCH_NAME)) as wheel:
        names = {name for name in wheel.namelist() if name.startswith("qola_ns_torch/")}
        metadata = wheel.read("qola_ns_torch-1.2.3.dist-info/METADATA").decode()
        tags = wheel.read("qola_ns_torch-1.2.3.dist-info/WHEEL").decode()
        package = wheel.read("qola_ns_torch/__init__.py").decode()
    assert names == {
        *(f"qola_ns_torch/{name}" for name in ("__init__.py", "py.typed")),
        *(f"qola_ns_torch/ns_module_x.{suffix}" for suffix in ("so", "pyi")),
        *(
            f"qola_ns_torch/licenses/{component}/LICENSE"
            for component in ("aiter", "composable_kernel", "qola")
        ),
    }
    assert "Requires-Dist: torch==2.4.0+rocm6.4\n" in metadata
    assert "Requires-Python: ==3.11.*\n" in metadata
    assert "Tag: cp311-cp311-linux_x86_64\n" in tags
    # Importing torch loads the libraries that the modules need.
    assert "\nimport torch " in package


def test_torch_modules_with_equal_names(torch_modules: TorchWheel, tmp_path: Path) -> None:
    """Prevents: of two modules with equal names, a wheel contains only the last."""
    duplicated = replace(torch_modules, modules=torch_modules.modules * 2)
    with pytest.raises(BundleError, match="modules with different names"):
        write_torch_wheel(duplicated, tmp_path / TORCH_NAME)
