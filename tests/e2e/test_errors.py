"""What a user reads when something is wrong, from a real Bazel: each message names the remedy."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.nested_bazel import LEFT, PIN, QOLA, Bazel, library, module_file


@pytest.fixture(scope="module")
def workspace() -> Iterator[Bazel]:
    """A consumer whose MODULE.bazel each test writes anew; one output base for all."""
    with library() as instance:
        yield instance


def declare(workspace: Bazel, tags: str = "", manifest: str = LEFT, aiter: str = "aiter") -> None:
    """Write MODULE.bazel with the given tags and one manifest called `it`."""
    workspace.write("MODULE.bazel", module_file(QOLA, tags, name="wrong", aiter=aiter))
    workspace.write("it.toml", manifest)


def declare_other(workspace: Bazel, source: str) -> None:
    """Declare a source called `other` for it: the one that is fetched stays as it is."""
    declare(workspace, source.replace("(", '(name = "other", ', 1), aiter="other")


def failure(workspace: Bazel, *args: str) -> str:
    """Standard error of a build that has to fail."""
    result = workspace.run("build", *args, "//:it", check=False)
    assert result.returncode != 0, "the build should have failed"
    return result.stderr


@pytest.mark.thorough
def test_tampered_wheel(workspace: Bazel) -> None:
    """Prevents: kernels from an archive that is not the pinned one."""
    declare_other(
        workspace, f'qola.aiter_wheel(version = "{PIN["version"]}", sha256 = "{"0" * 64}")'
    )
    text = failure(workspace, "--nobuild")
    assert "amd_aiter" in text
    assert PIN["sha256"] in text
    assert "0" * 64 in text
    assert 'MODULE.bazel of wrong: qola.aiter_wheel(name = "other")' in text


@pytest.mark.thorough
def test_unknown_version(workspace: Bazel) -> None:
    """Prevents: a stack trace where pip knows no such version."""
    declare_other(workspace, f'qola.aiter_wheel(version = "0.0.0.dev0", sha256 = "{"0" * 64}")')
    text = failure(workspace, "--nobuild")
    assert "amd-aiter==0.0.0.dev0" in text
    assert "pip config debug" in text


def test_manifest_errors_come_together(workspace: Bazel) -> None:
    """Prevents: one error per attempt, or errors that surface only after compiling."""
    wrong = LEFT.replace("receipt", "reciept").replace('"gfx950"', '"gfx95"')
    declare(workspace, manifest=wrong)
    text = failure(workspace)
    assert "it.toml:6 [build].architectures" in text
    assert "gfx950" in text
    assert text.count('unknown key "reciept"') == 1, "told twice"
    assert "\\n" not in text, "escaped characters"
    assert "receipt" in text


@pytest.mark.thorough
def test_manifest_names_another_aiter(workspace: Bazel) -> None:
    """Prevents: a manifest silently planned against another AITER than it was written for."""
    other = LEFT.replace('namespace = "left"', 'namespace = "left"\naiter_commit = "d32b0cb62"')
    declare(workspace, manifest=other)
    text = failure(workspace, "--nobuild")
    assert "d32b0cb62" in text
    assert PIN["version"] in text


def test_unknown_aiter_source(workspace: Bazel) -> None:
    """Prevents: "no such repository" without a word on which there are."""
    declare(workspace, aiter="aitre")
    text = failure(workspace, "--nobuild")
    assert 'aiter = "aitre"' in text
    assert "one of aiter" in text


@pytest.mark.thorough
def test_archs_that_a_build_is_restricted_to(workspace: Bazel) -> None:
    """Prevents: a misspelt arch, or one the manifest does not have, that builds nothing quietly."""
    declare(workspace)
    text = failure(workspace, "--nobuild", "--@qola//:archs=gfx95")
    assert "qola: unknown arch" in text
    assert "archs of a manifest" in text
    text = failure(workspace, "--nobuild", "--@qola//:archs=gfx942")
    assert "--@qola//:archs names none of the manifest's archs: gfx950" in text


def test_one_name_twice(workspace: Bazel) -> None:
    """Prevents: the second of two sources silently taking the place of the first."""
    pin = f'version = "{PIN["version"]}", sha256 = "{PIN["sha256"]}"'
    declare(workspace, f'qola.aiter_wheel({pin})\nqola.aiter_local(path = "somewhere")')
    text = failure(workspace, "--nobuild")
    assert "a name is declared twice" in text
    assert 'qola.aiter_local(name = "aiter")' in text


@pytest.mark.thorough
def test_local_tree_missing(workspace: Bazel) -> None:
    """Prevents: a path typed wrong that shows as a missing header."""
    declare_other(workspace, 'qola.aiter_local(path = "no/such/tree")')
    assert "no/such/tree: no such directory" in failure(workspace, "--nobuild")


def test_local_tree_is_no_aiter(workspace: Bazel) -> None:
    """Prevents: a traceback when the directory is something else."""
    (workspace.workspace / "empty").mkdir()
    declare_other(workspace, 'qola.aiter_local(path = "empty")')
    text = failure(workspace, "--nobuild")
    assert "no aiter/jit/optCompilerConfig.json" in text
    assert "Traceback (most recent call last):\n  File" not in text


@pytest.mark.thorough
def test_commit_has_to_be_pinned_in_full(workspace: Bazel) -> None:
    """Prevents: a branch name that means another tree tomorrow."""
    declare(workspace, 'qola.aiter_git(remote = "somewhere", commit = "main")')
    text = failure(workspace, "--nobuild")
    assert 'commit = "main"' in text
    assert "40 hexadecimal digits" in text


@pytest.mark.thorough
def test_git_source_is_fetched(workspace: Bazel, tmp_path: Path) -> None:
    """Prevents: a git source that never arrives: this one does, and is no AITER tree."""
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.invalid"]
    (tmp_path / "file").write_text("not AITER\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-qm", "a commit"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.strip()
    declare_other(workspace, f'qola.aiter_git(remote = "{tmp_path}", commit = "{head}")')
    assert "no aiter/jit/optCompilerConfig.json" in failure(workspace, "--nobuild")
    declare_other(workspace, f'qola.aiter_git(remote = "{tmp_path}", commit = "{"0" * 40}")')
    assert f"expected  commit {'0' * 40} of {tmp_path}" in failure(workspace, "--nobuild")


def test_rocm_at_a_named_path(workspace: Bazel) -> None:
    """Prevents: another ROCm taken in place of the one that was named."""
    declare(workspace, 'qola.rocm(path = "/no/rocm/here")')
    text = failure(workspace, "--nobuild")
    assert "no runnable /no/rocm/here/bin/hipcc" in text


@pytest.mark.thorough
def test_no_rocm(workspace: Bazel) -> None:
    """Prevents: analysis that needs ROCm; a compile that fails without saying what is missing."""
    declare(workspace)
    absent = "--repo_env=QOLA_ROCM=/no/rocm/here"
    workspace.run("build", absent, "--nobuild", "//:it")
    text = failure(workspace, absent)
    assert "no ROCm compiler on this machine" in text
    assert "--repo_env=QOLA_ROCM=pinned" in text
    assert "pinned (the ROCm that qola fetches)" in failure(
        workspace, "--nobuild", "--repo_env=QOLA_ROCM=newest"
    )
