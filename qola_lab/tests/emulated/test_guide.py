"""The code blocks of the Python guide run, and print the values in its comments."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import qola
from qola.manifest.load import load
from qola_lab.fmha import build

PROGRAM = Path(os.environ["QOLA_TEST_PROGRAM"]).absolute()
#: The start of each line that the examples print.
PRINTED = """\
('fmha_fwd_d32_fp16_batch_b128x64x16x32x32x32_
(2, 100, 4, 32) True
lse: 800 elements, errors up to 0.
o: 25600 elements, errors up to 0.
(4, 100, 130)
3 True
qr_async b128x64x16x32x32x32_r4x1x1_r4x1x1_w32x32x16_w32x32x16
2
1080 48
336
fwd.fp16.batch.d32x32.gfx950.b64x64x16x32x32x32_
hdim hdim_v 20 (
logits_bias logits with bias alibi (
async_padding qr_async without dpad (
"""


def test_code_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a guide with code that does not run, or with comments that show other values."""
    built, tree = build.built_by(PROGRAM), Path(os.environ["QOLA_TEST_AITER_TREE"]).resolve()
    monkeypatch.setattr(build, "build_libraries", lambda _manifest: built)
    monkeypatch.setattr(qola, "checkout_aiter", lambda: str(tree if tree.is_dir() else tree.parent))
    text = Path(os.environ["QOLA_TEST_PAGE"]).read_text("utf-8")
    names: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if "build_configs" in block:
            continue  # qola_lab/tests/fmha
        exec(compile(block, "python.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    for line, start in zip(printed, PRINTED.splitlines(), strict=True):
        assert line.startswith(start)
    assert load(tmp_path / "mine.toml", display="mine.toml").modules[0].name == "libmha_fwd"
    (spec,) = load(tmp_path / "own.toml", display="own.toml").kernels
    assert spec.config == names["own"]


def test_compiler_errors_reach_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a failed build in Python that does not show the compiler's error."""
    manifest = tmp_path / "mine.toml"
    manifest.write_text(
        '[build]\narchitectures = ["gfx950"]\nmode = "cpp_itfs"\n'
        '[[modules]]\nname = "libmha_fwd"\n',
        "utf-8",
    )
    bazel = tmp_path / "bazel"
    bazel.write_text("#!/bin/sh\necho 'x.cpp:1:1: error: no such thing' >&2\nexit 1\n", "utf-8")
    bazel.chmod(0o755)
    environ = {"QOLA_BAZEL": str(bazel), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with pytest.raises(Exception, match="no such thing"):
        build.build_libraries(manifest, environ=environ)
