"""Runs one of AITER's generator scripts, unmodified, with `chip_info` already imported.

Run as ``python -B -S -m qola.codegen.run_script SCRIPT ARGUMENTS...``.
"""

from __future__ import annotations

import os
import runpy
import sys

from qola.codegen import chip_info


def main(argv: list[str]) -> None:
    """Run the script `argv[0]` with the arguments that follow, as ``python SCRIPT`` would."""
    sys.modules["chip_info"] = chip_info
    sys.argv = argv
    sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
    runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
