"""qola build where Bazel builds libraries and then fails: what is installed, and what is said."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from qola.cli import command_line as cli
from tests.python import plans

MANIFEST = """\
[qola]
namespace = "te"

[build]
architectures = ["gfx950"]
mode = "cpp_itfs"

[[modules]]
name = "libmha_fwd"
receipt = 600

[[modules]]
name = "module_deepgemm"
mode = "pybind"
"""

# Speaks for Bazel: libmha_fwd is built, the Python module and the bundle fail as actions.
BAZEL = f"""\
#!{sys.executable}
import json, sys
from pathlib import Path
(stream,) = [a.partition("=")[2] for a in sys.argv if a.startswith("--build_event_json_file=")]
here = Path(__file__).parent
def uri(name):
    return {{"uri": (here / name).as_uri()}}
def failed(label, stderr):
    return {{"id": {{"actionCompleted": {{"label": label}}}},
            "action": {{"type": "QolaBundle", "exitCode": 1, "stderr": uri(stderr)}}}}
def files(number, name):
    return {{"id": {{"namedSet": {{"id": number}}}}, "namedSetOfFiles": {{"files": [uri(name)]}}}}
def done(label, success, **groups):
    found = [{{"name": n, "fileSets": [{{"id": i}}]}} for n, i in groups.items()]
    child = [] if success else [{{"actionCompleted": {{"label": label}}}}]
    return {{"id": {{"targetCompleted": {{"label": label}}}}, "children": child,
            "completed": {{"success": success, "outputGroup": found}}}}
if "//bundle:bundle" in sys.argv:
    events = [failed("//bundle:bundle", "bundle.txt"), done("//bundle:bundle", False)]
else:
    events = [files("0", "te_libmha_fwd.so"), files("1", "plan.json"),
              done("//:libmha_fwd", True, default="0", plan="1"),
              failed("//:module_deepgemm", "module.txt"), done("//:module_deepgemm", False)]
events.append({{"id": {{"buildFinished": {{}}}}, "finished": {{"exitCode": {{"code": 1}}}}}})
Path(stream).write_text("".join(json.dumps(event) + "\\n" for event in events))
sys.exit(1)
"""
WORDS = "the bundle cannot be made (1 error)\nerror: licenses/aiter\n  found     no license"
PLAN = plans.plan(
    modules=(plans.module(library="te_libmha_fwd.so"),),
    python_modules=(plans.python_module("module_deepgemm", "deepgemm.so"),),
)


def test_libraries_outlive_a_bundle_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: what took hours lost with its bundle; a Python module's old file that looks new."""
    for name, text in (
        ("bazel", BAZEL),
        ("two.toml", MANIFEST),
        ("te_libmha_fwd.so", "library"),
        ("bundle.txt", WORDS),
        ("module.txt", "m.cpp:1: error: no such thing\n"),
        ("plan.json", PLAN.to_json()),
        ("out/sbom.spdx.json", "of an earlier build"),
        ("out/lib/deepgemm.so", "of an earlier build"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "bazel").chmod(0o755)
    monkeypatch.setenv("QOLA_BAZEL", str(tmp_path / "bazel"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    code = cli.main(["build", "-m", "two.toml", "-o", "out"])
    out, err = capsys.readouterr()
    assert code == 7, err
    assert "qola: the bundle was not made" in err
    assert WORDS in err
    assert "  FAILED: deepgemm: " in out
    record = json.loads(Path("out/manifest.json").read_text())
    assert record["bundle_error"] == WORDS
    assert record["summary"] == {"total": 2, "success": 1, "failed": 1}
    assert [m["md_name"] for m in record["modules"]] == ["te_libmha_fwd", "deepgemm"]
    installed = {path for path in Path("out").rglob("*") if path.is_file()}
    assert {os.path.relpath(path, "out") for path in installed} == {
        "lib/deepgemm.so.previous",
        "lib/te_libmha_fwd.so",
        "manifest.json",
        "sbom.spdx.json.previous",
    }
