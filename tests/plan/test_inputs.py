"""What of a local AITER tree is watched as a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.aiter.tree import read_tree
from qola.manifest.load import loads
from qola.plan.inputs import watched_dirs
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola.plan.spec import BuildSpec

MODULES = """\
[[modules]]
name = "libmha_fwd"
{fwd}

[[modules]]
name = "libmha_bwd"
hsa_subdirs = []
"""
SOURCES = "aiter_meta/csrc/cpp_itfs"


@pytest.mark.parametrize(
    ("fwd", "expected"),
    [
        ("", ["aiter/configs", *(f"aiter_meta/hsa/{a}/fmha_v3_fwd" for a in ("gfx942", "gfx950"))]),
        ("hsa_subdirs = []\nsrcs = [\"f'{AITER_CSRC_DIR}/cpp_itfs'\"]", ["aiter/configs", SOURCES]),
    ],
)
def test_directories_that_decide_a_plan(aiter_tree: Path, fwd: str, expected: list[str]) -> None:
    """Prevents: a code object, table or source added to a local tree that no plan takes up."""
    manifest = loads(MODULES.format(fwd=fwd), file="m.toml")
    archs = ("gfx942", "gfx950")
    request = Request("m", manifest, read_tree(aiter_tree), BuildSpec(archs, "cpp_itfs"))
    assert watched_dirs(resolve(request)) == tuple(expected)
