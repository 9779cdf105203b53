"""The checkout's files for a test that reads all of them."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path


@cache
def checkout_root() -> Path:
    """Return a directory with the checkout's files: under Bazel a copy, which has declared inputs.

    A link of @qola_checkout has another name than its file, and linters skip links.
    """
    listed = os.environ.get("QOLA_TEST_CHECKOUT")
    if not listed:
        return Path(__file__).resolve().parents[2]
    links = Path(listed).absolute().parent / "files"
    root = Path(os.environ["TEST_TMPDIR"], "checkout")
    for line in Path(listed).read_text(encoding="utf-8").splitlines():
        name, _, target = line.partition(" -> ")
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if target:
            (root / name).symlink_to(target)
            continue
        shutil.copy(links / f"{name}.link", root / name)
    return root
