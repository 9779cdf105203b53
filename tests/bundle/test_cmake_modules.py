"""ROCm/QoLA's functions for CMake: checkouts, builds, prebuilt libraries and variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bundle.project import Project, bundle, fails, succeeds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUNDLE = bundle("QOLA_TEST_BUNDLE")
REMOTE = "https://github.com/ROCm/aiter.git"
MANIFEST = """\
[qola]
namespace = "ci"
aiter_commit = "{commit}"
[build]
architectures = ["gfx942", "gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
group = "attention"
"""
CONFIG = {"libmha_fwd": {"blob_gen_cmd": ["{AITER_META_DIR}/csrc/cpp_itfs/mha_fwd_generate.py"]}}
RESULTS = "OUT_INCLUDE_DIR MY_INCLUDE OUT_LIB_DIR MY_LIB OUT_LIBS MY_FILES OUT_CONFIG_DIR MY_CONFIG"
LIBRARIES = "ci_libmha_bwd.so;ci_libmha_fwd.so"
BOTH = f"qola_add_modules(GROUP attention MANIFEST BUILD_DIR qola {RESULTS} OUT_AITER_DIR MY_AITER)"

# Replaces a build by copying its installed files. Other commands run the real program.
PROGRAM = """\
#!/bin/sh
echo "$@" >>"{log}"
case $1 in
  build) mkdir -p "{output}" && cp -rL "{bundle}/." "{output}" && chmod -R u+w "{output}" ;;
  *) PYTHONPATH="{path}" exec "{python}" -m qola "$@" ;;
esac
"""


@dataclass(frozen=True)
class ModulesProject:
    """An unconfigured project, with a manifest whose commit git can fetch."""

    project: Project
    log: Path
    manifest: Path

    def call(self, code: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Configure the project with CMake code that calls qola's functions."""
        code = code.replace("MANIFEST", f'MANIFEST "{self.manifest}"')
        return self.project.configure(*options, **{"QOLA_TEST_CODE": code, **env})

    def calls(self) -> list[str]:
        """Return the arguments of each run of qola."""
        return self.log.read_text().splitlines() if self.log.exists() else []


def write_tree(root: Path) -> Path:
    """Write the files of AITER that qola requires in a checkout."""
    generator = "3rdparty/composable_kernel/example/ck_tile/01_fmha/generate.py"
    files = {
        "aiter/jit/optCompilerConfig.json": json.dumps(CONFIG),
        generator: "# Composable Kernel\n",
        "csrc/include/mha_fwd.h": "// AITER\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def case(tmp_path: Path) -> ModulesProject:
    """The project, with AITER's repository on this machine."""
    remote = write_tree(tmp_path / "remote")
    git = ["git", "-C", str(remote), "-c", "user.name=t", "-c", "user.email=t@t.invalid"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run(["env", "-u", "GIT_DIR", *git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    manifest = tmp_path / "qola_manifest.toml"
    manifest.write_text(MANIFEST.format(commit=head.stdout.strip()))
    program, log = tmp_path / "qola", tmp_path / "log"
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    values = {"log": log, "bundle": BUNDLE, "path": path, "python": sys.executable}
    program.write_text(PROGRAM.format(output=tmp_path / "build/qola", **values))
    program.chmod(0o755)
    env = {
        "QOLA_TEST_INCLUDE": str(ROOT / "qola/cmake/qola.cmake"),
        "HOME": str(tmp_path),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{remote}.insteadOf",
        "GIT_CONFIG_VALUE_0": REMOTE,
    }
    project = Project(HERE / "modules", tmp_path / "build", (f"-DQOLA_PROGRAM={program}",), env)
    return ModulesProject(project, log, manifest)


def test_both_phases(case: ModulesProject) -> None:
    """Prevents: ROCm/QoLA's two functions do not check out AITER, or return other results."""
    run = case.call(
        "qola_checkout_aiter(MANIFEST AITER_DIR aiter GROUPS attention OUT_DIR MY_AITER)\n"
        "qola_build_modules(GROUP attention MANIFEST BUILD_DIR qola AITER_DIR ${MY_AITER} "
        f"ARCHS gfx942 gfx950 {RESULTS})"
    )
    output, build = succeeds(run), case.project.build
    assert f"-- AITER: {build}/aiter\n" in output
    assert (build / "aiter/csrc/include/mha_fwd.h").read_text() == "// AITER\n"
    assert json.loads((build / "aiter/AITER.json").read_text())["kind"] == "git"
    for line in (
        f"INCLUDE: {build}/qola/include",
        f"LIB: {build}/qola/lib",
        f"FILES: {LIBRARIES}",
        f"CONFIG: {build}/qola/configs",
    ):
        assert f"-- {line}\n" in output
    assert case.calls() == [
        f"checkout --manifest {case.manifest} --aiter-root {build}/aiter --group attention",
        f"build --manifest {case.manifest} --output-dir {build}/qola --aiter-root {build}/aiter "
        "--skip-checkout --group attention --arch gfx942 --arch gfx950",
    ]
    # An edit of the manifest reconfigures the project.
    assert str(case.manifest) in (build / "build.ninja").read_text()


def test_add_modules_runs_both_phases(case: ModulesProject) -> None:
    """Prevents: qola_add_modules does not return the results of the functions that it calls."""
    code = BOTH
    output, build = (
        succeeds(case.call(f"{code}\n{code}")),
        case.project.build,
    )
    tree = f"{build}/qola/third_party/aiter"
    assert f"-- AITER: {tree}\n" in output
    assert f"-- LIB: {build}/qola/lib\n" in output
    assert f"-- FILES: {LIBRARIES}\n" in output
    # The second call, as from another directory of the project, does not check out again.
    assert [line.split()[0] for line in case.calls()] == ["checkout", "build", "build"]
    assert f"--aiter-root {tree}" in case.calls()[1]


@pytest.mark.parametrize("name", ["QOLA_AITER_SOURCE_DIR", "NVTE_AITER_SOURCE_DIR"])
def test_tree_of_the_user(case: ModulesProject, tmp_path: Path, name: str) -> None:
    """Prevents: qola ignores the user's tree, or checks it out again and overwrites edits."""
    tree = write_tree(tmp_path / "own")
    code = "qola_checkout_aiter(MANIFEST DEFAULT_DIR aiter OUT_DIR MY_AITER)"
    output = succeeds(case.call(code, **{name: str(tree)}))
    assert (
        f"-- qola: AITER is {tree} (environment variable {name}); nothing is checked out" in output
    )
    assert f"-- AITER: {tree}\n" in output
    assert case.calls() == []
    (tree / "csrc/include/mha_fwd.h").unlink()
    (tree / "csrc/include").rmdir()
    output = fails(case.call(code, **{name: str(tree)}))
    assert f"found: {tree}, without csrc/include" in output
    output = fails(case.call(code, QOLA_AITER_SOURCE_DIR="/one", NVTE_AITER_SOURCE_DIR="/two"))
    assert "found: /one, and NVTE_AITER_SOURCE_DIR: /two" in output


def test_tree_of_a_wheel(case: ModulesProject, tmp_path: Path) -> None:
    """Prevents: include directories are relative to a wheel's root instead of aiter_meta."""
    tree = tmp_path / "wheel"
    write_tree(tree / "aiter_meta")
    (tree / "aiter_meta/aiter").rename(tree / "aiter")
    code = (
        "qola_checkout_aiter(MANIFEST DEFAULT_DIR aiter OUT_DIR MY_AITER)\n"
        "qola_build_modules(GROUP attention MANIFEST BUILD_DIR qola AITER_DIR ${MY_AITER} "
        f"{RESULTS})"
    )
    output = succeeds(case.call(code, QOLA_AITER_SOURCE_DIR=str(tree)))
    assert f"-- AITER: {tree}/aiter_meta\n" in output
    (call,) = case.calls()
    assert f"--aiter-root {tree} --skip-checkout" in call


def test_prebuilt_directory_is_used(case: ModulesProject) -> None:
    """Prevents: qola builds although QOLA_PREBUILT_DIR_<GROUP> names the libraries."""
    prebuilt = {"QOLA_PREBUILT_DIR_ATTENTION": str(BUNDLE)}
    code = BOTH
    output = succeeds(case.call(code, **prebuilt))
    message = f"group attention is {BUNDLE} (environment variable QOLA_PREBUILT_DIR_ATTENTION)"
    assert message in output
    for line in (f"INCLUDE: {BUNDLE}/include", f"LIB: {BUNDLE}/lib", f"FILES: {LIBRARIES}"):
        assert f"-- {line}\n" in output
    # Manifest and tree are not required.
    code = f"qola_build_modules(GROUP attention BUILD_DIR qola LIBS ci_libmha_fwd.so {RESULTS})"
    assert "-- FILES: ci_libmha_fwd.so\n" in succeeds(case.call(code, **prebuilt))
    output = fails(case.call(code.replace("_fwd", "_gemm"), **prebuilt))
    assert f"found: no ci_libmha_gemm.so in {BUNDLE}/lib" in output
    assert case.calls() == []
    # A variable of another group has no effect.
    assert "no MANIFEST" in fails(case.call(code, QOLA_PREBUILT_DIR_GEMM=str(BUNDLE)))


def test_directory_without_libraries(case: ModulesProject, tmp_path: Path) -> None:
    """Prevents: an empty list of libraries links, and the program fails at its first call."""
    code = f"qola_build_modules(GROUP attention BUILD_DIR qola {RESULTS})"
    prebuilt = {"QOLA_PREBUILT_DIR_ATTENTION": str(tmp_path / "empty")}
    output = fails(case.call(code, **prebuilt))
    assert f"found: {tmp_path}/empty/include, without qola_config.h" in output
    (tmp_path / "empty/include").mkdir(parents=True)
    (tmp_path / "empty/include/qola_config.h").touch()
    assert f"found: no *.so in {tmp_path}/empty/lib" in fails(case.call(code, **prebuilt))


def test_errors_of_qola_end_the_configuration(case: ModulesProject) -> None:
    """Prevents: a misspelt group fails after hours, or the error omits qola's message."""
    code = "qola_checkout_aiter(MANIFEST AITER_DIR aiter GROUPS attantion OUT_DIR MY_AITER)"
    output = fails(case.call(code))
    assert "attantion" in output
    assert f"no AITER place: {case.manifest} found: qola checkout ended with 2" in output
    assert not (case.project.build / "aiter").exists()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("qola_checkout_aiter(AITER_DIR aiter)", "no MANIFEST"),
        ("qola_checkout_aiter(MANIFEST)", "no AITER_DIR"),
        ("qola_checkout_aiter(MANIFEST AITER_DIR a GROUP b)", "found: GROUP;b expected: MANIFEST"),
        ("qola_build_modules(BUILD_DIR qola)", "no GROUP"),
        ("qola_build_modules(GROUP a BUILD_DIR qola MANIFEST)", "no AITER_DIR"),
        ("qola_build_modules(GROUP a BUILD_DIR b MANIFEST AITER_DIR c)", "without csrc/include"),
        ("qola_add_modules(GROUP a MANIFEST)", "no BUILD_DIR"),
        ("qola_add_modules(GROUP a BUILD_DIR b)", "no MANIFEST"),
    ],
)
def test_arguments(case: ModulesProject, code: str, expected: str) -> None:
    """Prevents: a missing or misspelt argument builds something else."""
    assert expected in fails(case.call(code))
    assert case.calls() == []


def test_include_from_a_checkout(case: ModulesProject, tmp_path: Path) -> None:
    """Prevents: a checkout that replaces ROCm/QoLA's submodule runs another installed qola."""
    other = tmp_path / "bin/qola"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 9\n")
    other.chmod(0o755)
    project = Project(
        case.project.source,
        case.project.build,
        (f"-DPython_EXECUTABLE={sys.executable}",),
        {**case.project.env, "QOLA_TEST_INCLUDE": str(ROOT / "cmake/QoLA.cmake")},
    )
    case = ModulesProject(project, case.log, case.manifest)
    code = "qola_checkout_aiter(MANIFEST AITER_DIR aiter GROUPS attention OUT_DIR MY_AITER)"
    # The Python of the caller provides qola's dependencies.
    packages = os.pathsep.join(filter(None, sys.path))
    env = {"PYTHONPATH": packages, "PATH": f"{other.parent}:/usr/bin:/bin"}
    output = succeeds(case.call(code, **env))
    assert f"PYTHONPATH={ROOT}:{packages} {sys.executable} -m qola checkout" in output
    assert (project.build / "aiter/AITER.json").is_file()


def test_all_names_are_documented() -> None:
    """Prevents: an undocumented function or argument."""
    text = (ROOT / "qola/cmake/qola-modules.cmake").read_text(encoding="utf-8")
    page = (ROOT / "docs/guide/cmake.md").read_text(encoding="utf-8")
    for function in ("qola_checkout_aiter", "qola_build_modules", "qola_add_modules"):
        assert f"function({function})" in text
        assert f"`{function}`" in page
    for name in ("QOLA_PREBUILT_DIR_<GROUP>", "QOLA_AITER_SOURCE_DIR", "NVTE_AITER_SOURCE_DIR"):
        assert f"`{name}`" in page
    for argument in ("GROUP", "GROUPS", "BUILD_DIR", "AITER_DIR", "DEFAULT_DIR", "LIBS", *(
        word for word in RESULTS.split() if word.startswith("OUT_")
    ), "OUT_AITER_DIR", "OUT_DIR"):  # fmt: skip
        assert f"`{argument}" in page
