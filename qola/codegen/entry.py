"""Runs AITER's own generators of entry points, such as `csrc/cpp_itfs/mha_fwd_generate.py`."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from qola.aiter import AiterTree, GeneratorCall
from qola.codegen.process import run_module
from qola.codegen.types import GeneratedSource
from qola.errors import CodegenError, Finding

_SUFFIXES = (".cpp", ".hpp", ".h")


def generate_entry(
    tree: AiterTree, call: GeneratorCall, out_dir: Path, direction: str, *, folder: str = "dispatch"
) -> list[GeneratedSource]:
    """Run one generator in a clean folder and take over the sources it writes.

    Args:
        tree: the AITER tree the generator belongs to.
        call: the generator and its arguments.
        out_dir: the sources go to `folder` in it.
        direction: recorded in the result.
        folder: path below `out_dir`; exists.

    Raises:
        CodegenError: the generator fails, writes nothing, or writes what is no C++ source or
            stands outside the folder it was given.
    """
    place = f"{call.script} {' '.join(call.args)}"
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        cwd, written = root / "cwd", root / "out"
        cwd.mkdir()
        written.mkdir()
        arguments = [arg.replace("{}", str(written)) for arg in call.args]
        script = str((tree.root / call.script).absolute())
        run_module("qola.codegen.run_script", [script, *arguments], cwd=cwd, place=place)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        unexpected = [p for p in files if p.parent != written or p.suffix not in _SUFFIXES]
        if unexpected or not files:
            names = ", ".join(p.relative_to(root).as_posix() for p in unexpected)
            raise CodegenError(
                Finding(
                    place=place,
                    found=f"unexpected files: {names}" if names else "no file",
                    expected=f"files ending in {', '.join(_SUFFIXES)} in its output folder",
                )
            )
        return [_take(path, out_dir, f"{folder}/{path.name}", direction) for path in files]


def _take(path: Path, out_dir: Path, file: str, direction: str) -> GeneratedSource:
    data = path.read_bytes()
    target = out_dir / file
    if not target.is_file() or target.read_bytes() != data:
        target.write_bytes(data)
    return GeneratedSource(path.name, file, hashlib.sha256(data).hexdigest(), direction, "entry")
