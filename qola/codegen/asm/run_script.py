"""Runs one of AITER's generator scripts with what it imports and asks of a machine at hand.

Run as ``python -B -S -m qola.codegen.asm.run_script SEEN --archs=[ARCH,...] SCRIPT ARGUMENTS...``.
What the process reads is written to the file SEEN, as JSON.

AITER's own `chip_info` asks `rocminfo`, needs PyTorch's build helpers and takes the architecture
from the environment. Generators only need to know for which architectures assembly (v3) kernels
exist. With none, the entry points are generated without a call into v3, and `is_v3_api_check`
answers -1 ("not served") without a launch.

`hsa/codegen.py` takes them from AITER_GPU_ARCHS, reads its tables with pandas, for which
`qola.codegen.asm.frames` stands in, and lists them with `glob`, here in a fixed order.

Generators of GEMMs ask PyTorch whether there is a GPU, and leave out what was tuned for others.
A plan must not depend on the machine that makes it: here there is none.
"""

from __future__ import annotations

import glob
import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from qola.codegen.asm import frames
from qola.codegen.bytecode import ignore_bytecode
from qola.codegen.reads import Reads


def chip_info(archs: Sequence[str]) -> ModuleType:
    """Return the module that generators import as `chip_info`, for these architectures."""
    module = ModuleType("chip_info")
    vars(module).update(get_gfx_list=lambda: list(archs), get_gfx=lambda: _only(archs))
    return module


def _only(archs: Sequence[str]) -> str:
    if len(archs) != 1:
        sys.exit(f"get_gfx() of {', '.join(archs) or 'no arch'}: what it writes is for one arch")
    return archs[0]


def torch_without_gpu() -> dict[str, ModuleType]:
    """Return the modules that generators import as `torch`, by name: asked for a GPU, none."""
    torch, cuda = ModuleType("torch"), ModuleType("torch.cuda")
    vars(cuda)["is_available"] = lambda: False
    vars(torch)["cuda"] = cuda
    return {"torch": torch, "torch.cuda": cuda}


def sort_globs() -> None:
    """Make `glob.glob` sort: file systems list in orders of their own, and scripts print it."""
    found = glob.glob
    glob.glob = lambda *args, **kwargs: sorted(found(*args, **kwargs))


def main(argv: list[str]) -> None:
    """Run a script with the arguments that follow it, as ``python SCRIPT`` would.

    Args:
        argv: the file that gets what was read; ``--archs=`` with the architectures the v3 path is
            generated for, separated by commas; the script; its arguments.
    """
    seen, names, script = Path(argv[0]), argv[1].removeprefix("--archs="), argv[2]
    archs = [arch for arch in names.split(",") if arch]
    sys.modules["chip_info"] = chip_info(archs)
    sys.modules.update(torch_without_gpu())
    os.environ["AITER_GPU_ARCHS"] = ";".join(archs)
    ignore_bytecode()
    frames.install()
    sort_globs()
    sys.argv = argv[2:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    # It has the folder of that file to itself, and qola may have copied the script to another.
    reads = Reads([str(seen.parent), os.path.dirname(os.path.abspath(script))])
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        seen.write_text(json.dumps(reads.end()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
