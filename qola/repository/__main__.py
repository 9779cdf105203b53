"""What the repository rules run: ``python -m qola.repository manifest`` and ``kernels``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from qola.codegen.types import LEVELS
from qola.manifest.words import BUILD_MODES
from qola.repository.kernel_repository import kernel_repository
from qola.repository.manifest_repository import manifest_repository
from qola.rule_main import run_main


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the repository rules."""
    parser = argparse.ArgumentParser(prog="qola.repository", description=__doc__)
    commands = parser.add_subparsers(required=True)
    manifest = commands.add_parser("manifest", help="plan a manifest and write its repository")
    manifest.add_argument("--name", required=True, help="name of the manifest")
    manifest.add_argument("--manifest", required=True, type=Path, help="the TOML file")
    manifest.add_argument("--display", required=True, help="its path as messages name it")
    manifest.add_argument("--aiter", required=True, type=Path, help="AITER tree")
    manifest.add_argument("--aiter-repository", required=True, help="its repository's name")
    manifest.add_argument("--rocm-version", default="", help="HIP version of the toolchain")
    manifest.add_argument("--arch", action="append", default=[], help="instead of the manifest's")
    manifest.add_argument("--gpu-archs", default="", help="archs where the manifest names none")
    manifest.add_argument("--mode", choices=BUILD_MODES, help="instead of the manifest's")
    manifest.add_argument(
        "--require", choices=LEVELS, default=LEVELS[0], help="level of directions"
    )
    manifest.add_argument(
        "--override-aiter-commit", action="store_true", help="the tree wins over aiter_commit"
    )
    manifest.add_argument("--output", required=True, type=Path, help="directory to write to")
    manifest.set_defaults(run=partial(manifest_repository, environ=os.environ))
    kernels = commands.add_parser("kernels", help="write the kernel repository of several plans")
    kernels.add_argument("--plan", action="append", default=[], type=Path, help="a plan.json")
    kernels.add_argument("--aiter-repository", required=True, help="the tree's repository's name")
    kernels.add_argument("--output", required=True, type=Path, help="directory to write to")
    kernels.set_defaults(run=kernel_repository)
    args = parser.parse_args(argv)
    return run_main(lambda: args.run(args))


if __name__ == "__main__":
    sys.exit(main())
