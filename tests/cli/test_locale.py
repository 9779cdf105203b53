"""Commands in a locale that cannot decode the path of the manifest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.folders import write

MANIFEST = """\
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
drop_directions = ["fwd_splitkv", "batch_prefill"]
[[mha_fwd_variants]]
dtype = "bf16"
hdim = 64
mode = "batch"
"""
PROBLEM = ("direction=fwd", "dtype=bf16", "hdim=64", "seqlen_q=16", "seqlen_k=16")
#: The C locale without Python's UTF-8 mode: names of files are ASCII, other bytes surrogates.
LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    "words",
    [["plan"], ["init", "--overwrite", "--schema"], ["dispatch", *PROBLEM]],
    ids=("plan", "init", "dispatch"),
)
def test_path_outside_of_the_locale(tmp_path: Path, aiter_tree: Path, words: list[str]) -> None:
    """Prevents: a traceback for a manifest's path with ä in a container without a locale."""
    write(tmp_path / "bä", {"mä.toml": MANIFEST})
    options = [] if "init" in words else ["--aiter-root", str(aiter_tree)]
    command = [sys.executable, "-m", "qola", words[0], "bä/mä.toml", *words[1:], *options]
    path = os.pathsep.join(filter(None, sys.path))
    cache = str(tmp_path / "cache")
    environ = {**os.environ, **LOCALE, "PYTHONPATH": path, "QOLA_CACHE_HOME": cache}
    for _ in ("new", "cached"):
        ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=False)
        assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False), ran.stderr
        assert ran.stdout
