"""AITER's v3 generators, patched so that what they write loads embedded code objects."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from qola.errors import Finding
from qola.files import sha256_of

PATCHES = Path(__file__).with_name("patches")
"""Patches that make AITER's v3 generators embed their kernels, and pins.json."""


def patched_copy(root: Path, script: str, place: str, into: Path, patches: Path) -> Path | Finding:
    """Copy a generator and apply the patch that is pinned for just this version of it.

    Args:
        root: directory of the tree that holds ``hsa/``.
        into: the copy goes below it; the tree is not written to.
        patches: directory with ``pins.json`` and the patches.

    Returns:
        The patched copy, or a warning where no patch is known for the script.

    Raises:
        AiterError: the patch does not apply.
    """
    pins = json.loads((patches / "pins.json").read_text(encoding="utf-8"))
    digest = sha256_of(root / script)
    pin = pins.get(script, {}).get(digest)
    if pin is None:
        known = ", ".join(pins.get(script, {})) or "none"
        return Finding(
            place=place,
            found=f"sha256 {digest}, for which qola has no patch that embeds its kernels: "
            "assembly (v3) kernels are off, and such problems go to CK",
            expected=f"a version it has one for: {known}",
            fix="use the AITER that qola pins, or add a patch: qola/codegen/asm/patches/README.md",
            severity="warning",
        )
    copy = into / script
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / script, copy)
    # Not at the top: generators run in a process that sees no third-party package.
    from qola.fetch.patches import apply_patches  # noqa: PLC0415

    apply_patches(into, [patches / pin["patch"]], display="qola/codegen/asm/patches")
    return copy
