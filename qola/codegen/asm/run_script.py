"""Runs one of AITER's generator scripts with stand-ins for modules that ask the machine.

Run as ``python -B -S -m qola.codegen.asm.run_script SEEN --archs=[ARCH,...] SCRIPT ARGUMENTS...``.
The names of files that the process opens are written to the file SEEN, as JSON.

AITER's `chip_info` runs `rocminfo`, needs PyTorch's build helpers and reads the architecture from
the environment. Generators only need the architectures with assembly (v3) kernels. Without any, the
entry points do not call v3, and `is_v3_api_check` returns -1 ("not served") without a launch.

`hsa/codegen.py` reads the architectures from AITER_GPU_ARCHS. It lists its tables with `glob`, here
with sorted results, and reads them with pandas.

Generators of GEMMs ask PyTorch for the GPU, and drop kernels that were tuned for other GPUs. Here
they find no GPU, since a plan must not depend on the machine that makes it.
"""

from __future__ import annotations

import glob
import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from qola.codegen.process import ignore_bytecode, offer_packages, prepare_generator
from qola_base.system_errors import disk_error

ONE_ARCH = "the script writes files for one arch"
"""End of the error of a script that asks for the arch and runs for several."""


def chip_info(archs: Sequence[str]) -> ModuleType:
    """Return the module that generators import as `chip_info`, for these architectures.

    Later trees read tuning tables with it: its other attributes are those of AITER's own module.
    """
    module = ModuleType("chip_info")
    replaced = {"get_gfx_list": lambda: list(archs), "get_gfx": lambda: _only(archs)}

    def further(name: str) -> Any:
        # Python looks up __path__ in every module.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_aiters_chip_info(replaced), name)

    vars(module).update(replaced, __getattr__=further)
    return module


def _aiters_chip_info(replaced: Mapping[str, object]) -> ModuleType:
    """Import AITER's chip_info from the folder that the script has added to Python's path."""
    name = "aiters_chip_info"
    if name in sys.modules:
        return sys.modules[name]
    spec = PathFinder.find_spec("chip_info")
    if spec is None or spec.loader is None:
        sys.exit("chip_info: no such file of AITER's in Python's path")
    # It imports these two to run rocminfo and to define operators of PyTorch.
    extension, guard = ModuleType("cpp_extension"), ModuleType("torch_guard")
    vars(extension)["executable_path"] = _no_program
    vars(guard)["torch_compile_guard"] = lambda *_, **__: lambda function: function
    sys.modules.update(cpp_extension=extension, torch_guard=guard)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).update(replaced)
    sys.modules[name] = module
    return module


def _no_program(name: str) -> str:
    sys.exit(f"{name}: a plan must not depend on the GPU of the machine")


def _only(archs: Sequence[str]) -> str:
    if len(archs) != 1:
        sys.exit(f"get_gfx() of {', '.join(archs) or 'no arch'}: {ONE_ARCH}")
    return archs[0]


def torch_without_gpu() -> dict[str, ModuleType]:
    """Return a stand-in for `torch` that finds no GPU: modules by name."""
    torch, cuda = ModuleType("torch"), ModuleType("torch.cuda")
    vars(cuda)["is_available"] = lambda: False
    vars(torch)["cuda"] = cuda
    return {"torch": torch, "torch.cuda": cuda}


def sort_globs() -> None:
    """Make `glob.glob` sort: scripts print files in this order, and file systems differ."""
    found = glob.glob
    glob.glob = lambda *args, **kwargs: sorted(found(*args, **kwargs))


def main(argv: list[str]) -> None:
    """Run a script with the arguments that follow it, as ``python SCRIPT`` would.

    Args:
        argv: the file for the names of opened files; ``--archs=`` with the architectures of the v3
            path, separated by commas; the script; its arguments.
    """
    seen, names, script = Path(argv[0]), argv[1].removeprefix("--archs="), argv[2]
    archs = [arch for arch in names.split(",") if arch]
    sys.modules["chip_info"] = chip_info(archs)
    sys.modules.update(torch_without_gpu())
    # As in AITER's build on a machine without a GPU.
    os.environ["AITER_GPU_ARCHS"] = os.environ["GPU_ARCHS"] = ";".join(archs)
    ignore_bytecode()
    offer_packages()
    sort_globs()
    sys.argv = argv[2:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    opened: dict[str, None] = {}
    sys.addaudithook(lambda event, args: note_opened(opened, event, args))
    try:
        runpy.run_path(script, run_name="__main__")
    except PermissionError as error:
        sys.exit(str(disk_error(error)))
    finally:
        listed = list(opened)  # writing opens a file, too
        seen.write_text(json.dumps(listed), encoding="utf-8")


def note_opened(opened: dict[str, None], event: str, args: tuple[object, ...]) -> None:
    """Note the file of an audit event, if it opens one."""
    if event == "open" and isinstance(args[0], (str, bytes, os.PathLike)):
        opened[os.path.abspath(os.fsdecode(args[0]))] = None


if __name__ == "__main__":
    prepare_generator()
    main(sys.argv[1:])
