"""A python3 of another version first on PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def path_with_other_python(directory: Path) -> str:
    """Return a PATH whose python3 is one of the machine of another version, or does not start."""
    own = f"python{sys.version_info.major}.{sys.version_info.minor}"
    others = [path for path in Path("/usr/bin").glob("python3.*[0-9]") if path.name != own]
    directory = directory / "other_python"
    directory.mkdir(exist_ok=True)
    (directory / "python3").symlink_to(min(others, default=Path("/bin/false")))
    return f"{directory}:{os.environ['PATH']}"
