"""Runs AITER's own generators of entry points, such as `csrc/cpp_itfs/mha_fwd_generate.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qola.aiter.tree import AiterTree, GeneratorCall
from qola.codegen.asm.script import run_script, write_source
from qola.codegen.types import GeneratedSource


def generate_entry(
    tree: AiterTree,
    call: GeneratorCall,
    out_dir: Path,
    direction: str,
    asm_archs: Sequence[str] = (),
    *,
    folder: str = "dispatch",
) -> list[GeneratedSource]:
    """Run one generator in a clean folder and take over the sources it writes.

    Args:
        tree: the AITER tree the generator belongs to.
        call: the generator and its arguments.
        out_dir: the sources go to `folder` in it.
        direction: recorded in the result.
        asm_archs: the architectures with a v3 (assembly) dispatch (`AsmSet.archs`): the entry
            point calls it for them. With one alone it does so whatever the device is.
        folder: path below `out_dir`; exists.

    Raises:
        CodegenError: the generator fails, writes nothing, or writes what is no C++ source or
            stands outside the folder it was given.
    """
    place = f"{call.script} {' '.join(call.args)}"
    files = run_script(tree.root / call.script, call.args, place, asm_archs)
    return [
        write_source(out_dir, f"{folder}/{name}", data, direction, "entry")
        for name, data in files.items()
    ]
