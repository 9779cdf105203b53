"""Builds of many kernel configs: shared libraries, and configs that are not built."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

from qola.kernel.config import KernelConfig
from qola_lab.fmha.build import archs_of_config, build_configs, group_configs

FORWARD = KernelConfig.from_name(
    "fwd.bf16.batch.d64x64.gfx950.b64x64x32x64x32x64_r4x1x1_r4x1x1_w16x16x32_w16x16x32.p-qr_async"
    ".v-row.nmask.bias-no.lse.ndropout.nsquant.nlogits.nskip.ntrload.spad.nskpad.dpad.dvpad"
)


def test_kernels_that_share_a_library() -> None:
    """Prevents: a built kernel that another one hides, or a library for each kernel."""
    tile = replace(FORWARD.tile, per_cu=2)
    padded = replace(FORWARD, skpad=True)
    others = [replace(FORWARD, mask=True), replace(FORWARD, tile=tile), replace(FORWARD, lse=False)]
    first, second = group_configs([padded, FORWARD, *others])
    # Kernels that serve fewer problems come first.
    assert set(first) == {FORWARD, padded, others[0], others[2]}
    assert first[-1] == padded
    assert second == (others[1],)


def test_the_archs_of_a_kernel() -> None:
    """Prevents: a gfx9 kernel planned for gfx950, for which CK has other kernels."""
    archs = ["gfx90a", "gfx942", "gfx950", "gfx1201"]
    assert archs_of_config(FORWARD, archs) == ["gfx950"]
    assert archs_of_config(replace(FORWARD, arch="gfx9"), archs) == ["gfx90a", "gfx942"]
    assert archs_of_config(replace(FORWARD, arch=None), archs) == archs


def test_invalid_kernels_are_not_built() -> None:
    """Prevents: a Bazel build of a kernel that is known to be invalid."""
    wrong = replace(FORWARD, spad=False, hdim_q=20)
    found = build_configs([wrong, FORWARD, wrong], ["gfx942"], environ={})
    assert [result.config for result in found] == [wrong, FORWARD]
    assert "async_padding" in found[0].error
    assert "hdim" in found[0].error
    assert "an arch that CK calls gfx950" in found[1].error
    assert not any(result.built for result in found)


_BAZEL = """#!{python}
import json, pathlib, re, subprocess, sys
(path,) = [w.partition("=")[2] for w in sys.argv if w.startswith("--build_event_json_file=")]
file = open(path, "w")
def event(**values):
    file.write(json.dumps(values) + "\\n")
    file.flush()
here = pathlib.Path.cwd()
for target in sys.argv[sys.argv.index("--") + 1 :]:
    name = target.rpartition(":")[2]
    identity = {{"targetCompleted": {{"label": "@@" + target}}}}
    manifest = here / (name + ".toml")
    if (text := manifest.read_text()).count("fwd.bf16") > 1 or ".mask." in text:
        log = here / "stderr"
        log.write_text("kernel.cpp:3:1: error: no such tile\\n")
        label = {{"label": "@@x//fwd:kernel.object"}}
        action = {{"success": False, "type": "QolaCompile", "stderr": {{"uri": log.as_uri()}}}}
        event(id={{"actionCompleted": label}}, action=action)
        event(id=identity, completed={{}}, children=[{{"actionCompleted": label}}])
        continue
    output = here / (name + "_made")
    words = ["--name", name, "--manifest", str(manifest), "--display", manifest.name]
    words += ["--aiter", "{tree}", "--aiter-repository", "aiter", "--output", str(output)]
    command = [sys.executable, "-B", "-m", "qola.repository", *words]
    subprocess.run(command, check=True, env={{"PYTHONPATH": {paths!r}}})
    places = dict.fromkeys(("library", "caller", "runtime"), "x") | {{"repository": str(output)}}
    program = here / name
    program.write_text("#!/bin/sh\\necho '" + json.dumps({{"libmha_fwd": places}}) + "'\\n")
    program.chmod(0o755)
    files = [{{"name": name, "uri": program.as_uri()}}]
    event(id={{"namedSet": {{"id": name}}}}, namedSetOfFiles={{"files": files}})
    group = [{{"name": "default", "fileSets": [{{"id": name}}]}}]
    event(id=identity, completed={{"success": True, "outputGroup": group}})
event(id={{"buildFinished": {{}}}}, finished={{"exitCode": {{"code": 1}}}})
sys.exit(1)
"""


def test_a_failing_kernel_does_not_fail_others(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: a kernel reported as failed because another kernel of its library fails."""
    bazel = tmp_path / "bazel"
    paths = os.pathsep.join(path for path in sys.path if path)
    bazel.write_text(_BAZEL.format(python=sys.executable, tree=aiter_tree, paths=paths))
    bazel.chmod(bazel.stat().st_mode | stat.S_IXUSR)
    environ = {**os.environ, "QOLA_BAZEL": str(bazel), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    masked = replace(FORWARD, mask=True)
    found = build_configs([masked, FORWARD], ["gfx950"], environ=environ)
    first, second = found
    assert (first.built, first.name) == (None, "")
    assert "no such tile" in first.error
    assert second.built
    assert (second.error, "b64x64x32x64x32x64" in second.name) == ("", True)
