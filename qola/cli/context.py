"""What the command line gets from the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qola.cli.console import Console


@dataclass(frozen=True)
class Surroundings:
    """What the command line gets from the process, besides its arguments.

    Attributes:
        directory: what relative paths are relative to.
    """

    environ: Mapping[str, str]
    directory: Path
    console: Console
