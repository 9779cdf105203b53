"""A requested wheel when a module fails, with a fake Bazel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qola.build.bazel import BuildOptions
from qola.build.build import Built, build_all, install_build
from qola.build.setup import resolve_build
from qola.build.workspace import BUNDLE_FILE, Workspace
from qola.plan.spec import BuildRequest, Forms
from tests.support.fake_bazel import write_bazel
from tests.support.folders import read, write

MANIFEST = """\
[qola]
namespace = "two"
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
[[modules]]
name = "libmha_bwd"
"""

BAZEL = """
broken = Path("broken").read_text().split()
for target in targets:
    if target in broken:
        fail(target, "error: no")
    elif target == "//bundle:bundle":
        build(target, Path("outputs/bundle/manifest.json").absolute())
    elif target == "//bundle:wheel":
        build(target, Path("outputs/qola_two-1.0-py3-none-any.whl").absolute())
    else:
        build(target, Path("outputs", target.removeprefix("//:") + ".so").absolute())
finish(1 if broken else 0)
"""


def build(directory: Path, broken: str) -> tuple[Workspace, Built]:
    """Build a manifest of two modules and a wheel. `broken` lists failing targets."""
    write(directory, {"two.toml": MANIFEST, ".bazelversion": "9.0"})
    bazel = write_bazel(directory, BAZEL)
    resolved = resolve_build(BuildRequest(directory / "two.toml", forms=Forms(wheel="1.0")), {})
    workspace = Workspace(resolved, [str(bazel)], directory, directory / "cache")
    with workspace.opened():
        write(workspace.directory, {"broken": broken})
        return workspace, build_all(workspace, BuildOptions(), os.environ)


@pytest.mark.parametrize("broken", ["//:libmha_bwd", "//:libmha_fwd //:libmha_bwd"])
def test_failed_module_prevents_the_wheel(tmp_path: Path, broken: str) -> None:
    """Prevents: a wheel without a failed module, or an earlier wheel that looks current."""
    workspace, built = build(tmp_path, broken)
    names = ", ".join(broken.replace("//:", "").split())
    file = (tmp_path / "two.toml").as_posix()
    assert built.wheels == ()
    assert f"found     failed: {names}\n" in built.bundle_error
    assert built.bundle_error.endswith(f"qola build {file} --wheel 1.0")
    all_failed = "libmha_fwd" in broken
    assert (built.bundle is None) == all_failed
    assert all_failed or "qola_wheel" not in (workspace.directory / BUNDLE_FILE).read_text()
    output = tmp_path / "out"
    earlier, other = "dist/qola_two-1.0-py3-none-any.whl", "dist/qola_two-0.9-py3-none-any.whl"
    write(output, {earlier: "earlier", other: "other"})
    result = install_build(workspace.chosen, built, output)
    assert "wheel" not in result
    assert result["bundle_error"] == built.bundle_error
    assert [path for path in read(output) if "dist" in path] == [other, f"{earlier}.previous"]


def test_complete_build_has_a_wheel(tmp_path: Path) -> None:
    """Prevents: a wheel refused although all modules were built."""
    workspace, built = build(tmp_path, "")
    assert (len(built.wheels), built.bundle_error) == (1, "")
    result = install_build(workspace.chosen, built, tmp_path / "out")
    assert result["wheel"] == str(tmp_path / "out/dist/qola_two-1.0-py3-none-any.whl")
