"""The program of the repository rule of a manifest: ``python -m qola.repository``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

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
    parser.add_argument("--gpu-archs", default="", help="archs if nothing else names any")
    parser.add_argument("--spec", help="JSON of qola.plan.spec.BuildSpec")
    parser.add_argument("--output", required=True, type=Path, help="directory to write to")
    args = parser.parse_args(argv)
    return run_main(lambda: manifest_repository(args, os.environ))


if __name__ == "__main__":
    sys.exit(main())
