"""ROCm/QoLA's functions for CMake: checkouts, builds, prebuilt libraries and variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bundle.project import Project, fails, succeeds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUNDLE = Path(os.environ["QOLA_TEST_BUNDLE"], "manifest.json").resolve().parent
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

# Replaces a build of hours by its installed files. Everything else is the real program.
PROGRAM = """\
#!/bin/sh
echo "$@" >>"{log}"
case $1 in
  build) mkdir -p "{output}" && cp -rL "{bundle}/." "{output}" && chmod -R u+w "{output}" ;;
  *) PYTHONPATH="{path}" exec "{python}" -m qola "$@" ;;
esac
"""


@dataclass(frozen=True)
class Place:
    """A project that is not configured yet, with a manifest of a commit that git can fetch."""

    project: Project
    log: Path
    manifest: Path

    def call(self, code: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Configure the project with calls in it."""
        code = code.replace("MANIFEST", f'MANIFEST "{self.manifest}"')
        return self.project.configure(*options, **{"QOLA_TEST_CODE": code, **env})

    def calls(self) -> list[str]:
        """Return the arguments of each call of qola."""
        return self.log.read_text().splitlines() if self.log.exists() else []


def write_tree(root: Path) -> Path:
    """Write as much of AITER as qola wants to see in a checkout."""
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
def place(tmp_path: Path) -> Place:
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
    return Place(project, log, manifest)


def test_both_phases(place: Place) -> None:
    """Prevents: a project of ROCm/QoLA's functions that gets no AITER, or other results of them."""
    run = place.call(
        "qola_checkout_aiter(MANIFEST AITER_DIR aiter GROUPS attention OUT_DIR MY_AITER)\n"
        "qola_build_modules(GROUP attention MANIFEST BUILD_DIR qola AITER_DIR ${MY_AITER} "
        f"ARCHS gfx942 gfx950 {RESULTS})"
    )
    said, build = succeeds(run), place.project.build
    assert f"-- AITER: {build}/aiter\n" in said
    assert (build / "aiter/csrc/include/mha_fwd.h").read_text() == "// AITER\n"
    assert json.loads((build / "aiter/AITER.json").read_text())["kind"] == "git"
    for line in (
        f"INCLUDE: {build}/qola/include",
        f"LIB: {build}/qola/lib",
        f"FILES: {LIBRARIES}",
        f"CONFIG: {build}/qola/configs",
    ):
        assert f"-- {line}\n" in said
    assert place.calls() == [
        f"checkout --manifest {place.manifest} --aiter-root {build}/aiter --group attention",
        f"build --manifest {place.manifest} --output-dir {build}/qola --aiter-root {build}/aiter "
        "--skip-checkout --group attention --arch gfx942 --arch gfx950",
    ]
    # An edit of the manifest has the project configured again.
    assert str(place.manifest) in (build / "build.ninja").read_text()


def test_one_call_does_both(place: Place) -> None:
    """Prevents: results that get lost on the way through the function that calls the others."""
    code = BOTH
    said, build = succeeds(place.call(f"{code}\n{code}")), place.project.build
    tree = f"{build}/qola/third_party/aiter"
    assert f"-- AITER: {tree}\n" in said
    assert f"-- LIB: {build}/qola/lib\n" in said
    assert f"-- FILES: {LIBRARIES}\n" in said
    # The second call, as of another directory of the project, checks nothing out.
    assert [line.split()[0] for line in place.calls()] == ["checkout", "build", "build"]
    assert f"--aiter-root {tree}" in place.calls()[1]


@pytest.mark.parametrize("name", ["QOLA_AITER_SOURCE_DIR", "NVTE_AITER_SOURCE_DIR"])
def test_a_tree_of_ones_own(place: Place, tmp_path: Path, name: str) -> None:
    """Prevents: a tree that the user names passed over, or checked out anew, edits lost."""
    tree = write_tree(tmp_path / "own")
    code = "qola_checkout_aiter(MANIFEST DEFAULT_DIR aiter OUT_DIR MY_AITER)"
    said = succeeds(place.call(code, **{name: str(tree)}))
    assert f"-- qola: AITER is {tree} (environment variable {name}); nothing is checked out" in said
    assert f"-- AITER: {tree}\n" in said
    assert place.calls() == []
    (tree / "csrc/include/mha_fwd.h").unlink()
    (tree / "csrc/include").rmdir()
    said = fails(place.call(code, **{name: str(tree)}))
    assert f"found: {tree}, without csrc/include" in said
    said = fails(place.call(code, QOLA_AITER_SOURCE_DIR="/one", NVTE_AITER_SOURCE_DIR="/two"))
    assert "found: /one, and NVTE_AITER_SOURCE_DIR: /two" in said


def test_a_wheel_s_tree(place: Place, tmp_path: Path) -> None:
    """Prevents: include directories below a wheel's root, which has none, or a build from them."""
    tree = tmp_path / "wheel"
    write_tree(tree / "aiter_meta")
    (tree / "aiter_meta/aiter").rename(tree / "aiter")
    code = (
        "qola_checkout_aiter(MANIFEST DEFAULT_DIR aiter OUT_DIR MY_AITER)\n"
        "qola_build_modules(GROUP attention MANIFEST BUILD_DIR qola AITER_DIR ${MY_AITER} "
        f"{RESULTS})"
    )
    said = succeeds(place.call(code, QOLA_AITER_SOURCE_DIR=str(tree)))
    assert f"-- AITER: {tree}/aiter_meta\n" in said
    (call,) = place.calls()
    assert f"--aiter-root {tree} --skip-checkout" in call


def test_libraries_that_are_there(place: Place) -> None:
    """Prevents: a build although QOLA_PREBUILT_DIR_<GROUP> names its libraries."""
    prebuilt = {"QOLA_PREBUILT_DIR_ATTENTION": str(BUNDLE)}
    code = BOTH
    said = succeeds(place.call(code, **prebuilt))
    words = f"group attention is {BUNDLE} (environment variable QOLA_PREBUILT_DIR_ATTENTION)"
    assert words in said
    for line in (f"INCLUDE: {BUNDLE}/include", f"LIB: {BUNDLE}/lib", f"FILES: {LIBRARIES}"):
        assert f"-- {line}\n" in said
    # Neither manifest nor tree is needed.
    code = f"qola_build_modules(GROUP attention BUILD_DIR qola LIBS ci_libmha_fwd.so {RESULTS})"
    assert "-- FILES: ci_libmha_fwd.so\n" in succeeds(place.call(code, **prebuilt))
    said = fails(place.call(code.replace("_fwd", "_gemm"), **prebuilt))
    assert f"found: no ci_libmha_gemm.so in {BUNDLE}/lib" in said
    assert place.calls() == []
    # Another group's variable is not this one's.
    assert "no MANIFEST" in fails(place.call(code, QOLA_PREBUILT_DIR_GEMM=str(BUNDLE)))


def test_a_directory_without_libraries(place: Place, tmp_path: Path) -> None:
    """Prevents: an empty list of libraries, which links nothing and fails at the first call."""
    code = f"qola_build_modules(GROUP attention BUILD_DIR qola {RESULTS})"
    prebuilt = {"QOLA_PREBUILT_DIR_ATTENTION": str(tmp_path / "empty")}
    said = fails(place.call(code, **prebuilt))
    assert f"found: {tmp_path}/empty/include, without qola_config.h" in said
    (tmp_path / "empty/include").mkdir(parents=True)
    (tmp_path / "empty/include/qola_config.h").touch()
    assert f"found: no *.so in {tmp_path}/empty/lib" in fails(place.call(code, **prebuilt))


def test_errors_of_qola_end_the_configuration(place: Place) -> None:
    """Prevents: a group misspelt that shows after hours; an error without its words."""
    code = "qola_checkout_aiter(MANIFEST AITER_DIR aiter GROUPS attantion OUT_DIR MY_AITER)"
    said = fails(place.call(code))
    assert "attantion" in said
    assert f"no AITER place: {place.manifest} found: qola checkout ended with 2" in said
    assert not (place.project.build / "aiter").exists()


@pytest.mark.parametrize(
    ("code", "words"),
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
def test_arguments(place: Place, code: str, words: str) -> None:
    """Prevents: an argument that is missing or misspelt, and a build of something else."""
    assert words in fails(place.call(code))
    assert place.calls() == []


def test_from_a_checkout(place: Place, tmp_path: Path) -> None:
    """Prevents: a checkout in the place of ROCm/QoLA's submodule that runs another qola."""
    other = tmp_path / "bin/qola"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 9\n")
    other.chmod(0o755)
    project = Project(
        place.project.source,
        place.project.build,
        (f"-DPython_EXECUTABLE={sys.executable}",),
        {**place.project.env, "QOLA_TEST_INCLUDE": str(ROOT / "cmake/QoLA.cmake")},
    )
    place = Place(project, place.log, place.manifest)
    code = "qola_checkout_aiter(MANIFEST AITER_DIR aiter GROUPS attention OUT_DIR MY_AITER)"
    # Its dependencies are the caller's Python's.
    packages = os.pathsep.join(filter(None, sys.path))
    env = {"PYTHONPATH": packages, "PATH": f"{other.parent}:/usr/bin:/bin"}
    said = succeeds(place.call(code, **env))
    assert f"PYTHONPATH={ROOT}:{packages} {sys.executable} -m qola checkout" in said
    assert (project.build / "aiter/AITER.json").is_file()


def test_the_documentation_has_every_name() -> None:
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
