"""Runs one of AITER's generator scripts with `chip_info` already imported.

Run as ``python -B -S -m qola.codegen.asm.run_script --archs=[ARCH,...] SCRIPT ARGUMENTS...``.
"""

from __future__ import annotations

import os
import runpy
import sys

from qola.codegen.asm.chip_info import chip_info


def main(argv: list[str]) -> None:
    """Run a script with the arguments that follow it, as ``python SCRIPT`` would.

    Args:
        argv: ``--archs=`` with the architectures the v3 path is generated for, separated by
            commas; the script; its arguments.
    """
    archs, script = argv[0].removeprefix("--archs="), argv[1]
    sys.modules["chip_info"] = chip_info([arch for arch in archs.split(",") if arch])
    sys.argv = argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
