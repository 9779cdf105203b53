"""The program of the repository rule of a manifest: ``python -m qola.repository``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from qola.codegen.types import LEVELS
from qola.manifest.words import BUILD_MODES
from qola.repository.manifest_repository import manifest_repository
from qola.rule_main import run_main


def main(argv: Sequence[str] | None = None) -> int:
    """Plan a manifest and write its repository."""
    parser = argparse.ArgumentParser(prog="qola.repository", description=main.__doc__)
    parser.add_argument("--name", required=True, help="name of the manifest")
    parser.add_argument("--manifest", required=True, type=Path, help="the TOML file")
    parser.add_argument("--display", required=True, help="its path as messages name it")
    parser.add_argument("--aiter", required=True, type=Path, help="AITER tree")
    parser.add_argument("--aiter-repository", required=True, help="its repository's name")
    parser.add_argument("--rocm-version", default="", help="HIP version of the toolchain")
    parser.add_argument("--arch", action="append", default=[], help="instead of the manifest's")
    parser.add_argument("--gpu-archs", default="", help="archs where the manifest names none")
    parser.add_argument("--mode", choices=BUILD_MODES, help="instead of the manifest's")
    parser.add_argument("--require", choices=LEVELS, default=LEVELS[0], help="level of directions")
    parser.add_argument(
        "--override-aiter-commit", action="store_true", help="the tree wins over aiter_commit"
    )
    parser.add_argument("--output", required=True, type=Path, help="directory to write to")
    args = parser.parse_args(argv)
    return run_main(lambda: manifest_repository(args, os.environ))


if __name__ == "__main__":
    sys.exit(main())
