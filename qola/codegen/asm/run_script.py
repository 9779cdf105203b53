"""Runs one of AITER's generator scripts with `chip_info` already imported.

Run as ``python -B -S -m qola.codegen.asm.run_script --archs=[ARCH,...] SCRIPT ARGUMENTS...``.

AITER's own `chip_info` asks `rocminfo`, needs PyTorch's build helpers and takes the architecture
from the environment. Generators only need to know for which architectures assembly (v3) kernels
exist. With none, the entry points are generated without a call into v3, and `is_v3_api_check`
answers -1 ("not served") without a launch.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType


def chip_info(archs: Sequence[str]) -> ModuleType:
    """Return the module that generators import as `chip_info`, for these architectures."""
    module = ModuleType("chip_info")
    vars(module)["get_gfx_list"] = lambda: list(archs)
    return module


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
