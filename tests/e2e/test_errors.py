"""Error messages of a real Bazel: each message names the remedy."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.nested_bazel import BUILD_FILE, LEFT, PIN, Bazel, library

PINNED = f'version = "{PIN["version"]}", sha256 = "{PIN["sha256"]}"'
OTHER_WHEEL = f'qola.aiter_wheel(name = "other", version = "{{}}", sha256 = "{"0" * 64}")'
OTHER_AITER = LEFT.replace('namespace = "left"', 'namespace = "left"\naiter_commit = "d32b0cb62"')


@pytest.fixture(scope="module")
def workspace() -> Iterator[Bazel]:
    """A consumer whose MODULE.bazel each test writes again, with one output base for all tests."""
    with library() as instance:
        yield instance


def declare_other(workspace: Bazel, source: str) -> None:
    """Declare a source called `other` for the manifest; `aiter` stays fetched."""
    workspace.declare(source.replace("(", '(name = "other", ', 1), aiter="other")


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
    workspace.declare(**declared)
    text = workspace.failure("--nobuild", "//:it")
    for message in messages:
        assert message in text


def test_manifest_errors_come_together(workspace: Bazel) -> None:
    """Prevents: qola reports one error per attempt, or only after compiling."""
    wrong = LEFT.replace("receipt", "reciept").replace('"gfx950"', '"gfx95"')
    workspace.declare(manifest=wrong)
    text = workspace.failure("//:it")
    assert "it.toml:6 [build].architectures" in text
    assert "gfx950" in text
    assert text.count('unknown key "reciept"') == 1, "reported twice"
    assert "\\n" not in text, "escaped characters"
    assert "receipt" in text


@pytest.mark.thorough
def test_invalid_archs_option(workspace: Bazel) -> None:
    """Prevents: a misspelt arch, or an arch missing in the manifest, silently builds nothing."""
    workspace.declare()
    text = workspace.failure("--nobuild", "--@qola//:archs=gfx95", "//:it")
    assert "qola: unknown arch" in text
    assert "archs by their LLVM name" in text
    text = workspace.failure("--nobuild", "--@qola//:archs=gfx942", "//:it")
    assert "--@qola//:archs names none of the manifest's archs: gfx950" in text


def test_local_tree_without_aiter(workspace: Bazel) -> None:
    """Prevents: a traceback if the directory is not an AITER tree."""
    (workspace.workspace / "empty").mkdir()
    declare_other(workspace, 'qola.aiter_local(path = "empty")')
    text = workspace.failure("--nobuild", "//:it")
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
    assert "no aiter/jit/optCompilerConfig.json" in workspace.failure("--nobuild", "//:it")
    declare_other(workspace, f'qola.aiter_git(remote = "{tmp_path}", commit = "{"0" * 40}")')
    assert f"expected  commit {'0' * 40} of {tmp_path}" in workspace.failure("--nobuild", "//:it")


HIP = """
bazel_dep(name = "rules_hip", version = "0.1.0")
hip = use_extension("@rules_hip//hip:extensions.bzl", "hip")
"""


@pytest.mark.thorough
def test_no_rocm(workspace: Bazel, tmp_path: Path) -> None:
    """Prevents: the analysis needs ROCm, or a compile error does not name the missing ROCm."""
    absent = "--repo_env=QOLA_ROCM=/no/rocm/here"
    toolkit = f'{HIP}\nhip.toolkit(path = "/no/rocm/here")'
    for option, tag in ((absent, ""), ("--", toolkit)):
        workspace.declare(tag)
        workspace.run("build", "--nobuild", option, "//:it")
        text = workspace.failure(option, "//:it")
        assert "no ROCm compiler on this machine" in text
        assert "/no/rocm/here/bin/hipcc: no such file" in text
        assert "--repo_env=QOLA_ROCM=pinned" in text
    workspace.declare()
    assert "pinned (the ROCm that qola fetches)" in workspace.failure(
        "--nobuild", "--repo_env=QOLA_ROCM=newest", "//:it"
    )
    # A hipcc that does not work is not missing.
    hipcc = tmp_path / "bin/hipcc"
    hipcc.parent.mkdir()
    hipcc.write_text("#!/bin/sh\necho 'libnuma.so.1: cannot open' >&2\nexit 127\n", "utf-8")
    hipcc.chmod(0o755)
    text = workspace.failure(f"--repo_env=QOLA_ROCM={tmp_path}", "//:it")
    assert f"{hipcc} --version: exit code 127" in text
    assert "libnuma.so.1: cannot open" in text


#: A module with a manifest, for which everybody can import the repository of that name.
DEPENDENCY = """
module(name = "dep")
bazel_dep(name = "qola", version = "0.1.0")
qola = use_extension("@qola//rules:extensions.bzl", "qola")
qola.manifest(name = "it", file = "//:it.toml")
use_repo(qola, qola_it = "qola_dep.it")
"""


@pytest.mark.thorough
def test_a_wrong_tag_fails_only_its_targets(workspace: Bazel) -> None:
    """Prevents: a C++ program does not build because of a tag, of the root module or of another."""
    workspace.write("hello/BUILD.bazel", 'cc_library(name = "hello", srcs = ["hello.c"])\n')
    workspace.write("hello/hello.c", "int hello(void) { return 0; }\n")
    for tag, message in (
        ('qola.manifest(name = "it", file = "//:it.toml")', "a name is declared twice"),
        ('qola.prebuilt(name = "Wrong", manifest = "it")', 'name = "Wrong"'),
    ):
        workspace.declare(tag)
        workspace.run("build", "//hello")
        assert message in workspace.failure("--nobuild", "//:it")
    # A dependency has a manifest of the same name, too.
    workspace.write("dep/MODULE.bazel", DEPENDENCY)
    workspace.write("dep/BUILD.bazel", BUILD_FILE)
    workspace.write("dep/it.toml", LEFT.replace('namespace = "left"', 'namespace = "dep"'))
    workspace.declare(
        'bazel_dep(name = "dep")\nlocal_path_override(module_name = "dep", path = "dep")',
    )
    workspace.write(".bazelignore", "dep\n")
    built = workspace.run("cquery", "--output=files", "//:it + @dep//:it").stdout
    assert "/left_libmha_fwd.so" in built
    assert "/dep_libmha_fwd.so" in built
