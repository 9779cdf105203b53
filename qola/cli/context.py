"""The process around a command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qola.cli.console import Console


@dataclass(frozen=True)
class Surroundings:
    """All that a command gets from the process but its arguments; paths are below `directory`."""

    environ: Mapping[str, str]
    directory: Path
    console: Console
