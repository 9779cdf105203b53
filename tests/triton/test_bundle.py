"""The bundle of a manifest with only Triton kernels: its files, and their use by programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from gfxemu.fake_hip import FakeHip, read_log
from gfxemu.tests.sdk import compiler_of
from tests.bundle.project import PKGCONF, Project, bundle, fails, succeeds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUNDLE = bundle("QOLA_TEST_BUNDLE")
WHEEL = Path(os.environ["QOLA_TEST_WHEEL"]).resolve()
CLANG, *PLACES = compiler_of(Path(os.environ["QOLA_TEST_CLANG"]).resolve().parents[1])
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
COMPILER = (
    f"-DCMAKE_CXX_COMPILER={CLANG}",
    f"-DCMAKE_CXX_FLAGS={' '.join(PLACES)}",
    "-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld",
)
RECORD: dict[str, Any] = json.loads((BUNDLE / "manifest.json").read_text(encoding="utf-8"))
PACKS = ["lib/qola_triton-gfx942.qpack", "lib/qola_triton-gfx950.qpack"]


def test_files_of_the_bundle() -> None:
    """Prevents: a bundle lacks packs or headers, or contains files of AITER."""
    found = {path.relative_to(BUNDLE).as_posix() for path in BUNDLE.rglob("*") if path.is_file()}
    package = {f"lib/cmake/qola/qola-{name}.cmake" for name in ("config", "targets", "triton")}
    assert found == {
        *package,
        *PACKS,
        "include/qola_config.h",
        "include/qola_triton.h",
        "lib/cmake/qola/qola-config-version.cmake",
        "lib/pkgconfig/qola-triton.pc",
        "lib/qola_triton.so",
        "licenses/qola/LICENSE",
        "manifest.json",
        "sbom.spdx.json",
    }


def test_manifest_json_of_the_bundle() -> None:
    """Prevents: readers reject manifest.json, or it names other kernels."""
    schema = json.loads((ROOT / "qola/bundle/manifest.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(RECORD)
    (module,) = RECORD["modules"]
    assert module["name"] == "triton"
    assert [pack["path"] for pack in module["packs"]] == PACKS
    names = [
        f"attention_forward-BLOCK_M_128-BLOCK_N_64-CAUSAL_{causal}-HDIM_128-dtype_bf16-{arch}"
        for causal in (0, 2)
        for arch in ("gfx942", "gfx950")
    ]
    assert module["kernels"] == {"attention_forward": {"count": 4, "names": names}}
    assert all(symbol.startswith("qola_triton_") for symbol in module["symbols"])


def test_wheel_has_library_packs_and_header() -> None:
    """Prevents: a wheel lacks packs, or does not declare a library that its platform lacks."""
    with zipfile.ZipFile(WHEEL) as wheel:
        packed = {name.partition("/")[2] for name in wheel.namelist()}
        (metadata,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        metadata_text = wheel.read(metadata).decode()
    assert {*PACKS, "lib/qola_triton.so", "include/qola_triton.h"} <= packed
    assert "Requires-External: libamdhip64.so.7" in metadata_text


def run(program: Path, arch: str, directory: Path) -> tuple[str, list[str]]:
    """Run a program; return its output and launched kernels."""
    log = directory / "log"
    log.unlink(missing_ok=True)
    result = FakeHip(FAKE, arch).run([program], log)
    assert result.returncode == 0, result.stderr
    return result.stdout, [launch.kernel for launch in read_log(log)]


def test_program_links_and_launches(tmp_path: Path) -> None:
    """Prevents: a target does not link, or an installed program lacks its packs."""
    moved = tmp_path / "where it is now"
    shutil.copytree(BUNDLE, moved)
    options = (
        *COMPILER,
        f"-DCMAKE_PREFIX_PATH={moved}",
        f"-DCMAKE_INSTALL_PREFIX={tmp_path}/prefix",
    )
    project = Project(HERE / "consumer", tmp_path / "build", options)
    assert "archs: gfx942;gfx950" in succeeds(project.configure())
    project.make()
    assert run(project.build / "consumer", "gfx942", tmp_path) == ("0 \n", ["attention_forward"])
    project.make("--install")
    shutil.rmtree(moved)
    installed = tmp_path / "prefix/consumer"
    assert run(installed, "gfx950", tmp_path) == ("0 \n", ["attention_forward"])
    missing = tmp_path / "prefix/lib/qola_triton-gfx950.qpack"
    missing.unlink()
    text = f"-4 no pack of kernels for gfx950: {missing}\n"
    assert run(installed, "gfx950", tmp_path) == (text, [])
    assert run(installed, "gfx942", tmp_path)[0] == "0 \n"


def test_archs_without_kernels(tmp_path: Path) -> None:
    """Prevents: CMake finds the package for an arch without kernels."""
    options = (*COMPILER, f"-DCMAKE_PREFIX_PATH={BUNDLE}", "-Dqola_REQUIRED_ARCHS=gfx942;gfx1100")
    output = fails(Project(HERE / "consumer", tmp_path / "build", options).configure())
    assert "libraries for gfx942, gfx950, and none for gfx1100" in output


def test_pkg_config_and_plain_c(tmp_path: Path) -> None:
    """Prevents: flags of the .pc file do not compile, or C compilers reject the header."""
    env = {"PKG_CONFIG_LIBDIR": str(BUNDLE / "lib/pkgconfig")}
    flags = subprocess.run(
        [PKGCONF, "--cflags", "--libs", "qola-triton"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    source = tmp_path / "a.c"
    source.write_text(
        '#include "qola_triton.h"\nint main(void) { return !QOLA_TRITON(last_error)(); }\n'
    )
    strict = ["-xc", "-std=c99", "-pedantic-errors", "-Wall", "-Werror"]
    command = [CLANG, *PLACES, *strict, str(source), "-fuse-ld=lld", *flags]
    subprocess.run([*command, "-o", str(tmp_path / "a")], check=True)
