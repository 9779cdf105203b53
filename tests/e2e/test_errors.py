"""Error messages of a real Bazel: each message names the remedy."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.nested_bazel import LEFT, PIN, QOLA, Bazel, library, module_file

PINNED = f'version = "{PIN["version"]}", sha256 = "{PIN["sha256"]}"'
OTHER_WHEEL = f'qola.aiter_wheel(name = "other", version = "{{}}", sha256 = "{"0" * 64}")'
OTHER_AITER = LEFT.replace('namespace = "left"', 'namespace = "left"\naiter_commit = "d32b0cb62"')


@pytest.fixture(scope="module")
def workspace() -> Iterator[Bazel]:
    """A consumer whose MODULE.bazel each test writes again, with one output base for all tests."""
    with library() as instance:
        yield instance


def declare(workspace: Bazel, tags: str = "", manifest: str = LEFT, aiter: str = "aiter") -> None:
    """Write MODULE.bazel with the given tags and one manifest called `it`."""
    workspace.write("MODULE.bazel", module_file(QOLA, tags, name="wrong", aiter=aiter))
    workspace.write("it.toml", manifest)


def declare_other(workspace: Bazel, source: str) -> None:
    """Declare a source called `other` for the manifest; `aiter` stays fetched."""
    declare(workspace, source.replace("(", '(name = "other", ', 1), aiter="other")


def failure(workspace: Bazel, *args: str) -> str:
    """Return standard error of a build that must fail."""
    result = workspace.run("build", *args, "//:it", check=False)
    assert result.returncode != 0, "the build should have failed"
    return result.stderr


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("declared", "messages"),
    [
        # An unknown source: "no such repository" would not list the declared sources.
        ({"aiter": "aitre"}, ['aiter = "aitre"', "one of aiter"]),
        # The second source would replace the first.
        (
            {"tags": f'qola.aiter_wheel({PINNED})\nqola.aiter_local(path = "somewhere")'},
            ["a name is declared twice", 'qola.aiter_local(name = "aiter")'],
        ),
        # Bazel would use another ROCm.
        ({"tags": 'qola.rocm(path = "/no/rocm/here")'}, ["no runnable /no/rocm/here/bin/hipcc"]),
        # A branch may change.
        (
            {"tags": 'qola.aiter_git(remote = "somewhere", commit = "main")'},
            ['commit = "main"', "40 hexadecimal digits"],
        ),
        # The manifest was written for another AITER.
        ({"manifest": OTHER_AITER}, ["d32b0cb62", PIN["version"]]),
        (
            {"tags": 'qola.aiter_local(name = "other", path = "no/such/tree")', "aiter": "other"},
            ["no/such/tree: no such directory"],
        ),
        # An archive with another digest, and a version that pip cannot find.
        (
            {"tags": OTHER_WHEEL.format(PIN["version"]), "aiter": "other"},
            ["amd_aiter", PIN["sha256"], "0" * 64, 'qola.aiter_wheel(name = "other")'],
        ),
        (
            {"tags": OTHER_WHEEL.format("0.0.0.dev0"), "aiter": "other"},
            ["amd-aiter==0.0.0.dev0", "pip config debug"],
        ),
    ],
)
def test_wrong_declarations(
    workspace: Bazel, declared: dict[str, str], messages: list[str]
) -> None:
    """Prevents: qola accepts a wrong tag or manifest, or an error does not name the remedy."""
    declare(workspace, **declared)
    text = failure(workspace, "--nobuild")
    for message in messages:
        assert message in text


def test_manifest_errors_come_together(workspace: Bazel) -> None:
    """Prevents: qola reports one error per attempt, or only after compiling."""
    wrong = LEFT.replace("receipt", "reciept").replace('"gfx950"', '"gfx95"')
    declare(workspace, manifest=wrong)
    text = failure(workspace)
    assert "it.toml:6 [build].architectures" in text
    assert "gfx950" in text
    assert text.count('unknown key "reciept"') == 1, "reported twice"
    assert "\\n" not in text, "escaped characters"
    assert "receipt" in text


@pytest.mark.thorough
def test_invalid_archs_option(workspace: Bazel) -> None:
    """Prevents: a misspelt arch, or an arch missing in the manifest, silently builds nothing."""
    declare(workspace)
    text = failure(workspace, "--nobuild", "--@qola//:archs=gfx95")
    assert "qola: unknown arch" in text
    assert "archs of a manifest" in text
    text = failure(workspace, "--nobuild", "--@qola//:archs=gfx942")
    assert "--@qola//:archs names none of the manifest's archs: gfx950" in text


def test_local_tree_without_aiter(workspace: Bazel) -> None:
    """Prevents: a traceback if the directory is not an AITER tree."""
    (workspace.workspace / "empty").mkdir()
    declare_other(workspace, 'qola.aiter_local(path = "empty")')
    text = failure(workspace, "--nobuild")
    assert "no aiter/jit/optCompilerConfig.json" in text
    assert "Traceback (most recent call last):\n  File" not in text


@pytest.mark.thorough
def test_git_source_is_fetched(workspace: Bazel, tmp_path: Path) -> None:
    """Prevents: qola does not fetch a git source (this source is fetched, but has no AITER)."""
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


@pytest.mark.thorough
def test_no_rocm(workspace: Bazel) -> None:
    """Prevents: the analysis needs ROCm, or a compile error does not name the missing ROCm."""
    declare(workspace)
    absent = "--repo_env=QOLA_ROCM=/no/rocm/here"
    workspace.run("build", absent, "--nobuild", "//:it")
    text = failure(workspace, absent)
    assert "no ROCm compiler on this machine" in text
    assert "--repo_env=QOLA_ROCM=pinned" in text
    assert "pinned (the ROCm that qola fetches)" in failure(
        workspace, "--nobuild", "--repo_env=QOLA_ROCM=newest"
    )
