"""AITER's v3 generators, patched so that what they write loads embedded code objects."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from unidiff.patch import PatchSet

from qola.digest import sha256_of
from qola.errors import CodegenError, Finding

#: Patches and pins; beside the package, in a checkout and in Bazel's runfiles alike.
PATCHES = Path(__file__).parent.parent.parent / "third_party/aiter/patches"


def patched_copy(root: Path, script: str, place: str, into: Path, patches: Path) -> Path | Finding:
    """Copy a generator and apply the patch that is pinned for just this version of it.

    Args:
        root: directory of the tree that holds ``hsa/``.
        script: path of the script below it.
        place: how findings call the script.
        into: the copy goes below it; the tree is not written to.
        patches: directory with ``pins.json`` and the patches.

    Returns:
        The patched copy, or a warning where no patch is known for the script.

    Raises:
        CodegenError: the patch does not apply.
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
            fix="use the AITER that qola pins, or add a patch: third_party/aiter/patches/README.md",
            severity="warning",
        )
    copy = into / script
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / script, copy)
    _apply_patches(into, [patches / pin["patch"]])
    return copy


def _apply_patches(root: Path, patches: Sequence[Path]) -> None:
    """Apply patches whose files are known by digest: every hunk stands at its own line.

    Stands in for `qola.patches.apply_patches`, with which patches_dir arrives.
    """
    for patch in patches:
        for file in PatchSet.from_string(patch.read_text(encoding="utf-8")):
            path = root / file.path
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            for hunk in reversed(file):
                start = hunk.source_start - 1
                span = slice(start, start + hunk.source_length)
                if lines[span] != [line.value for line in hunk if not line.is_added]:
                    raise CodegenError(
                        Finding(
                            place=patch.name,
                            found=f"a hunk that {file.path} does not have:\n{hunk}",
                            expected="a patch made for the digest it is pinned to",
                        )
                    )
                lines[span] = [line.value for line in hunk if not line.is_removed]
            path.write_text("".join(lines), encoding="utf-8")
