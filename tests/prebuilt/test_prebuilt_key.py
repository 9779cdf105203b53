"""The key of a prebuilt bundle: changes if, and only if, an input of the bundle changes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from qola.build.setup import ResolvedBuild
from qola.checkout.source import AiterSource, GitSource, LocalSource, WheelSource
from qola.manifest.load import loads
from qola.plan.spec import BuildSpec, Forms
from qola.prebuilt.key import (
    Key,
    differences,
    make_key,
    rocm_identity,
    ruleset_digest,
    ruleset_files,
    settings_of,
    source_identity,
)
from qola.triton import own
from qola_base.errors import NoPrebuiltError, ToolchainError
from qola_base.files import sha256_of_json
from tests.support.folders import write

TEXT = """\
[qola]
namespace = "left"
[build]
architectures = ["gfx950"]
[[modules]]
name = "libmha_fwd"
"""
GOLDEN = Path(__file__).resolve().parents[1] / "golden/prebuilt_key.json"
PATCHES = [{"name": f"{n}.patch", "sha256": n * 64} for n in "ab"]
AITER: dict[str, Any] = {"kind": "git", "commit": "1" * 40, "patches": PATCHES}
ROCM = {"origin": "pinned", "rocm_version": "7.2.4", "identity": "b" * 64}


def parse_manifest(text: str = TEXT) -> dict[str, Any]:
    """Return the content of a manifest as it enters the key."""
    return loads(text, file="left.toml").to_json()


KEY = Key(
    name="left",
    ruleset="c" * 64,
    manifest=parse_manifest(),
    modes={"libmha_fwd": "cpp_itfs"},
    archs=("gfx950",),
    aiter=AITER,
    rocm=ROCM,
    forms={"lazy": False},
    version="0.1.0",
)


@pytest.mark.parametrize(
    ("replaced", "path"),
    [
        ({"name": "other"}, "manifest.name"),
        ({"version": "0.2.0"}, "qola.version"),
        ({"ruleset": "d" * 64}, "qola.ruleset"),
        ({"manifest": parse_manifest(TEXT.replace("left", "right"))}, "manifest.content.namespace"),
        ({"manifest": parse_manifest(TEXT + "receipt = 700\n")}, "manifest.content.modules"),
        ({"modes": {}}, "modules"),
        ({"archs": ("gfx942", "gfx950")}, "archs"),
        ({"modes": {"libmha_fwd": "pybind"}}, "modules"),
        ({"aiter": {**AITER, "commit": "2" * 40}}, "aiter.commit"),
        ({"aiter": {**AITER, "patches": []}}, "aiter.patches"),
        ({"aiter": {**AITER, "patches": PATCHES[::-1]}}, "aiter.patches"),
        ({"aiter": {**AITER, "patches": [{**p, "name": "c"} for p in PATCHES]}}, "aiter.patches"),
        ({"aiter": {**AITER, "patches": [{**p, "sha256": "c"} for p in PATCHES]}}, "aiter.patches"),
        ({"rocm": {**ROCM, "identity": "f" * 64}}, "rocm.identity"),
        ({"rocm": {**ROCM, "rocm_version": "7.3.0"}}, "rocm.rocm_version"),
        ({"forms": {"lazy": True}}, "forms.lazy"),
        ({"settings": ("--@qola//:compress",)}, "settings"),
        ({"triton": {"k.py": "1" * 64}}, "triton"),
        ({"triton": {}}, "triton"),
    ],
)
def test_each_input_changes_the_key(replaced: dict[str, Any], path: str) -> None:
    """Prevents: bundles with different kernels or headers share a key."""
    key, changed_key = KEY, replace(KEY, **replaced)
    assert key.digest != changed_key.digest
    assert key.text != changed_key.text
    assert path in differences(key.inputs, changed_key.inputs)


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\n" + TEXT,
        TEXT + '[prebuilt]\nurls = ["https://example.com"]\n',
        '[[modules]]\nname = "libmha_fwd"\n[build]\narchitectures = ["gfx950"]\n'
        '[qola]\nnamespace = "left"\n',
    ],
)
def test_equivalent_manifests_have_one_key(text: str) -> None:
    """Prevents: a comment, the order of keys or the source of bundles causes a miss."""
    assert replace(KEY, manifest=parse_manifest(text)).digest == KEY.digest


def test_text_of_a_key() -> None:
    """Prevents: a key does not show its main inputs, or is not a valid file name."""
    found = replace(KEY, archs=("gfx942", "gfx950"))
    assert found.text == f"left-rocm7.2-gfx942-gfx950-{found.digest[:12]}"
    # The digest is reproducible from the JSON of the inputs.
    assert sha256_of_json(json.loads(json.dumps(found.inputs))) == found.digest


def test_settings_that_count() -> None:
    """Prevents: settings that change a bundle share a key, or cache settings change the key."""
    arguments = ["--remote_cache=grpc://x", "--@qola//:compress", "--jobs=4", "--copt=-O1"]
    arguments += ["--disk_cache", "/x", "--repo_env=QOLA_ROCM=local", "--define", "a=b"]
    assert settings_of(arguments) == ("--@qola//:compress", "--copt=-O1", "--define=a=b")


def test_workflow_publishes_under_the_default_key() -> None:
    """Prevents: users miss the bundles of a CI because its cache options change the key."""
    workflow = (Path(__file__).resolve().parents[2] / "examples/ci/qola.yml").read_text("utf-8")
    arguments = re.findall(r'--bazel-arg=([^\s"]+)', workflow)
    assert len(arguments) >= 4
    assert settings_of(arguments) == ()


@pytest.mark.parametrize(
    "argument",
    ["--config=ci", "--override_module=a=/x", "--action_env=CPATH", "--repo_env=PATH", "--config"],
)
def test_settings_outside_of_the_key_are_rejected(argument: str) -> None:
    """Prevents: two builds that differ in a file or the environment share a key."""
    with pytest.raises(NoPrebuiltError, match="whose meaning lies elsewhere"):
        settings_of(["--copt=-O1", argument])
    assert settings_of(["--action_env=CPATH=/x"]) == ("--action_env=CPATH=/x",)


def test_identity_of_aiter_sources(tmp_path: Path) -> None:
    """Prevents: a mirror or a copy of AITER causes a miss, or an edit of a tree causes no miss."""
    commit_identity = source_identity(GitSource("https://a/aiter", "1" * 40))
    assert commit_identity == source_identity(GitSource("ssh://b/aiter", "1" * 40))
    wheel = source_identity(WheelSource("0.1.7", "a" * 64))
    assert wheel["sha256"] == "a" * 64
    first = write(tmp_path / "a", {"csrc/x.h": "1", ".git/HEAD": "1"})
    other_files = {"csrc/x.h": "1", ".git/HEAD": "2", "csrc/__pycache__/y.pyc": "2"}
    second = write(tmp_path / "deeper/b", other_files)
    assert source_identity(LocalSource(first)) == source_identity(LocalSource(second))
    elsewhere = write(tmp_path / "composable_kernel", {"ck.hpp": "1"})
    (elsewhere / "back").symlink_to(second)
    before = source_identity(LocalSource(second))
    changes: list[Callable[[], object]] = [
        lambda: (second / "csrc/x.h").write_text("2"),
        lambda: (second / "csrc/x.h").rename(second / "csrc" / "y.h"),
        lambda: (second / "csrc" / "empty.h").write_text(""),
        lambda: (second / "loop").symlink_to(second),
        lambda: (second / "ck").symlink_to(elsewhere),
        # Developers link to a Composable Kernel outside of AITER.
        lambda: (elsewhere / "ck.hpp").write_text("2"),
    ]
    for change in changes:
        change()
        now = source_identity(LocalSource(second))
        assert now != before
        before = now


def test_key_has_all_inputs_of_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: the key omits patches, modules, modes or archs of a build."""
    monkeypatch.setattr("qola.prebuilt.key.ruleset_digest", lambda root: "c" * 64)
    write(tmp_path, {"b.patch": "b", "a.diff": "a", "README": "no patch"})
    aiter = AiterSource(GitSource("https://a/aiter", "1" * 40), tmp_path)
    parsed = loads(TEXT, file="left.toml")
    lazy = Forms(lazy=True)
    build = ResolvedBuild(parsed, tmp_path / "te-left.toml", parsed.modules, aiter, forms=lazy)
    found = make_key(build, ROCM, ("--jobs=3", "--define", "a=b"))
    inputs: Any = found.inputs
    assert [pin["name"] for pin in inputs["aiter"]["patches"]] == ["a.diff", "b.patch"]
    assert inputs["modules"] == [{"name": "libmha_fwd", "mode": parsed.mode}]
    assert (inputs["archs"], inputs["manifest"]["name"]) == (["gfx950"], "te_left")
    assert inputs["forms"] == {"lazy": True, "static": False}
    assert inputs["settings"] == ["--define=a=b"]
    other = replace(build, spec=BuildSpec(("gfx950", "gfx942", "gfx950"), "cpp_itfs"))
    changed = make_key(other, ROCM, ("--define=a=b",))
    assert differences(inputs, changed.inputs) == ["archs", "modules"]
    assert changed.archs == ("gfx942", "gfx950")


def test_inputs_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a renamed attribute changes every key, so that every fetch misses."""
    monkeypatch.setattr("qola.prebuilt.key.ruleset_digest", lambda root: "c" * 64)
    write(tmp_path, {"a.patch": "a", "k/k.py": "1", "k/parts.py": "2"})
    manifest = loads(TEXT + TRITON, file="left.toml")
    aiter = AiterSource(WheelSource("0.1.7", "a" * 64), tmp_path)
    spec = BuildSpec(("gfx942", "gfx950"), "cpp_itfs")
    build = ResolvedBuild(
        *(manifest, tmp_path / "left.toml", manifest.modules, aiter, spec),
        forms=Forms(lazy=True),
        triton=True,
    )
    key = replace(make_key(build, ROCM, ("--copt=-O1",)), version="0")
    text = json.dumps(key.inputs, indent=2, sort_keys=True) + "\n"
    if os.environ.get("QOLA_UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text


TRITON = """\
[[triton]]
kernels = ["attention_forward"]
[[triton]]
kernels = ["k"]
file = "k/k.py"
deps = ["k/parts.py"]
[[triton]]
kernels = ["theirs"]
remote = "https://host/theirs.git"
commit = "1111111111111111111111111111111111111111"
file = "theirs.py"
"""


def test_kernels_in_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: code objects of other Python files, or of another commit, share a key."""
    monkeypatch.setattr("qola.prebuilt.key.ruleset_digest", lambda root: "c" * 64)
    write(tmp_path, {"k/k.py": "1", "k/parts.py": "1", "k/other.py": "1"})
    aiter = AiterSource(GitSource("https://a/aiter", "1" * 40))

    def inputs(text: str = TEXT + TRITON, triton: bool = True) -> dict[str, Any]:
        parsed = loads(text, file="left.toml")
        build = ResolvedBuild(parsed, tmp_path / "left.toml", parsed.modules, aiter, triton=triton)
        return make_key(build, ROCM).inputs

    before = inputs()
    assert [*before["triton"]] == ["k/k.py", "k/parts.py"]
    # A build of only some modules has no Triton kernels.
    assert differences(before, inputs(triton=False)) == ["triton"]
    for name, path in (("k/k.py", "triton.k/k.py"), ("k/parts.py", "triton.k/parts.py")):
        (tmp_path / name).write_text("2")
        assert differences(before, inputs()) == [path]
        (tmp_path / name).write_text("1")
    (tmp_path / "k/other.py").write_text("2")
    assert inputs() == before
    changed = inputs(TEXT + TRITON.replace("11", "22"))
    assert differences(before, changed) == ["manifest.content.triton"]


def test_ruleset_files_include_triton(repo_root: Path) -> None:
    """Prevents: another Triton version, or edited kernels of qola, do not change the key."""
    files = {*ruleset_files(repo_root)}
    assert {"third_party/python/triton.txt", "qola/triton/compile.py"} <= files
    assert {f"qola/triton/kernels/{name}" for name in {*own.FILES.values(), *own.PARTS}} <= files


RULESET = {
    **dict.fromkeys(("BUILD.bazel", "LICENSE", "MODULE.bazel", "rules/defs.bzl"), "1"),
    **dict.fromkeys(("qola/__init__.py", "qola/common/packages.py", "qola/codegen/emit.py"), ""),
    **dict.fromkeys(("qola/bundle/__main__.py", "qola/lazy/__main__.py"), ""),
    "runtime/lazy/load.cpp": "1",
    "qola/repository/__init__.py": "from qola.codegen import emit",
    "qola/codegen/data/given.py": "1",
}


def test_ruleset_digest_depends_on_its_files(tmp_path: Path) -> None:
    """Prevents: an installed qola has other keys than a checkout, or an edit keeps the key."""
    root, other = write(tmp_path / "a", RULESET), write(tmp_path / "b", RULESET)
    ignored = ("qola/codegen/__pycache__/emit.pyc", "qola/_ruleset/x", "qola/cli/main.py")
    data = "qola/codegen/data/__pycache__/given.pyc"
    write(other, dict.fromkeys((*ignored, data, "docs/x", "tests/x.toml", "bazelw"), "2"))
    before = ruleset_digest(root)
    assert before == ruleset_digest(other)
    for name in ("rules/defs.bzl", "qola/codegen/emit.py", "runtime/lazy/load.cpp", "MODULE.bazel"):
        write(other, {name: "3"})
        assert ruleset_digest(other) != before
        before = ruleset_digest(other)


def test_ruleset_with_symlinks(tmp_path: Path) -> None:
    """Prevents: edits in a linked directory keep the key, or a symlink loop blocks qola."""
    root = write(tmp_path / "a", RULESET)
    elsewhere = write(tmp_path / "elsewhere", {"x.h": "1"})
    changes: list[Callable[[], object]] = [
        lambda: (root / "runtime/linked").symlink_to(elsewhere),
        lambda: (elsewhere / "x.h").write_text("2"),
        lambda: (elsewhere / "back").symlink_to(root / "runtime"),
        lambda: (root / "rules/absent").symlink_to("nowhere"),
    ]
    before = ruleset_digest(root)
    for change in changes:
        change()
        now = ruleset_digest(root)
        assert now != before
        before = now


def test_identity_of_rocm(tmp_path: Path, repo_root: Path) -> None:
    """Prevents: libraries of another compiler get the key of the pinned compiler."""
    sdk = {"rocm_version": "7.2.4", "hip_version": "7.2.5", "clang_version": "22.1"}
    pins = {"packages.lock": "1", "sdk.json": json.dumps(sdk)}
    root = tmp_path / "root"
    write(root / "third_party/rocm", pins)
    local = {"origin": "local", "amd_clang": True, "identity": "9" * 64, **sdk}
    (tmp_path / "rocm.json").write_text(json.dumps(local))
    query_bazel = Mock(return_value=tmp_path / "rocm.json")
    pinned = rocm_identity(root, {}, (), query_bazel)
    assert pinned["rocm_version"] == "7.2.4"
    assert rocm_identity(root, {"QOLA_ROCM": "pinned"}, (), query_bazel) == pinned
    overridden = ("--repo_env=QOLA_ROCM=local", "--repo_env=QOLA_ROCM=pinned")
    assert rocm_identity(root, {"QOLA_ROCM": "local"}, overridden, query_bazel) == pinned
    assert not query_bazel.called, "Bazel started where files say it"
    other = rocm_identity(root, {"QOLA_ROCM": "/opt/rocm"}, (), query_bazel)
    assert (other["identity"], other["origin"]) == ("9" * 64, "local")
    assert rocm_identity(root, {}, overridden[:1], query_bazel) == other
    (tmp_path / "rocm.json").write_text(json.dumps({**local, "identity": ""}))
    with pytest.raises(ToolchainError, match="no ROCm"):
        rocm_identity(root, {"QOLA_ROCM": "/opt/rocm"}, (), query_bazel)
    (root / "third_party/rocm/packages.lock").write_text("2")
    assert rocm_identity(root, {}, (), query_bazel) != pinned


def test_replacement_of_the_pinned_compiler(tmp_path: Path) -> None:
    """Prevents: libraries of a newer compiler get the key of the pinned one; a traceback."""
    sdk = {"rocm_version": "7.2.4", "hip_version": "7.2.5", "clang_version": "22.1"}
    text = "# snapshot: 20261030T140801Z\nclang-22 1 00 forky 1 pool/x compiler\n"
    root = tmp_path / "root"
    write(root / "third_party/rocm", {"packages.lock": text, "sdk.json": json.dumps(sdk)})
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    pinned = rocm_identity(root, environ, (), Mock())
    other = {
        "packages.lock": text.replace("22", "23"),
        "sdk.json": json.dumps({**sdk, "clang_version": "23.1"}),
    }
    write(tmp_path / "cache/offered/third_party-rocm-20261030T140801Z", other)
    found = rocm_identity(root, environ, (), Mock())
    assert found["clang_version"] == "23.1"
    assert found["identity"] != pinned["identity"]
    assert rocm_identity(root, {**environ, "QOLA_CACHE_HOME": "/no"}, (), Mock()) == pinned
    facts = tmp_path / "cache/offered/third_party-rocm-20261030T140801Z/sdk.json"
    for wrong in ("{}", "[1]", "", '{"rocm_version": 7, "hip_version": "", "clang_version": ""}'):
        facts.write_text(wrong)
        with pytest.raises(ToolchainError, match=f"rm -r {facts.parent}"):
            rocm_identity(root, environ, (), Mock())
