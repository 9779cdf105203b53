"""Several manifests in a single run of Bazel, and packs: options of Bazel and results."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qola.build.bazel import BuildOptions
from qola.build.pack import build_pack
from qola.build.programs import BuiltProgram, build_programs
from qola.build.setup import resolve_build
from qola.plan.spec import BuildRequest
from qola_base.errors import ManifestError, PlanError
from tests.support.fake_bazel import write_bazel

_ONE_FAILS = """
for target in targets:
    name = target.rpartition(":")[2]
    if name == "second":
        fail(target, "kernel.cpp:3:1: error: static assertion failed: no such tile\\n")
    else:
        build(target, Path(name).absolute())
finish(1)
"""
_NONE_IS_TRIED = """
said = "Error in fail: qola: PlanError: no such kernel (1 error)\\n"
progress(said + "error: m.toml:1\\n  found     x\\n")
finish(1)
"""
_NOTHING_IS_MADE = """
for target in targets:
    complete(target, success=True)
finish()
"""
MANIFEST = """\
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
"""


def environment(tmp_path: Path, text: str) -> dict[str, str]:
    """Return an environment that uses a fake Bazel with the given text."""
    bazel = write_bazel(tmp_path, text)
    return {**os.environ, "QOLA_BAZEL": str(bazel), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def build_several(
    tmp_path: Path, text: str, *names: str, manifest: str = MANIFEST
) -> dict[str, BuiltProgram]:
    return build_programs(
        {name: f"{manifest}# {name}\n" for name in names},
        *("dispatch", BuildOptions(quiet=True), environment(tmp_path, text)),
    )


def find_workspace(tmp_path: Path) -> Path:
    (directory,) = (tmp_path / "cache/qola/workspaces").glob("kernels-*")
    return directory


def test_failure_does_not_stop_other_programs(tmp_path: Path) -> None:
    """Prevents: a kernel that does not compile and prevents a hundred other builds."""
    built = build_several(tmp_path, _ONE_FAILS, "first", "second", "third")
    assert [bool(built[name].path) for name in ("first", "second", "third")] == [1, 0, 1]
    assert "no such tile" in built["second"].error
    assert built["first"] == BuiltProgram(find_workspace(tmp_path) / "first")
    module = (find_workspace(tmp_path) / "MODULE.bazel").read_text()
    assert module.count("qola.manifest(") == 3
    assert '"qola_first", "qola_second", "qola_third")' in module
    programs = (find_workspace(tmp_path) / "programs/BUILD.bazel").read_text()
    assert "@qola_second//:libmha_fwd_emulated" in programs
    # A later build removes the manifests of earlier builds.
    build_several(tmp_path, _ONE_FAILS, "fourth")
    left = {file.name for file in find_workspace(tmp_path).glob("*.toml")}
    assert left == {"fourth.toml"}


def test_planning_errors_are_reported(tmp_path: Path) -> None:
    """Prevents: a lost planning error if Bazel starts no target."""
    built = build_several(tmp_path, _NONE_IS_TRIED, "first", "second")
    assert all("error: m.toml:1" in program.error for program in built.values())
    assert PlanError.__name__ not in built["first"].error
    with pytest.raises(ManifestError):
        build_several(tmp_path, _ONE_FAILS, "first", manifest="[[modules]]\n")


def test_missing_pack_is_an_error(tmp_path: Path) -> None:
    """Prevents: no error if Bazel succeeds without a pack."""
    manifest = tmp_path / "m.toml"
    manifest.write_text(MANIFEST)
    environ = environment(tmp_path, _NOTHING_IS_MADE)
    resolved = resolve_build(BuildRequest(manifest), environ)
    error = build_pack(resolved, [], tmp_path / "m.qpack", BuildOptions(quiet=True), environ)
    assert error == "no pack among the outputs"
