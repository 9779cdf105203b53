"""Starts the pinned headless Chromium with playwright."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import playwright
from playwright.sync_api import Browser, sync_playwright

_FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{directory}/fonts</dir><cachedir>{directory}/cache</cachedir></fontconfig>
"""
_NODE = Path(playwright.__file__).parent / "driver/node"


@contextmanager
def start_browser(script: Path, archives: Sequence[Path], directory: Path) -> Iterator[Browser]:
    """Unpack the browser, a font and libraries that minimal systems lack; start the browser."""
    subprocess.run([_NODE, script, directory, *archives], check=True)
    for archive in directory.glob("*.tar"):
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
        archive.unlink()
    (directory / "chromium").chmod(0o755)
    (directory / "fonts.conf").write_text(_FONTS.format(directory=directory), encoding="utf-8")
    with sync_playwright() as driver:
        yield driver.chromium.launch(
            executable_path=directory / "chromium",
            args=["--disable-gpu", "--disable-dev-shm-usage", "--no-zygote"],
            # Chromium's sandbox needs permissions that Bazel's sandbox does not grant.
            chromium_sandbox=False,
            env={
                "FONTCONFIG_FILE": str(directory / "fonts.conf"),
                "HOME": str(directory),
                "LD_LIBRARY_PATH": str(directory / "lib"),
                "TMPDIR": str(directory),
            },
        )
