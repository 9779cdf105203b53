"""Where qola finds what it is besides Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qola.errors import ToolchainError
from qola.resources import PATCHES, embedding_patches


def test_the_patches_of_this_qola() -> None:
    """Prevents: v3 off or failing because the patches are not where they are looked for."""
    pins = json.loads((embedding_patches() / "pins.json").read_text())
    assert any(script.endswith("fmha_v3_fwd/codegen.py") for script in pins)


@pytest.mark.parametrize("ruleset", ["", "qola/_ruleset"])
def test_patches_beside_the_package_or_in_it(tmp_path: Path, ruleset: str) -> None:
    """Prevents: a plan with an installed qola that looks for site-packages/third_party."""
    patches = tmp_path / ruleset / PATCHES
    patches.mkdir(parents=True)
    (patches / "pins.json").write_text("{}")
    assert embedding_patches(tmp_path / "qola") == patches


def test_an_installation_without_patches_is_named(tmp_path: Path) -> None:
    """Prevents: FileNotFoundError for pins.json instead of what to do."""
    with pytest.raises(ToolchainError, match=r"no third_party/aiter/patches/pins\.json beside it"):
        embedding_patches(tmp_path / "qola")
