"""Updates every generated page: `./bazelw run //tools/docs:update`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.docs import api
from tools.docs.pages import render_pages
from tools.docs.stardoc_output import read_module


def main(argv: Sequence[str] | None = None) -> int:
    """Update the pages of docs/reference."""
    parser = argparse.ArgumentParser(prog="update", description=__doc__)
    parser.add_argument("--defs", required=True, type=Path, help="ModuleInfo of rules/defs.bzl")
    parser.add_argument(
        "--extensions", required=True, type=Path, help="ModuleInfo of rules/extensions.bzl"
    )
    parser.add_argument(
        "--hip-defs", required=True, type=Path, help="ModuleInfo of rules_hip/hip/defs.bzl"
    )
    parser.add_argument(
        "--hip-extensions",
        required=True,
        type=Path,
        help="ModuleInfo of rules_hip/hip/extensions.bzl",
    )
    args = parser.parse_args(argv)
    reference = Path(os.environ["BUILD_WORKSPACE_DIRECTORY"], "docs/reference")
    files = (args.defs, args.extensions, args.hip_defs, args.hip_extensions)
    modules = (read_module(p.read_bytes()) for p in files)
    for name, text in {"api.md": api.render(*modules), **render_pages(reference)}.items():
        (reference / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
