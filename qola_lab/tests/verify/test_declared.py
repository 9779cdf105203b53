"""The entry points that headers of a bundle declare."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

BUNDLES = {
    Path(path).name.removesuffix("_lazy"): Path(path)
    for path in os.environ["QOLA_TEST_BUNDLES"].split()
}
ENTRY_POINTS = {
    "ci": {"QOLA_MHA_FWD", "QOLA_MHA_BWD"},
    "paged": {"QOLA_MHA_BATCH_PREFILL", "QOLA_MHA_FWD_PAGEDKV", "QOLA_MHA_FWD_APPENDKV"},
    "splitkv": {"QOLA_MHA_FWD_SPLITKV"},
}


@pytest.mark.parametrize("name", sorted(ENTRY_POINTS))
def test_only_directions_with_kernels_are_declared(name: str) -> None:
    """Prevents: a call of an entry point that compiles although the bundle lacks its direction."""
    config = (BUNDLES[name] / "include/qola_config.h").read_text(encoding="utf-8")
    assert set(re.findall(r"#define (\w+)_PARAMETERS", config)) == ENTRY_POINTS[name]
