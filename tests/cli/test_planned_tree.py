"""The AITER tree of `qola plan`, `list` and `explain`: the tree that `qola build` uses."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qola.checkout.request import AiterOptions
from qola.cli import command_line as cli
from qola.plan import checks
from qola.plan.request import Request
from qola.plan.spec import BuildRequest
from qola.query import planned
from qola_base.errors import AiterError, Finding
from tests.aiter.trees import FILES, PATCH
from tests.setup.cache_rule import give_away
from tests.support.folders import git, write

MANIFEST = """\
[qola]
aiter_commit = "{commit}"
namespace = "te"
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
"""


@pytest.fixture
def remote(tmp_path: Path) -> tuple[str, str]:
    """Return a repository with a small AITER tree, and its commit."""
    root = write(tmp_path / "remote", FILES)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["tag", "v1"]):
        git(root, *command)
    return str(root), git(root, "rev-parse", "HEAD")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a separate cache."""
    return {"QOLA_CACHE_HOME": str(tmp_path / "cache")}


def write_manifest(folder: Path, commit: str, more: str = "") -> Path:
    """Write the parts of TransformerEngine's manifest that matter here; return the file."""
    text = MANIFEST.format(commit=commit).replace("[build]", f"{more}[build]")
    return write(folder, {"qola_manifest.toml": text}) / "qola_manifest.toml"


def make_request(file: Path, options: AiterOptions, environ: dict[str, str]) -> Request:
    """Return the request of a plan."""
    return planned.plan_request(BuildRequest(file, aiter=options), "qola_manifest.toml", environ)


def test_the_manifests_commit_is_fetched_once(
    remote: tuple[str, str], environ: dict[str, str], tmp_path: Path
) -> None:
    """Prevents: TransformerEngine's manifest is planned with another AITER, or fails."""
    url, commit = remote
    file = write_manifest(tmp_path, commit)
    request = make_request(file, AiterOptions(remote=url), environ)
    assert (request.aiter_id, request.spec.override_aiter_commit) == (commit, False)
    assert request.tree.root.parent == tmp_path / "cache/trees"
    # The second request works without the remote.
    Path(url).rename(tmp_path / "gone")
    assert make_request(file, AiterOptions(remote=url), environ).tree.root == request.tree.root


def test_a_commit_of_the_command_line_wins(
    remote: tuple[str, str], environ: dict[str, str], tmp_path: Path
) -> None:
    """Prevents: `plan --aiter-commit` plans another AITER than `build --aiter-commit`."""
    url, commit = remote
    file = write_manifest(tmp_path, "0" * 40)
    request = make_request(file, AiterOptions(commit="v1", remote=url), environ)
    assert (request.aiter_id, request.spec.override_aiter_commit) == (commit, True)


def test_patches_are_applied_to_a_copy(
    remote: tuple[str, str], environ: dict[str, str], tmp_path: Path
) -> None:
    """Prevents: a plan ignores ROCm/QoLA's patches_dir, or qola patches a user's tree.

    `qola build` applies the patches, so a plan without patches would have other kernels.
    """
    url, commit = remote
    write(tmp_path / "patches", {"0001.patch": PATCH})
    file = write_manifest(tmp_path, commit, 'patches_dir = "patches"\n')
    user_tree = write(tmp_path / "own", FILES)
    for options in (AiterOptions(remote=url), AiterOptions(root=user_tree)):
        request = make_request(file, options, environ)
        assert (request.tree.root / "csrc/include/mha_fwd.h").read_text() == "// two\n"
        assert [pin.name for pin in request.aiter_patches] == ["0001.patch"]
    again = make_request(file, AiterOptions(root=user_tree), environ)
    assert again.tree.root == request.tree.root, "the second plan makes its own copy, or fails"
    assert (user_tree / "csrc/include/mha_fwd.h").read_text() == "// one\n"
    (user_tree / "csrc/include/mha_bwd.h").write_text("// new\n")
    request = make_request(file, AiterOptions(root=user_tree), environ)
    assert (request.tree.root / "csrc/include/mha_bwd.h").is_file(), "the copy is out of date"


def test_a_commit_that_cannot_be_fetched(
    environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: the first error for users of ROCm/QoLA suggests a command that cannot work."""
    write_manifest(tmp_path, "d32b0cb62ecc32bb1a858e8437d58eb9b3856af6")
    arguments = [
        "plan",
        "qola_manifest.toml",
        "-q",
        "--json",
        "--aiter-remote",
        str(tmp_path / "no"),
    ]
    assert cli.main(arguments, environ, directory=tmp_path) == AiterError.exit_code
    findings = json.loads(capsys.readouterr().out)["error"]["findings"]
    fixes = [finding["fix"] for finding in findings]
    assert fixes == [
        f"git ls-remote {tmp_path / 'no'}",
        "qola plan qola_manifest.toml --override-aiter-commit",
    ]


def test_override_aiter_commit_uses_the_pinned_aiter(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: --override-aiter-commit tries again to fetch the manifest's commit."""
    pinned = write(tmp_path / "own", FILES)
    monkeypatch.setattr("qola.checkout.default_tree.runfile_tree", lambda _: pinned)
    file = write_manifest(tmp_path, "d32b0cb62ecc32bb1a858e8437d58eb9b3856af6")
    request = make_request(file, AiterOptions(override=True), environ)
    assert (request.tree.root, request.spec.override_aiter_commit) == (pinned, True)


def edit_checkout(checkout: Path) -> Path:
    """Make another commit, on top of the one that has the tag v1."""
    write(checkout, {"csrc/include/mha_fwd.h": "// later\n"})
    git(checkout, "commit", "-qam", "two")
    return checkout


def link_worktree(checkout: Path) -> Path:
    """Return a second worktree, whose .git is a file."""
    git(checkout, "worktree", "add", "-q", str(checkout.parent / "second"))
    return checkout.parent / "second"


def give_all_away(checkout: Path) -> Path:
    """Give a checkout to another user, like a directory that a container mounts."""
    for path in (checkout, checkout / ".git", checkout / ".git/HEAD"):
        give_away(path)
    return checkout


@pytest.mark.parametrize("prepare", [Path, link_worktree, give_all_away])
@pytest.mark.parametrize("patched", [False, True])
def test_head_of_a_checkout_is_compared(
    prepare: Callable[[Path], Path],
    patched: bool,
    remote: tuple[str, str],
    environ: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prevents: a checkout of another commit than aiter_commit is planned with a warning."""
    for scope in ("GLOBAL", "SYSTEM"):
        monkeypatch.setenv(f"GIT_CONFIG_{scope}", os.devnull)
    options = AiterOptions(root=prepare(Path(remote[0])))
    write(tmp_path / "patches", {"0001.patch": PATCH})

    def check(commit: str, *, override: bool = False) -> list[Finding]:
        file = write_manifest(tmp_path, commit, 'patches_dir = "patches"\n' if patched else "")
        request = make_request(file, replace(options, override=override), environ)
        return list(checks._check_aiter(request))

    commit = remote[1]
    for name in (commit, commit[:9], "v1", "1", f"0.1.10.dev3+g{commit[:9]}"):
        assert check(name) == []
    for name in ("0" * 40, "v2", "0.1.10", f"0.1.10.dev3+g{'0' * 9}"):
        (finding,) = check(name)
        assert (finding.severity, finding.place[-14:]) == ("error", "].aiter_commit")
        assert f'"{name}", while the AITER source is {commit}' in finding.found
        (finding,) = check(name, override=True)
        assert finding.severity == "warning"


def test_a_later_commit_is_not_the_tag(
    remote: tuple[str, str], environ: dict[str, str], tmp_path: Path
) -> None:
    """Prevents: the version that an earlier commit wrote into a checkout counts as its commit."""
    root = edit_checkout(write(Path(remote[0]), {"aiter/_version.py": '__version__ = "1"\n'}))
    for name in ("v1", "1", remote[1]):
        request = make_request(write_manifest(tmp_path, name), AiterOptions(root=root), environ)
        (finding,) = checks._check_aiter(request)
        assert finding.severity == "error"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("gitdir: /no/such/worktree", "not a git repository: '?/no/such/worktree"),
        ("text", "invalid gitfile format"),
        (None, "not a git repository: '?.git"),
    ],
)
def test_head_that_git_cannot_read(
    content: str | None, reason: str, environ: dict[str, str], tmp_path: Path
) -> None:
    """Prevents: a check that cannot be made passes, without git's reason.

    An enclosing repository has an unrelated commit.
    """
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-qm", "one", "--allow-empty")
    root = write(tmp_path / "own", FILES)
    write(root, {".git": content}) if content else (root / ".git").mkdir()
    file = write_manifest(tmp_path, git(tmp_path, "rev-parse", "HEAD"))
    (finding,) = checks._check_aiter(make_request(file, AiterOptions(root=root), environ))
    assert finding.severity == "error"
    assert re.search(reason, finding.found)
    assert "--override-aiter-commit" in finding.fix
    request = make_request(file, AiterOptions(root=root, override=True), environ)
    (finding,) = checks._check_aiter(request)
    assert finding.severity == "warning"


MANIFEST_FOR_THE_WHEEL = """\
[qola]
namespace = "te"
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
receipt = 700
[[mha_fwd_variants]]
dtype = "bf16"
hdim = {hdim}
mode = "batch"
"""


@pytest.mark.parametrize("command", ["plan", "list", "explain"])
def test_a_missing_submodule_is_one_finding(
    command: str,
    aiter_tree: Path,
    environ: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Prevents: a clone without submodules causes three findings with three exit codes."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for entry in (aiter_tree / "aiter", *(aiter_tree / "aiter_meta").iterdir()):
        if entry.name != "3rdparty":
            (tree / entry.name).symlink_to(entry)
    write(tmp_path, {"te.toml": MANIFEST_FOR_THE_WHEEL.format(hdim=128)})
    arguments = [command, "te.toml", "-q", "--aiter-root", str(tree)]
    assert cli.main(arguments, environ, directory=tmp_path) == AiterError.exit_code
    error = capsys.readouterr().err
    assert error.count("error: ") == 1
    assert "no Composable Kernel, which libmha_fwd needs" in error
    assert "\n  fix       git clone --recurse-submodules https://" in error


def test_a_padded_head_dimension_is_a_warning(
    aiter_tree: Path, environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: no warning if padding adds a third to the work of a kernel."""
    warnings = []
    for hdim in (130, 128):
        write(tmp_path, {"te.toml": MANIFEST_FOR_THE_WHEEL.format(hdim=hdim)})
        arguments = ["plan", "te.toml", "-q", "--json", "--aiter-root", str(aiter_tree)]
        assert cli.main(arguments, environ, directory=tmp_path) == 0
        warnings.append([w["found"] for w in json.loads(capsys.readouterr().out)["warnings"]])
    (between, exact) = warnings
    assert "hdim 130x130, which kernels for 192x192 serve, padded (bf16)" in between
    assert not [text for text in exact if text.startswith("hdim ")]
