"""Which AITER `qola plan`, `list` and `explain` read: the one that `qola build` would build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qola.checkout.request import AiterOptions
from qola.cli import command_line as cli
from qola.errors import AiterError
from qola.inspect import planned
from qola.plan.request import Request
from qola.plan.spec import BuildRequest
from tests.aiter.trees import FILES, PATCH
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
    """Return an environment with a cache of its own."""
    return {"QOLA_CACHE_HOME": str(tmp_path / "cache")}


def manifest_of(folder: Path, commit: str, more: str = "") -> Path:
    """Write TransformerEngine's manifest, as far as it counts here; return its file."""
    text = MANIFEST.format(commit=commit).replace("[build]", f"{more}[build]")
    return write(folder, {"qola_manifest.toml": text}) / "qola_manifest.toml"


def requested(file: Path, options: AiterOptions, environ: dict[str, str]) -> Request:
    """Return the request of a plan."""
    return planned.plan_request(BuildRequest(file, aiter=options), "qola_manifest.toml", environ)


def test_the_manifests_commit_is_fetched_once(
    remote: tuple[str, str], environ: dict[str, str], tmp_path: Path
) -> None:
    """Prevents: TransformerEngine's manifest planned with another AITER, or not at all."""
    url, commit = remote
    file = manifest_of(tmp_path, commit)
    found = requested(file, AiterOptions(remote=url), environ)
    assert (found.aiter_id, found.spec.override_aiter_commit) == (commit, False)
    assert found.tree.root.parent == tmp_path / "cache/trees"
    # Without the remote: it is kept.
    Path(url).rename(tmp_path / "gone")
    assert requested(file, AiterOptions(remote=url), environ).tree.root == found.tree.root


def test_a_commit_of_the_command_line_wins(
    remote: tuple[str, str], environ: dict[str, str], tmp_path: Path
) -> None:
    """Prevents: `plan --aiter-commit` that plans another AITER than `build --aiter-commit`."""
    url, commit = remote
    file = manifest_of(tmp_path, "0" * 40)
    found = requested(file, AiterOptions(commit="v1", remote=url), environ)
    assert (found.aiter_id, found.spec.override_aiter_commit) == (commit, True)


def test_patches_are_applied_to_a_copy(
    remote: tuple[str, str], environ: dict[str, str], tmp_path: Path
) -> None:
    """Prevents: ROCm/QoLA's patches_dir planned without its patches, or a tree of a user changed.

    `qola build` applies them; a plan that does not is of other kernels.
    """
    url, commit = remote
    write(tmp_path / "patches", {"0001.patch": PATCH})
    file = manifest_of(tmp_path, commit, 'patches_dir = "patches"\n')
    own = write(tmp_path / "own", FILES)
    for options in (AiterOptions(remote=url), AiterOptions(root=own)):
        found = requested(file, options, environ)
        assert (found.tree.root / "csrc/include/mha_fwd.h").read_text() == "// two\n"
        assert [pin.name for pin in found.aiter_patches] == ["0001.patch"]
    assert (own / "csrc/include/mha_fwd.h").read_text() == "// one\n"
    (own / "csrc/include/mha_bwd.h").write_text("// new\n")
    found = requested(file, AiterOptions(root=own), environ)
    assert (found.tree.root / "csrc/include/mha_bwd.h").is_file(), "the copy is out of date"


def test_a_commit_that_cannot_be_fetched(
    environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a fix that nobody can execute, as the first words that users of ROCm/QoLA read."""
    manifest_of(tmp_path, "d32b0cb62ecc32bb1a858e8437d58eb9b3856af6")
    words = ["plan", "qola_manifest.toml", "-q", "--json", "--aiter-remote", str(tmp_path / "no")]
    assert cli.main(words, environ, directory=tmp_path) == AiterError.exit_code
    findings = json.loads(capsys.readouterr().out)["error"]["findings"]
    fixes = [finding["fix"] for finding in findings]
    assert fixes == [
        f"git ls-remote {tmp_path / 'no'}",
        "qola plan qola_manifest.toml --override-aiter-commit",
    ]


def test_the_pinned_aiter_in_place_of_the_manifests(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: that fix, which fetches the commit that cannot be fetched once more."""
    own = write(tmp_path / "own", FILES)
    monkeypatch.setattr("qola.checkout.default_tree.runfile_tree", lambda _: own)
    file = manifest_of(tmp_path, "d32b0cb62ecc32bb1a858e8437d58eb9b3856af6")
    found = requested(file, AiterOptions(override=True), environ)
    assert (found.tree.root, found.spec.override_aiter_commit) == (own, True)


OF_THE_WHEEL = """\
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
    """Prevents: three findings with three exit codes for a clone without --recurse-submodules."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for entry in (aiter_tree / "aiter", *(aiter_tree / "aiter_meta").iterdir()):
        if entry.name != "3rdparty":
            (tree / entry.name).symlink_to(entry)
    write(tmp_path, {"te.toml": OF_THE_WHEEL.format(hdim=128)})
    words = [command, "te.toml", "-q", "--aiter-root", str(tree)]
    assert cli.main(words, environ, directory=tmp_path) == AiterError.exit_code
    error = capsys.readouterr().err
    assert error.count("error: ") == 1
    assert "no Composable Kernel, which libmha_fwd needs" in error
    assert "\n  fix       git clone --recurse-submodules https://" in error


def test_which_kernels_serve_a_head_dimension_between(
    aiter_tree: Path, environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: kernels for a third more work than was asked for, without a word."""
    found = []
    for hdim in (130, 128):
        write(tmp_path, {"te.toml": OF_THE_WHEEL.format(hdim=hdim)})
        words = ["plan", "te.toml", "-q", "--json", "--aiter-root", str(aiter_tree)]
        assert cli.main(words, environ, directory=tmp_path) == 0
        found.append([w["found"] for w in json.loads(capsys.readouterr().out)["warnings"]])
    (between, exact) = found
    assert "hdim 130x130, which kernels for 192x192 serve, padded (bf16)" in between
    assert not [text for text in exact if text.startswith("hdim ")]
