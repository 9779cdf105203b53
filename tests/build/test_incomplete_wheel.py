"""A requested wheel when a module fails, with a fake Bazel."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from qola.build import workspace
from qola.build.bazel import BuildOptions
from qola.build.build import Built, build_all, install_build
from qola.build.setup import ResolvedBuild, Setup, resolve_build
from qola.plan.spec import BuildRequest, Forms
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

BAZEL = f"""\
#!{sys.executable}
import json, sys
from pathlib import Path
targets = sys.argv[sys.argv.index("--") + 1:]
(name,) = (a.partition("=")[2] for a in sys.argv if a.startswith("--build_event_json_file="))
broken = Path("broken").read_text().split()
with open(name, "w") as events:
    for number, target in enumerate(targets):
        failed = {{"actionCompleted": {{"label": target}}}}
        event, ok = {{"completed": {{}}, "children": [failed]}}, target not in broken
        if ok:
            file = Path("outputs", *target.strip("/").split(":")).absolute()
            file = file / "manifest.json" if target == "//bundle:bundle" else file
            file = file.with_suffix(".so") if target.startswith("//:") else file
            file = file.parent / "qola_two-1.0-py3-none-any.whl" if "wheel" in target else file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text('{{"modules": []}}')
            named = {{"files": [{{"uri": file.as_uri()}}]}}
            event = {{"id": {{"namedSet": {{"id": str(number)}}}}, "namedSetOfFiles": named}}
            print(json.dumps(event), file=events)
            group = {{"name": "default", "fileSets": [{{"id": str(number)}}]}}
            event = {{"completed": {{"success": True, "outputGroup": [group]}}}}
        event["id"] = {{"targetCompleted": {{"label": target}}}}
        print(json.dumps(event), file=events)
    finished = {{"exitCode": {{"code": 1 if broken else 0}}}}
    print(json.dumps({{"id": {{"buildFinished": {{}}}}, "finished": finished}}), file=events)
"""


def build(directory: Path, broken: str) -> tuple[ResolvedBuild, Built]:
    """Build a manifest of two modules and a wheel. `broken` lists failing targets."""
    files = {"two.toml": MANIFEST, "bazel": BAZEL, "broken": broken}
    (write(directory, files) / "bazel").chmod(0o755)
    resolved = resolve_build(BuildRequest(directory / "two.toml", forms=Forms(wheel="1.0")), {})
    build_workspace = workspace.Workspace(
        "two", MANIFEST, tuple(resolved.names), directory, resolved.aiter, directory / "disk"
    )
    setup = Setup(
        resolved, [str(directory / "bazel")], build_workspace, directory, directory, "9.0"
    )
    return resolved, build_all(setup, BuildOptions(), os.environ)


@pytest.mark.parametrize("broken", ["//:libmha_bwd", "//:libmha_fwd //:libmha_bwd"])
def test_failed_module_prevents_the_wheel(tmp_path: Path, broken: str) -> None:
    """Prevents: a wheel without a failed module, or an earlier wheel that looks current."""
    resolved, built = build(tmp_path, broken)
    names = ", ".join(broken.replace("//:", "").split())
    file = (tmp_path / "two.toml").as_posix()
    assert built.wheels == ()
    assert f"found     failed: {names}\n" in built.bundle_error
    assert built.bundle_error.endswith(f"qola build {file} --wheel 1.0")
    all_failed = "libmha_fwd" in broken
    assert (built.bundle is None) == all_failed
    assert all_failed or "qola_wheel" not in (tmp_path / workspace.BUNDLE_FILE).read_text()
    output = tmp_path / "out"
    earlier, other = "dist/qola_two-1.0-py3-none-any.whl", "dist/qola_two-0.9-py3-none-any.whl"
    write(output, {earlier: "earlier", other: "other"})
    result = install_build(resolved, built, output)
    assert "wheel" not in result
    assert result["bundle_error"] == built.bundle_error
    assert [path for path in read(output) if "dist" in path] == [other, f"{earlier}.previous"]


def test_complete_build_has_a_wheel(tmp_path: Path) -> None:
    """Prevents: a wheel refused although all modules were built."""
    resolved, built = build(tmp_path, "")
    assert (len(built.wheels), built.bundle_error) == (1, "")
    result = install_build(resolved, built, tmp_path / "out")
    assert result["wheel"] == str(tmp_path / "out/dist/qola_two-1.0-py3-none-any.whl")
