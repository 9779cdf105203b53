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
    """The project of helper/, not yet configured."""
    return Project(
        HERE / "helper", tmp_path / "build", (), {"QOLA_CMAKE_DIR": str(ROOT / "qola/cmake")}
    )


def test_summary_names_values_and_their_sources(project: Project) -> None:
    """Prevents: qola.cmake silently reads options, or uses a bundle other than the requested."""
    output = succeeds(project.configure(f"-DQOLA_BUNDLE={BUNDLE}"))
    assert DEFAULTS.format(bundle=f"{BUNDLE} (QOLA_BUNDLE)") in output
    assert (
        f"-- qola: {BUNDLE}: qola 0.1.0, gfx942, gfx950, AITER 0.1.7.post2.dev18, ROCm 7.2.4"
        in output
    )
    assert "-- libraries: qola::mha_fwd;qola::mha_bwd" in output
    assert "deprecated" not in output


def test_archs_and_packs_of_components(project: Project) -> None:
    """Prevents: a project cannot install packs or read archs because no variable lists them."""
    both = "gfx942;gfx950"
    output = succeeds(project.configure(f"-DQOLA_BUNDLE={BUNDLE}"))
    assert f"-- archs: {both}, {both}, , {both}\n-- packs: , , \n" in output
    output = succeeds(project.configure(f"-DQOLA_BUNDLE={SPLIT}"))
    packs = [
        ";".join(f"{SPLIT}/lib/ci_libmha_{direction}-{arch}.qpack" for arch in both.split(";"))
        for direction in ("fwd", "bwd")
    ]
    assert f"-- packs: {packs[0]}, {packs[1]}, \n" in output
    components = "-DARGUMENTS=COMPONENTS;triton"
    output = succeeds(project.configure(components, f"-DQOLA_BUNDLE={TRITON}"))
    packs = [f"{TRITON}/lib/qola_triton-{arch}.qpack" for arch in both.split(";")]
    assert f"-- archs: , , {both}, \n-- packs: , , {';'.join(packs)}\n" in output


def test_all_names_are_documented() -> None:
    """Prevents: an undocumented option or argument, or a documented diff that does not apply."""
    text = (ROOT / "qola/cmake/qola.cmake").read_text(encoding="utf-8")
    page = (ROOT / "docs/guide/cmake.md").read_text(encoding="utf-8")
    names = re.findall(r"\b(?:QOLA|AITER|NVTE|AOTRITON)_[A-Z_]+\b(?!_)", text)
    (arguments,) = re.findall(r"^# qola_bundle\(([^)]*)\)", text, re.MULTILINE)
    keywords = re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", arguments)
    assert len(keywords) == 10
    options = {name for name in names if not name.endswith("_")} - set(keywords)
    assert len(options) >= 11
    assert {name for name in options if f"`{name}`" not in page} == set()
    assert {keyword for keyword in keywords if f"`{keyword}" not in page} == set()
    page = (ROOT / "docs/guide/transformer-engine.md").read_text(encoding="utf-8")
    (diff,) = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    (file,) = PatchSet(diff)
    assert file.path == "transformer_engine/common/ck_fused_attn/CMakeLists.txt"
    assert (file.added, file.removed) == (8, 61)


BUNDLE_NAMES = ("QOLA_BUNDLE", "AITER_MHA_PATH", "NVTE_CK_FUSED_ATTN_PATH")


@pytest.mark.parametrize("name", BUNDLE_NAMES)
@pytest.mark.parametrize("kind", ["variable", "environment"])
def test_names_of_the_bundle_option(project: Project, name: str, kind: str) -> None:
    """Prevents: qola.cmake ignores an earlier name, or does not report its successor."""
    if kind == "variable":
        output = succeeds(project.configure(f"-D{name}={BUNDLE}"))
        source = name
    else:
        output = succeeds(project.configure(**{name: str(BUNDLE)}))
        source = f"environment variable {name}"
    assert f"--   QOLA_BUNDLE: {BUNDLE} ({source})" in output
    assert f"-- prefix: {BUNDLE}\n" in output
    text = " ".join(output.split())
    assert ("CMake Warning (deprecated)" in text) == (name != "QOLA_BUNDLE")
    assert (f"{source} is read as QOLA_BUNDLE" in text) == (name != "QOLA_BUNDLE")


def test_variables_override_the_environment(project: Project) -> None:
    """Prevents: a forgotten environment variable overrides a variable of the command line."""
    output = succeeds(project.configure(f"-DQOLA_BUNDLE={BUNDLE}", QOLA_BUNDLE="/nowhere"))
    assert f"--   QOLA_BUNDLE: {BUNDLE} (QOLA_BUNDLE)" in output


def test_conflicting_names_are_an_error(project: Project) -> None:
    """Prevents: qola.cmake silently uses one of two conflicting values, or rejects equal values."""
    output = fails(project.configure(f"-DQOLA_BUNDLE={BUNDLE}", AITER_MHA_PATH=str(FORWARD)))
    assert "two names of one option disagree" in output
    assert f"QOLA_BUNDLE: {BUNDLE}, and environment variable AITER_MHA_PATH: {FORWARD}" in output
    succeeds(project.configure(AITER_MHA_PATH=f"{BUNDLE}/lib/.."))


def test_lib_directory_selects_the_bundle(project: Project) -> None:
    """Prevents: qola.cmake rejects AITER_MHA_PATH if it names lib/, as in TransformerEngine."""
    output = succeeds(project.configure(f"-DAITER_MHA_PATH={BUNDLE}/lib"))
    assert f"-- prefix: {BUNDLE}\n" in output
    assert "qola 0.1.0, gfx942, gfx950" in output


@pytest.mark.parametrize("below", ["", "/lib"])
def test_libraries_without_a_package(project: Project, tmp_path: Path, below: str) -> None:
    """Prevents: qola.cmake rejects TransformerEngine's cache, which only has lib/ and include/."""
    without_package = tmp_path / "plain"
    for directory in ("lib", "include"):
        shutil.copytree(
            BUNDLE / directory, without_package / directory, ignore=shutil.ignore_patterns("cmake")
        )
    output = succeeds(project.configure(f"-DNVTE_CK_FUSED_ATTN_PATH={without_package}{below}"))
    assert "is not a bundle: its version and archs are not known" in output
    assert "-- libraries: qola::mha_fwd;qola::mha_bwd" in output
    (without_package / "lib/ci_libmha_bwd.so").unlink()
    output = fails(project.configure())
    assert "found: the components mha_fwd" in output
    assert "expected: the component mha_bwd as well" in output
    shutil.rmtree(without_package / "include")
    assert "what is named is not a bundle" in fails(project.configure())


def test_reconfiguration_uses_the_new_bundle(project: Project) -> None:
    """Prevents: a new configuration uses the old bundle from CMake's cache."""
    succeeds(project.configure(QOLA_BUNDLE=str(BUNDLE)))
    components = "-DARGUMENTS=COMPONENTS;mha_fwd"
    output = succeeds(project.configure(components, QOLA_BUNDLE=str(FORWARD)))
    assert f"-- qola: {FORWARD}: qola 0.1.0, gfx950," in output
    assert "-- libraries: qola::mha_fwd\n" in output


def test_archs_are_checked(project: Project) -> None:
    """Prevents: a bundle lacks code for an arch that the project requires."""
    arguments = "-DARGUMENTS=COMPONENTS;mha_fwd;ARCHS;gfx950;gfx942"
    succeeds(project.configure(arguments, f"-DQOLA_BUNDLE={BUNDLE}"))
    output = fails(project.configure(arguments, f"-DQOLA_BUNDLE={FORWARD}"))
    assert "libraries for gfx950, and none for gfx942" in output


@pytest.mark.parametrize(
    "name", ["QOLA_STATIC_LINK", "NVTE_AITER_STATIC_LINK", "AITER_STATIC_LINK"]
)
@pytest.mark.parametrize("kind", ["variable", "environment"])
@pytest.mark.parametrize(
    ("value", "meaning"),
    [("1", "ON"), ("yes", "ON"), ("0", "OFF"), ("Off", "OFF"), ("FALSE", "OFF"), ("maybe", "")],
)
def test_names_and_values_of_static_linking(
    project: Project, name: str, kind: str, value: str, meaning: str
) -> None:
    """Prevents: qola.cmake ignores a name of the option, or reads an unknown value as ON."""
    env = {"environment": {name: value}}.get(kind, {})
    options = [] if env else [f"-D{name}={value}"]
    run = project.configure(f"-DQOLA_BUNDLE={BUNDLE}", *options, **env)
    if not meaning:
        output = fails(run)
        assert f'place: {name} found: "{value}"' in output
        assert "0, OFF, NO, FALSE or N; in any case" in output
        return
    output = succeeds(run)
    source = name if kind == "variable" else f"environment variable {name}"
    assert f"QOLA_STATIC_LINK: {meaning} ({source})" in output
    libraries = "qola::static" if meaning == "ON" else "qola::mha_fwd;qola::mha_bwd"
    assert f"-- libraries: {libraries}\n" in output


def test_bundle_without_the_archive_is_an_error(project: Project) -> None:
    """Prevents: a project links shared libraries although it requests static linking."""
    output = fails(project.configure(f"-DQOLA_BUNDLE={FORWARD}", "-DQOLA_STATIC_LINK=ON"))
    assert "the component static as well" in output


def test_user_options_override_the_project(project: Project) -> None:
    """Prevents: a user cannot disable STATIC of a project."""
    arguments = "-DARGUMENTS=STATIC"
    run = project.configure(arguments, f"-DQOLA_BUNDLE={BUNDLE}")
    assert "QOLA_STATIC_LINK: ON (STATIC of qola_bundle)" in succeeds(run)
    output = succeeds(project.configure("-DQOLA_STATIC_LINK=OFF"))
    assert "-- libraries: qola::mha_fwd;qola::mha_bwd" in output
    output = succeeds(project.configure("-DARGUMENTS=INSTALL_PREFIX;theirs;ARCHS"))
    assert "QOLA_INSTALL_PREFIX: theirs (INSTALL_PREFIX of qola_bundle)" in output
    output = succeeds(project.configure("-DAITER_MHA_INSTALL_PREFIX=mine"))
    assert "QOLA_INSTALL_PREFIX: mine (AITER_MHA_INSTALL_PREFIX)" in output


def test_transformer_engines_other_options(project: Project) -> None:
    """Prevents: an option of TransformerEngine breaks the configuration, or has no effect."""
    output = succeeds(
        project.configure(
            f"-DQOLA_BUNDLE={BUNDLE}",
            "-DAITER_MHA_INSTALL_PREFIX=transformer_engine",
            "-DAOTRITON_PATH=/opt/other",
            NVTE_AOTRITON_PATH="/opt/aotriton",
            AITER_ARCHIVE_BATCH_SIZE="0",
        )
    )
    assert "--   QOLA_INSTALL_PREFIX: transformer_engine (AITER_MHA_INSTALL_PREFIX)" in output
    # Not an option of qola: TransformerEngine copies NVTE_AOTRITON_PATH to AOTRITON_PATH.
    assert "--   AOTRITON_PATH: /opt/other (AOTRITON_PATH; the project's own affair)" in output
    assert (
        "--   AITER_ARCHIVE_BATCH_SIZE: 0 (environment variable AITER_ARCHIVE_BATCH_SIZE; "
        "without effect: an archive is made in one step)"
    ) in output
    cache = (project.build / "CMakeCache.txt").read_text(encoding="utf-8")
    assert "ARCHIVE_BATCH_SIZE" not in cache, (
        "an empty entry is a value to who asks if there is one"
    )
    assert (
        "//Link qola's static library in place of the shared ones\nQOLA_STATIC_LINK:BOOL=" in cache
    )


@pytest.fixture
def program() -> str:
    """The option that selects the real qola, run by this test's Python."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    command = ["/usr/bin/env", f"PYTHONPATH={path}", sys.executable, "-m", "qola"]
    return f"-DQOLA_PROGRAM={';'.join(command)}"


def test_error_of_qola_ends_the_configuration(
    project: Project, program: str, tmp_path: Path
) -> None:
    """Prevents: the configuration continues after an error of qola build, or omits its message."""
    manifest = tmp_path / "mine.toml"
    manifest.write_text('[qola]\nnamespace = "mine"\n[build]\narchitectures = ["gfx1"]\n')
    arguments = f"-DARGUMENTS=MANIFEST;{manifest};OUTPUT_DIR;out;ARCHS;gfx950;LAZY"
    log = fails(project.configure(program, arguments))
    output = project.build / "out"
    command = f"-m qola build --manifest {manifest} --output-dir {output} --arch gfx950 --lazy"
    assert command in log
    assert '[build].architectures found "gfx1"' in log, "qola's own words are lost"
    assert (
        f"the libraries could not be built place: {manifest} found: qola build ended with 2" in log
    )
    assert not output.exists()


def test_qola_program_is_found(project: Project, tmp_path: Path) -> None:
    """Prevents: CMake does not find an installed qola, or reads variables of the caller."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    python = f"-DPython3_EXECUTABLE={sys.executable}"
    output = fails(project.configure(python, "-Dfound=/x", "-Dpython=/x", PYTHONPATH=path))
    assert f"-- qola: {sys.executable} -m qola build --manifest {HERE}/helper/qola.toml" in output
    assert "qola build ended with 2" in output
    program = tmp_path / "bin/qola"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qola "$@"\n')
    program.chmod(0o755)
    output = fails(project.configure(PYTHONPATH=path, PATH=f"{program.parent}:/usr/bin:/bin"))
    assert f"-- qola: {program} build --manifest" in output
    assert "qola build ended with 2" in output


def test_arguments_are_passed_to_qola_build(project: Project, program: str, tmp_path: Path) -> None:
    """Prevents: an argument of qola_bundle is not passed to qola build."""
    arguments = "MANIFEST;no.toml;ARCHS;gfx942;gfx950;STATIC;AITER_ROOT;aiter"
    prebuilt = ";PREBUILT;u1;u2;PUBLIC_KEY;key"
    output = fails(project.configure(program, f"-DARGUMENTS={arguments}{prebuilt}"))
    helper = f"{HERE}/helper"
    assert (
        f"build --manifest {helper}/no.toml --output-dir {project.build}/qola --arch gfx942 "
        f"--arch gfx950 --static --aiter-root {helper}/aiter --prebuilt u1 --prebuilt u2 "
        "--public-key key"
    ) in output
    # The real program accepts these options; only the manifest is missing.
    assert "unknown option" not in output
    assert "No such file" in output


def test_components_are_checked_before_the_build(project: Project, program: str) -> None:
    """Prevents: a misspelt component fails after hours of building, or the archive is not built."""
    output = fails(project.configure(program, "-DARGUMENTS=MANIFEST;no.toml;COMPONENTS;mha_fdw"))
    assert "found: mha_fdw expected: mha_fwd, mha_bwd, triton, static" in output
    assert "qola build" not in output
    output = fails(project.configure("-DARGUMENTS=MANIFEST;no.toml;COMPONENTS;mha_fwd;static"))
    assert f"--output-dir {project.build}/qola --static" in output


def test_manifest_without_attention(project: Project, tmp_path: Path) -> None:
    """Prevents: CMake reports missing targets instead of a manifest without attention libraries."""
    (tmp_path / "qola").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "qola").chmod(0o755)
    output = fails(project.configure(f"-DQOLA_PROGRAM={tmp_path}/qola"))
    assert "the manifest has no attention libraries" in output


def test_directory_inside_a_bundle(project: Project, tmp_path: Path) -> None:
    """Prevents: qola.cmake uses the surrounding bundle instead of the requested directory."""
    shutil.copytree(BUNDLE, tmp_path / "bundle")
    inner = tmp_path / "bundle/old"
    for directory in ("lib", "include"):
        shutil.copytree(
            BUNDLE / directory, inner / directory, ignore=shutil.ignore_patterns("cmake")
        )
    output = succeeds(project.configure(f"-DQOLA_BUNDLE={inner}"))
    assert f"-- prefix: {inner}\n" in output


def test_symlink_to_the_same_bundle(project: Project, tmp_path: Path) -> None:
    """Prevents: a symlink and its target count as two bundles, or the fix has no effect."""
    (tmp_path / "current").symlink_to(BUNDLE)
    both = (f"-DQOLA_BUNDLE={tmp_path}/current", f"-DAITER_MHA_PATH={BUNDLE}")
    assert f"QOLA_BUNDLE: {tmp_path}/current (QOLA_BUNDLE)" in succeeds(project.configure(*both))
    output = fails(project.configure(f"-DQOLA_BUNDLE={FORWARD}"))
    assert "fix: cmake -UAITER_MHA_PATH" in output


def test_without_manifest_bundle_or_qola(project: Project) -> None:
    """Prevents: an error does not name the variable to set or the program to install."""
    output = fails(project.configure("-DARGUMENTS=LAZY"))
    assert "no MANIFEST, and no bundle is named" in output
    output = fails(project.configure("-DARGUMENTS=MANIFESTO;x"))
    assert "an argument that qola_bundle does not have" in output
    output = fails(
        project.configure("-DARGUMENTS=MANIFEST;a.toml", "-DPython3_EXECUTABLE=/bin/false")
    )
    assert "no qola to build a bundle with" in output
    assert "pip install" in output
