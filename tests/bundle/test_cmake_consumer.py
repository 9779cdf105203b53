"""Programs built against a bundle by CMake or pkg-config, and run on the fake HIP runtime."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from gfxemu.fake_hip import FakeHip, read_log
from tests.bundle.project import PKGCONF, Project, bundle, fails, succeeds

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples/cmake"


BUNDLE = bundle("QOLA_TEST_BUNDLE")
LAZY = bundle("QOLA_TEST_LAZY")
FORWARD = bundle("QOLA_TEST_FORWARD")
# As in docs/guide/cmake.md: the path that `qola hipcc` prints, without flags.
HIPCC = Path(os.environ["QOLA_TEST_HIPCC"]).resolve()
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()

TOOLCHAIN = (f"-DCMAKE_CXX_COMPILER={HIPCC}",)
#: A head dimension of the bundles, and the example's output for it.
HDIM_32 = ("fp16", "32")
LAUNCHED = "forward 0\nbackward 0\n"


def run(program: Path, tmp_path: Path, *library_dirs: Path) -> tuple[str, list[str]]:
    """Run the example; return its output and the launched directions: fwd or bwd."""
    log = tmp_path / "log"
    hip = FakeHip(FAKE, "gfx950", library_dirs)
    result = hip.run([program, *HDIM_32], log, QOLA_CACHE=str(tmp_path / "cache"))
    assert result.returncode == 0, result.stderr
    kernels = [launch.kernel for launch in read_log(log)]
    return result.stdout, ["bwd" if "Bwd" in kernel else "fwd" for kernel in kernels]


def test_program_compiles_links_and_runs(tmp_path: Path) -> None:
    """Prevents: targets of a moved bundle's CMake package do not compile, link or run."""
    moved = tmp_path / "where it is now"
    shutil.copytree(BUNDLE, moved)
    project = Project(
        EXAMPLE,
        tmp_path / "build",
        (
            *TOOLCHAIN,
            f"-DCMAKE_PREFIX_PATH={moved}",
            f"-DCMAKE_INSTALL_PREFIX={tmp_path}/prefix",
            # Composable Kernel's headers must not cause warnings in user code, even if CMake
            # does not treat them as system headers.
            "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror",
            "-DCMAKE_NO_SYSTEM_FROM_IMPORTED=ON",
        ),
    )
    succeeds(project.configure())
    project.make()
    printed, launched = run(project.build / "consumer", tmp_path)
    assert printed == LAUNCHED
    assert launched[0] == "fwd"
    assert "bwd" in launched
    project.make("--install")
    shutil.rmtree(moved)
    assert run(tmp_path / "prefix/consumer", tmp_path)[0] == LAUNCHED


def test_bundle_without_backward(tmp_path: Path) -> None:
    """Prevents: the example does not build with the README's manifest, which lacks backward."""
    options = (*TOOLCHAIN, f"-DCMAKE_PREFIX_PATH={FORWARD}")
    project = Project(EXAMPLE, tmp_path / "build", options)
    succeeds(project.configure())
    project.make()
    assert run(project.build / "consumer", tmp_path) == ("forward 0\n", ["fwd"])
    # The program's default dtype and head dimension, which this library lacks.
    hip = FakeHip(FAKE, "gfx950")
    assert hip.run([project.build / "consumer"], tmp_path / "none").stdout == "forward -1\n"


def pkgconf(directory: Path, *args: str) -> str:
    """Run pkgconf on the files of a bundle."""
    env = {"PKG_CONFIG_LIBDIR": str(directory / "lib/pkgconfig")}
    result = subprocess.run([PKGCONF, *args], env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_pkg_config_flags_compile_and_link(tmp_path: Path) -> None:
    """Prevents: flags of pkg-config do not compile or link, or contain paths of the build."""
    moved = tmp_path / "where it is now"
    shutil.copytree(BUNDLE, moved)
    flags = {
        kind: shlex.split(pkgconf(moved, kind, "qola-mha-fwd", "qola-mha-bwd"))
        for kind in ("--cflags", "--libs")
    }
    # Composable Kernel's headers must not cause warnings in user code.
    hip = ["-xhip", "--offload-host-only", "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    objects = []
    for name in ("main", "forward", "backward"):
        source = EXAMPLE / f"{name}.cpp"
        objects.append(str(tmp_path / f"{name}.o"))
        as_hip = ["-DCONSUMER_BACKWARD"] if name == "main" else [*hip, *flags["--cflags"]]
        subprocess.run([HIPCC, *as_hip, "-c", source, "-o", objects[-1]], check=True)
    archive = shlex.split(pkgconf(moved, "--libs", "qola-static"))
    for name, libs in {"shared": flags["--libs"], "static": archive}.items():
        subprocess.run([HIPCC, *objects, *libs, "-o", tmp_path / name], check=True)
    assert run(tmp_path / "shared", tmp_path, moved / "lib")[0] == LAUNCHED
    assert run(tmp_path / "static", tmp_path)[0] == LAUNCHED


def test_pkg_config_files_are_valid() -> None:
    """Prevents: pkgconf rejects a file, or its version, namespace or archs are wrong."""
    # pkgconf also lists its own packages.
    itself = {"pkg-config", "pkgconf"}
    names = ("qola-mha-bwd", "qola-mha-fwd", "qola-static")
    assert set(pkgconf(BUNDLE, "--list-package-names").split()) == {*names} | itself
    assert set(pkgconf(FORWARD, "--list-package-names").split()) == {"qola-mha-fwd"} | itself
    for name in names:
        assert pkgconf(BUNDLE, "--validate", name) == ""
        assert pkgconf(BUNDLE, "--variable=archs", name) == "gfx942 gfx950"
        assert pkgconf(BUNDLE, "--variable=namespace", name) == "ci"
        assert pkgconf(BUNDLE, "--atleast-version=0.1.0", name) == ""


@pytest.mark.parametrize("directory", [BUNDLE, LAZY], ids=["full", "lazy"])
def test_installed_program_runs_in_another_directory(tmp_path: Path, directory: Path) -> None:
    """Prevents: an installed program lacks libraries, or the kernels of lazy libraries."""
    project = Project(
        HERE / "helper",
        tmp_path / "build",
        (*TOOLCHAIN, f"-DQOLA_BUNDLE={directory}", "-DQOLA_INSTALL_PREFIX=inner"),
        {"QOLA_CMAKE_DIR": str(HERE.parents[1] / "qola/cmake")},
    )
    succeeds(project.configure(f"-DCMAKE_INSTALL_PREFIX={tmp_path}/prefix", "-DPROGRAM=ON"))
    project.make()
    project.make("--install")
    prefix = tmp_path / "prefix/inner"
    shutil.move(prefix, tmp_path / "moved")
    shutil.rmtree(project.build)
    printed, launched = run(tmp_path / "moved/lib/consumer", tmp_path)
    assert printed == LAUNCHED
    assert "bwd" in launched
    installed = {path.name for path in (tmp_path / "moved").iterdir()}
    assert installed == {"lib", "licenses"} | ({"bin", "share"} if directory == LAZY else set())


FIND = """\
cmake_minimum_required(VERSION 3.21)
project(finder LANGUAGES NONE)
find_package(qola {arguments})
message(STATUS "found ${{qola_FOUND}}: ${{qola_VERSION}} ${{qola_NAMESPACE}} ${{qola_ARCHS}} "
  "${{qola_AITER_VERSION}} ${{qola_ROCM_VERSION}} ${{qola_LAZY}} ${{qola_mha_bwd_FOUND}}")
foreach(target qola::mha_fwd qola::mha_bwd qola::static)
  if(TARGET ${{target}})
    get_target_property(location ${{target}} IMPORTED_LOCATION)
    message(STATUS "${{target}} ${{location}}")
  endif()
endforeach()
"""


def find_package_project(tmp_path: Path, prefix: Path, arguments: str) -> Project:
    """Return a project that finds a bundle's package and prints its variables."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "CMakeLists.txt").write_text(FIND.format(arguments=arguments), encoding="utf-8")
    return Project(tmp_path, tmp_path / "build", (f"-DCMAKE_PREFIX_PATH={prefix}",))


def test_package_variables_describe_the_bundle(tmp_path: Path) -> None:
    """Prevents: package variables are empty or wrong, or a target has no library."""
    output = succeeds(
        find_package_project(tmp_path, FORWARD, "CONFIG REQUIRED COMPONENTS mha_fwd").configure()
    )
    line = next(line for line in output.splitlines() if line.startswith("-- found"))
    assert line == "-- found 1: 0.1.0 forward gfx950 0.1.7.post2.dev18 7.2.4 FALSE "
    assert f"-- qola::mha_fwd {FORWARD}/lib/forward_libmha_fwd.so" in output
    assert "qola::mha_bwd" not in output
    assert "qola::static" not in output
    output = succeeds(
        find_package_project(tmp_path, LAZY, "CONFIG REQUIRED").configure("-Uqola_DIR")
    )
    assert "-- found 1: 0.1.0 ci gfx942;gfx950 0.1.7.post2.dev18 7.2.4 TRUE " in output
    assert f"-- qola::mha_bwd {LAZY}/lib/ci_libmha_bwd.so" in output


def test_missing_component_is_reported(tmp_path: Path) -> None:
    """Prevents: linking fails later, with an error that does not name the bundle."""
    output = fails(
        find_package_project(tmp_path, FORWARD, "CONFIG REQUIRED COMPONENTS mha_bwd").configure()
    )
    assert f"place: {FORWARD}/lib" in output
    assert "found: the components mha_fwd" in output
    assert "expected: the component mha_bwd as well" in output
    optional = "CONFIG REQUIRED COMPONENTS mha_fwd OPTIONAL_COMPONENTS mha_bwd"
    assert "7.2.4 FALSE FALSE" in succeeds(
        find_package_project(tmp_path, FORWARD, optional).configure()
    )


@pytest.mark.parametrize(
    ("requested", "compatible"),
    [
        ("0.1", True),
        ("0.1.0 EXACT", True),
        ("0.1.0...<0.2", True),
        ("0.0.9...0.1.0", True),
        ("0.2", False),
        ("0.0.9", False),
        ("1", False),
        ("0.1.1", False),
        ("0.2...1", False),
        ("0.0.1...<0.1.0", False),
    ],
)
def test_versions(tmp_path: Path, requested: str, compatible: bool) -> None:
    """Prevents: find_package accepts an incompatible minor version."""
    result = find_package_project(tmp_path, FORWARD, f"{requested} CONFIG REQUIRED").configure()
    if compatible:
        succeeds(result)
    else:
        assert "version: 0.1.0" in fails(result)


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (["-Dqola_REQUIRED_ARCHS=gfx950"], ""),
        (["-Dqola_REQUIRED_ARCHS=gfx942;gfx950"], "gfx942"),
        (["-DCMAKE_HIP_ARCHITECTURES=gfx942"], ""),
        (
            ["-DCMAKE_HIP_ARCHITECTURES=gfx942:xnack-;gfx90a", "-Dqola_CHECK_ARCHS=ON"],
            "gfx942, gfx90a",
        ),
        (["-DCMAKE_HIP_ARCHITECTURES=gfx950:xnack-", "-Dqola_CHECK_ARCHS=ON"], ""),
    ],
)
def test_archs(tmp_path: Path, options: list[str], missing: str) -> None:
    """Prevents: a program's libraries lack code for its GPU, and the error appears at run time."""
    result = find_package_project(tmp_path, FORWARD, "CONFIG REQUIRED").configure(*options)
    if not missing:
        succeeds(result)
    else:
        output = fails(result)
        assert f"found: libraries for gfx950, and none for {missing}" in output


def test_each_library_has_its_archs(tmp_path: Path) -> None:
    """Prevents: after installs of several bundles, qola checks the archs of the wrong library."""
    prefix = tmp_path / "prefix"
    shutil.copytree(BUNDLE, prefix)
    package = prefix / "lib/cmake/qola"
    for name in ("qola-config.cmake", "qola-mha_bwd.cmake"):
        file = package / name
        text = file.read_text(encoding="utf-8").replace('"gfx942" "gfx950"', '"gfx950"')
        file.chmod(0o644)
        file.write_text(text, encoding="utf-8")
    required = "-Dqola_REQUIRED_ARCHS=gfx942"
    components = "CONFIG REQUIRED COMPONENTS"
    succeeds(
        find_package_project(tmp_path / "one", prefix, f"{components} mha_fwd").configure(required)
    )
    output = fails(
        find_package_project(tmp_path / "two", prefix, f"{components} mha_fwd mha_bwd").configure(
            required
        )
    )
    assert f"place: {prefix}/lib/ci_libmha_bwd.so found: libraries for gfx950" in output


def test_truncated_archive(tmp_path: Path) -> None:
    """Prevents: a program links a truncated archive or an archive of another build."""
    prefix = tmp_path / "prefix"
    shutil.copytree(BUNDLE, prefix)
    archive = prefix / "lib/libqola_ci.a"
    size = archive.stat().st_size
    archive.chmod(0o644)
    with archive.open("r+b") as file:
        file.truncate(size // 2)
    output = fails(find_package_project(tmp_path / "cut", prefix, "CONFIG REQUIRED").configure())
    assert f"{archive} found: {size // 2} bytes expected: {size} bytes" in output


NOT_FOUND = """cmake_minimum_required(VERSION 3.21)
project(optional LANGUAGES NONE)
set(qola_REQUIRED_ARCHS gfx90a)
find_package(qola CONFIG)
if(qola_FOUND OR TARGET qola::mha_fwd)
  message(FATAL_ERROR "found all the same")
endif()
set(qola_REQUIRED_ARCHS gfx950)
find_package(qola CONFIG REQUIRED)
get_target_property(there qola::mha_fwd IMPORTED_LOCATION)
"""


def test_package_that_is_not_found_has_no_targets(tmp_path: Path) -> None:
    """Prevents: a project uses targets of a package that was not found."""
    (tmp_path / "CMakeLists.txt").write_text(NOT_FOUND)
    options = (f"-DCMAKE_PREFIX_PATH={BUNDLE}",)
    succeeds(Project(tmp_path, tmp_path / "build", options).configure())


LINKED = """\
cmake_minimum_required(VERSION 3.21)
project(linked LANGUAGES CXX)
find_package(qola CONFIG REQUIRED COMPONENTS mha_fwd)
{hip}
add_executable(app main.cpp)
target_link_libraries(app PRIVATE qola::mha_fwd)
"""


@pytest.mark.parametrize("with_package", [False, True])
def test_hip_package_of_the_project_is_used(tmp_path: Path, with_package: bool) -> None:
    """Prevents: a program links a second HIP runtime in addition to the project's, or none."""
    hip = "add_library(hip::host SHARED IMPORTED)\nset_target_properties(hip::host PROPERTIES"
    hip += " IMPORTED_LOCATION /opt/theirs/libamdhip64.so)"
    (tmp_path / "CMakeLists.txt").write_text(LINKED.format(hip=hip if with_package else ""))
    (tmp_path / "main.cpp").write_text("int main() {}\n")
    options = (*TOOLCHAIN, f"-DCMAKE_PREFIX_PATH={FORWARD}")
    succeeds(Project(tmp_path, tmp_path / "build", options).configure())
    ninja = (tmp_path / "build/build.ninja").read_text(encoding="utf-8")
    assert ("-lamdhip64" in ninja) == (not with_package)
    assert ("/opt/theirs/libamdhip64.so" in ninja) == with_package


def test_program_with_static_archive(tmp_path: Path) -> None:
    """Prevents: the target of the archive does not link, or also requires the shared libraries."""
    options = (*TOOLCHAIN, f"-DCMAKE_PREFIX_PATH={BUNDLE}", "-DCONSUMER_STATIC=ON")
    project = Project(EXAMPLE, tmp_path / "build", options)
    succeeds(project.configure())
    project.make()
    moved = shutil.copy(project.build / "consumer", tmp_path)
    printed, launched = run(Path(moved), tmp_path)
    assert printed == LAUNCHED
    assert "bwd" in launched
    assert b"libmha_fwd.so" not in Path(moved).read_bytes()


def test_two_bundles_in_one_directory_are_an_error(tmp_path: Path) -> None:
    """Prevents: a project compiles with headers of one bundle and links the library of another."""
    project = find_package_project(tmp_path, BUNDLE, "CONFIG REQUIRED")
    with (tmp_path / "CMakeLists.txt").open("a", encoding="utf-8") as file:
        file.write(f"set(qola_DIR {FORWARD}/lib/cmake/qola)\nfind_package(qola CONFIG REQUIRED)\n")
    output = fails(project.configure())
    assert f"{BUNDLE}/lib/ci_libmha_fwd.so, and {FORWARD}/lib/forward_libmha_fwd.so" in output
