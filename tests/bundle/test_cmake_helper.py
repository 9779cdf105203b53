"""qola.cmake: the selection of a bundle, its options and their names, and builds."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from unidiff.patch import PatchSet

from tests.bundle.project import Project, bundle, fails, succeeds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUNDLE, FORWARD = bundle("QOLA_TEST_BUNDLE"), bundle("QOLA_TEST_FORWARD")
SPLIT, TRITON = bundle("QOLA_TEST_SPLIT"), bundle("QOLA_TEST_TRITON")

# The summary without options.
DEFAULTS = """\
-- qola configuration:
--   QOLA_BUNDLE: {bundle}
--   QOLA_STATIC_LINK: OFF (default)
--   QOLA_INSTALL_PREFIX: (not set) (nothing of qola's is installed)
--   QOLA_PROGRAM: (not set) (qola on PATH, or python3 -m qola)
--   AOTRITON_PATH: (not set) (the project's own affair)
--   AITER_ARCHIVE_BATCH_SIZE: (not set) (without effect: an archive is made in one step)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The helper's project, not configured yet."""
    return Project(
        HERE / "helper", tmp_path / "build", (), {"QOLA_CMAKE_DIR": str(ROOT / "qola/cmake")}
    )


def test_the_summary_says_what_and_who(project: Project) -> None:
    """Prevents: options that are read in silence; a bundle that is found but not the one named."""
    said = succeeds(project.configure(f"-DQOLA_BUNDLE={BUNDLE}"))
    assert DEFAULTS.format(bundle=f"{BUNDLE} (QOLA_BUNDLE)") in said
    assert (
        f"-- qola: {BUNDLE}: qola 0.1.0, gfx942, gfx950, AITER 0.1.7.post2.dev18, ROCm 7.2.4"
        in said
    )
    assert "-- libraries: qola::mha_fwd;qola::mha_bwd" in said
    assert "deprecated" not in said


def test_what_is_in_each_component(project: Project) -> None:
    """Prevents: packs that a project cannot install, since they are not named; archs likewise."""
    both = "gfx942;gfx950"
    said = succeeds(project.configure(f"-DQOLA_BUNDLE={BUNDLE}"))
    assert f"-- archs: {both}, {both}, , {both}\n-- packs: , , \n" in said
    said = succeeds(project.configure(f"-DQOLA_BUNDLE={SPLIT}"))
    packs = [
        ";".join(f"{SPLIT}/lib/ci_libmha_{direction}-{arch}.qpack" for arch in both.split(";"))
        for direction in ("fwd", "bwd")
    ]
    assert f"-- packs: {packs[0]}, {packs[1]}, \n" in said
    components = "-DARGUMENTS=COMPONENTS;triton"
    said = succeeds(project.configure(components, f"-DQOLA_BUNDLE={TRITON}"))
    packs = [f"{TRITON}/lib/qola_triton-{arch}.qpack" for arch in both.split(";")]
    assert f"-- archs: , , {both}, \n-- packs: , , {';'.join(packs)}\n" in said


def test_the_documentation_has_every_name() -> None:
    """Prevents: an undocumented option or argument, or a diff that does not apply."""
    text = (ROOT / "qola/cmake/qola.cmake").read_text(encoding="utf-8")
    page = (ROOT / "docs/guide/cmake.md").read_text(encoding="utf-8")
    names = re.findall(r"\b(?:QOLA|AITER|NVTE|AOTRITON)_[A-Z_]+\b(?!_)", text)
    (arguments,) = re.findall(r"^# qola_bundle\(([^)]*)\)", text, re.MULTILINE)
    keywords = re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", arguments)
    assert len(keywords) == 10
    options = {name for name in names if not name.endswith("_")} - set(keywords)
    assert len(options) >= 11
    assert {name for name in options if f"`{name}`" not in page} == set()
    assert {word for word in keywords if f"`{word}" not in page} == set()
    page = (ROOT / "docs/guide/transformer-engine.md").read_text(encoding="utf-8")
    (diff,) = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    (file,) = PatchSet(diff)
    assert file.path == "transformer_engine/common/ck_fused_attn/CMakeLists.txt"
    assert (file.added, file.removed) == (8, 61)


BUNDLES = ("QOLA_BUNDLE", "AITER_MHA_PATH", "NVTE_CK_FUSED_ATTN_PATH")


@pytest.mark.parametrize("name", BUNDLES)
@pytest.mark.parametrize("kind", ["variable", "environment"])
def test_each_name_of_the_bundle(project: Project, name: str, kind: str) -> None:
    """Prevents: an earlier name that is ignored, or used without a message about its successor."""
    if kind == "variable":
        said = succeeds(project.configure(f"-D{name}={BUNDLE}"))
        source = name
    else:
        said = succeeds(project.configure(**{name: str(BUNDLE)}))
        source = f"environment variable {name}"
    assert f"--   QOLA_BUNDLE: {BUNDLE} ({source})" in said
    assert f"-- prefix: {BUNDLE}\n" in said
    words = " ".join(said.split())
    assert ("CMake Warning (deprecated)" in words) == (name != "QOLA_BUNDLE")
    assert (f"{source} is read as QOLA_BUNDLE" in words) == (name != "QOLA_BUNDLE")


def test_a_variable_goes_before_the_environment(project: Project) -> None:
    """Prevents: a forgotten environment variable that overrules what the user types."""
    said = succeeds(project.configure(f"-DQOLA_BUNDLE={BUNDLE}", QOLA_BUNDLE="/nowhere"))
    assert f"--   QOLA_BUNDLE: {BUNDLE} (QOLA_BUNDLE)" in said


def test_two_names_that_disagree_are_an_error(project: Project) -> None:
    """Prevents: one of two bundles taken without a word; the same one under two names is fine."""
    said = fails(project.configure(f"-DQOLA_BUNDLE={BUNDLE}", AITER_MHA_PATH=str(FORWARD)))
    assert "two names of one option disagree" in said
    assert f"QOLA_BUNDLE: {BUNDLE}, and environment variable AITER_MHA_PATH: {FORWARD}" in said
    succeeds(project.configure(AITER_MHA_PATH=f"{BUNDLE}/lib/.."))


def test_the_lib_directory_of_a_bundle_names_it(project: Project) -> None:
    """Prevents: AITER_MHA_PATH as TransformerEngine has it, the directory of libraries, refused."""
    said = succeeds(project.configure(f"-DAITER_MHA_PATH={BUNDLE}/lib"))
    assert f"-- prefix: {BUNDLE}\n" in said
    assert "qola 0.1.0, gfx942, gfx950" in said


@pytest.mark.parametrize("below", ["", "/lib"])
def test_libraries_without_a_package(project: Project, tmp_path: Path, below: str) -> None:
    """Prevents: TransformerEngine's cache, which only has lib/ and include/, refused."""
    plain = tmp_path / "plain"
    for part in ("lib", "include"):
        shutil.copytree(BUNDLE / part, plain / part, ignore=shutil.ignore_patterns("cmake"))
    said = succeeds(project.configure(f"-DNVTE_CK_FUSED_ATTN_PATH={plain}{below}"))
    assert "is not a bundle: its version and archs are not known" in said
    assert "-- libraries: qola::mha_fwd;qola::mha_bwd" in said
    (plain / "lib/ci_libmha_bwd.so").unlink()
    said = fails(project.configure())
    assert "found: the components mha_fwd" in said
    assert "expected: the component mha_bwd as well" in said
    shutil.rmtree(plain / "include")
    assert "what is named is not a bundle" in fails(project.configure())


def test_another_bundle_is_taken_the_next_time(project: Project) -> None:
    """Prevents: the bundle of an earlier configuration, which CMake's cache still names."""
    succeeds(project.configure(QOLA_BUNDLE=str(BUNDLE)))
    components = "-DARGUMENTS=COMPONENTS;mha_fwd"
    said = succeeds(project.configure(components, QOLA_BUNDLE=str(FORWARD)))
    assert f"-- qola: {FORWARD}: qola 0.1.0, gfx950," in said
    assert "-- libraries: qola::mha_fwd\n" in said


def test_archs_are_checked(project: Project) -> None:
    """Prevents: a bundle without code for an arch that the project asks for."""
    arguments = "-DARGUMENTS=COMPONENTS;mha_fwd;ARCHS;gfx950;gfx942"
    succeeds(project.configure(arguments, f"-DQOLA_BUNDLE={BUNDLE}"))
    said = fails(project.configure(arguments, f"-DQOLA_BUNDLE={FORWARD}"))
    assert "libraries for gfx950, and none for gfx942" in said


@pytest.mark.parametrize(
    "name", ["QOLA_STATIC_LINK", "NVTE_AITER_STATIC_LINK", "AITER_STATIC_LINK"]
)
@pytest.mark.parametrize("kind", ["variable", "environment"])
@pytest.mark.parametrize(
    ("value", "meaning"),
    [("1", "ON"), ("yes", "ON"), ("0", "OFF"), ("Off", "OFF"), ("FALSE", "OFF"), ("maybe", "")],
)
def test_each_name_of_static_linking(
    project: Project, name: str, kind: str, value: str, meaning: str
) -> None:
    """Prevents: "anything but 0 is on", and a name of the option that is not read."""
    given = {"environment": {name: value}}.get(kind, {})
    options = [] if given else [f"-D{name}={value}"]
    run = project.configure(f"-DQOLA_BUNDLE={BUNDLE}", *options, **given)
    if not meaning:
        said = fails(run)
        assert f'place: {name} found: "{value}"' in said
        assert "0, OFF, NO, FALSE or N; in any case" in said
        return
    said = succeeds(run)
    source = name if kind == "variable" else f"environment variable {name}"
    assert f"QOLA_STATIC_LINK: {meaning} ({source})" in said
    libraries = "qola::static" if meaning == "ON" else "qola::mha_fwd;qola::mha_bwd"
    assert f"-- libraries: {libraries}\n" in said


def test_a_bundle_without_the_archive_is_told_so(project: Project) -> None:
    """Prevents: shared libraries linked although static ones were requested."""
    said = fails(project.configure(f"-DQOLA_BUNDLE={FORWARD}", "-DQOLA_STATIC_LINK=ON"))
    assert "the component static as well" in said


def test_the_user_overrules_the_project(project: Project) -> None:
    """Prevents: STATIC in a project that no option turns off."""
    arguments = "-DARGUMENTS=STATIC"
    run = project.configure(arguments, f"-DQOLA_BUNDLE={BUNDLE}")
    assert "QOLA_STATIC_LINK: ON (STATIC of qola_bundle)" in succeeds(run)
    said = succeeds(project.configure("-DQOLA_STATIC_LINK=OFF"))
    assert "-- libraries: qola::mha_fwd;qola::mha_bwd" in said
    said = succeeds(project.configure("-DARGUMENTS=INSTALL_PREFIX;theirs;ARCHS"))
    assert "QOLA_INSTALL_PREFIX: theirs (INSTALL_PREFIX of qola_bundle)" in said
    said = succeeds(project.configure("-DAITER_MHA_INSTALL_PREFIX=mine"))
    assert "QOLA_INSTALL_PREFIX: mine (AITER_MHA_INSTALL_PREFIX)" in said


def test_transformer_engines_other_options(project: Project) -> None:
    """Prevents: an option of TransformerEngine's that breaks a build or gets lost on the way."""
    said = succeeds(
        project.configure(
            f"-DQOLA_BUNDLE={BUNDLE}",
            "-DAITER_MHA_INSTALL_PREFIX=transformer_engine",
            "-DAOTRITON_PATH=/opt/other",
            NVTE_AOTRITON_PATH="/opt/aotriton",
            AITER_ARCHIVE_BATCH_SIZE="0",
        )
    )
    assert "--   QOLA_INSTALL_PREFIX: transformer_engine (AITER_MHA_INSTALL_PREFIX)" in said
    # Not qola's: TransformerEngine hands the one on as the other, and may have both.
    assert "--   AOTRITON_PATH: /opt/other (AOTRITON_PATH; the project's own affair)" in said
    assert (
        "--   AITER_ARCHIVE_BATCH_SIZE: 0 (environment variable AITER_ARCHIVE_BATCH_SIZE; "
        "without effect: an archive is made in one step)"
    ) in said
    cache = (project.build / "CMakeCache.txt").read_text(encoding="utf-8")
    assert "ARCHIVE_BATCH_SIZE" not in cache, (
        "an empty entry is a value to who asks if there is one"
    )
    assert (
        "//Link qola's static library in place of the shared ones\nQOLA_STATIC_LINK:BOOL=" in cache
    )


@pytest.fixture
def program() -> str:
    """The option that names the real qola, with this test's Python."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    command = ["/usr/bin/env", f"PYTHONPATH={path}", sys.executable, "-m", "qola"]
    return f"-DQOLA_PROGRAM={';'.join(command)}"


def test_an_error_of_qola_ends_the_configuration(
    project: Project, program: str, tmp_path: Path
) -> None:
    """Prevents: a manifest that is wrong and a build that goes on, or fails without saying why."""
    manifest = tmp_path / "mine.toml"
    manifest.write_text('[qola]\nnamespace = "mine"\n[build]\narchitectures = ["gfx1"]\n')
    arguments = f"-DARGUMENTS=MANIFEST;{manifest};OUTPUT_DIR;out;ARCHS;gfx950;LAZY"
    said = fails(project.configure(program, arguments))
    output = project.build / "out"
    command = f"-m qola build --manifest {manifest} --output-dir {output} --arch gfx950 --lazy"
    assert command in said
    assert '[build].architectures found "gfx1"' in said, "qola's own words are lost"
    assert (
        f"the libraries could not be built place: {manifest} found: qola build ended with 2" in said
    )
    assert not output.exists()


def test_qola_is_found_by_its_names(project: Project, tmp_path: Path) -> None:
    """Prevents: a qola that is installed and not found; the caller's variables taken for it."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    python = f"-DPython3_EXECUTABLE={sys.executable}"
    said = fails(project.configure(python, "-Dfound=/x", "-Dpython=/x", PYTHONPATH=path))
    assert f"-- qola: {sys.executable} -m qola build --manifest {HERE}/helper/qola.toml" in said
    assert "qola build ended with 2" in said
    program = tmp_path / "bin/qola"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qola "$@"\n')
    program.chmod(0o755)
    said = fails(project.configure(PYTHONPATH=path, PATH=f"{program.parent}:/usr/bin:/bin"))
    assert f"-- qola: {program} build --manifest" in said
    assert "qola build ended with 2" in said


def test_every_argument_reaches_qola_build(project: Project, program: str, tmp_path: Path) -> None:
    """Prevents: an argument of qola_bundle that never gets to qola build."""
    arguments = "MANIFEST;no.toml;ARCHS;gfx942;gfx950;STATIC;AITER_ROOT;aiter"
    more = ";PREBUILT;u1;u2;PUBLIC_KEY;key"
    said = fails(project.configure(program, f"-DARGUMENTS={arguments}{more}"))
    here = f"{HERE}/helper"
    assert (
        f"build --manifest {here}/no.toml --output-dir {project.build}/qola --arch gfx942 "
        f"--arch gfx950 --static --aiter-root {here}/aiter --prebuilt u1 --prebuilt u2 "
        "--public-key key"
    ) in said
    # The real program accepts these options; only the manifest is missing.
    assert "unknown option" not in said
    assert "No such file" in said


def test_components_are_known_before_anything_is_built(project: Project, program: str) -> None:
    """Prevents: a build of hours before a misspelt name is found; a missing archive."""
    said = fails(project.configure(program, "-DARGUMENTS=MANIFEST;no.toml;COMPONENTS;mha_fdw"))
    assert "found: mha_fdw expected: mha_fwd, mha_bwd, triton, static" in said
    assert "qola build" not in said
    said = fails(project.configure("-DARGUMENTS=MANIFEST;no.toml;COMPONENTS;mha_fwd;static"))
    assert f"--output-dir {project.build}/qola --static" in said


def test_a_manifest_without_attention(project: Project, tmp_path: Path) -> None:
    """Prevents: CMake's words about targets where qola had nothing to make a package of."""
    (tmp_path / "qola").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "qola").chmod(0o755)
    said = fails(project.configure(f"-DQOLA_PROGRAM={tmp_path}/qola"))
    assert "the manifest has no attention libraries" in said


def test_a_directory_inside_a_bundle_is_itself(project: Project, tmp_path: Path) -> None:
    """Prevents: the libraries around those that are named."""
    shutil.copytree(BUNDLE, tmp_path / "bundle")
    inner = tmp_path / "bundle/old"
    for part in ("lib", "include"):
        shutil.copytree(BUNDLE / part, inner / part, ignore=shutil.ignore_patterns("cmake"))
    said = succeeds(project.configure(f"-DQOLA_BUNDLE={inner}"))
    assert f"-- prefix: {inner}\n" in said


def test_the_same_bundle_under_two_names(project: Project, tmp_path: Path) -> None:
    """Prevents: a link and its target taken for two bundles; a fix that changes nothing."""
    (tmp_path / "current").symlink_to(BUNDLE)
    both = (f"-DQOLA_BUNDLE={tmp_path}/current", f"-DAITER_MHA_PATH={BUNDLE}")
    assert f"QOLA_BUNDLE: {tmp_path}/current (QOLA_BUNDLE)" in succeeds(project.configure(*both))
    said = fails(project.configure(f"-DQOLA_BUNDLE={FORWARD}"))
    assert "fix: cmake -UAITER_MHA_PATH" in said


def test_without_manifest_bundle_or_qola(project: Project) -> None:
    """Prevents: an error without the variable to set or the program to install."""
    said = fails(project.configure("-DARGUMENTS=LAZY"))
    assert "no MANIFEST, and no bundle is named" in said
    said = fails(project.configure("-DARGUMENTS=MANIFESTO;x"))
    assert "an argument that qola_bundle does not have" in said
    said = fails(
        project.configure("-DARGUMENTS=MANIFEST;a.toml", "-DPython3_EXECUTABLE=/bin/false")
    )
    assert "no qola to build a bundle with" in said
    assert "pip install" in said
