"""Runs random instructions, and collects exceptions that are not faults."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gfxemu import native
from gfxemu.decode import Instruction, sweep
from gfxemu.faults import EmulationError
from gfxemu.isa import ISAS
from gfxemu.launch import ARCHS, Options
from gfxemu.operands import UnsupportedError
from gfxemu.tests.machines import encode
from gfxemu.tests.programs import DESCRIPTOR, END, launch

#: Compiler options of an engine that ends the process at an access out of bounds.
#: It wraps, converts and shifts integers on purpose, and addresses may be misaligned.
SANITIZERS = (
    *("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "-fno-sanitize=shift,alignment,float-cast-overflow",
)
_RDNA_END = 0xBFB00000


def mutants(arch: str, count: int, seed: int) -> Iterator[tuple[Instruction, list[int]]]:
    """Yield random instructions that the emulator has, and their words."""
    rng = np.random.default_rng(seed)
    while count:
        words = [int(word) for word in rng.integers(1 << 32, size=3)]
        # Instructions with two words begin with ones, others are mostly moves and additions.
        words[0] |= int(rng.choice([0, 3, 0x33, 0x35, 0x37])) << 26
        if rng.random() < 0.5:
            # Registers at the ends of their files.
            words[1] |= int(rng.choice([0x7C, 0x7D, 0x7E, 0x7F])) << int(rng.integers(0, 26))
        one = sweep(b"".join(word.to_bytes(4, "little") for word in words), arch).get(0)
        if isinstance(one, str) or one is None:
            continue
        try:
            encode(one)
        except UnsupportedError:
            continue
        count -= 1
        yield one, words[: one.size // 4]


def find_errors(arch: str, count: int, seed: int = 1) -> list[str]:
    """Return the instructions whose launch ends with another exception than EmulationError."""
    is_rdna = ISAS[arch].is_rdna
    descriptor = replace(DESCRIPTOR, properties=DESCRIPTOR.properties | is_rdna << 10)
    found = []
    for one, words in mutants(arch, count, seed):
        # With a check of every register and byte, and without.
        for checked in (False, True):
            program = [*words, _RDNA_END if is_rdna else END]
            options = Options(limit=100, checked=checked)
            try:
                launch(program, descriptor, bytes(64), options, arch, block=(16, 1, 1))
            except EmulationError:
                continue
            except Exception as error:
                shown = " ".join(f"{word:08X}" for word in words)
                found.append(f"{arch} {shown} {one}: {type(error).__name__} {error}")
    return found


def run_with_sanitizers(
    module: str, directory: Path, arguments: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Start a module that calls `use_sanitizers`, in a process with their libraries."""
    compiler = shutil.which("gcc")
    if not compiler or not native.levels():
        pytest.skip("no gcc for an engine with sanitizers")
    libraries = []
    for name in ("libasan.so", "libubsan.so"):
        command = [compiler, f"-print-file-name={name}"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if not Path(found).is_absolute():
            pytest.skip(f"gcc without {name}")
        libraries.append(found)
    variables = {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}
    variables["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", module, compiler, str(directory), *arguments]
    return subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, check=False
    )


def use_sanitizers(compiler: str, directory: Path) -> None:
    """Let launches use an engine that is compiled with sanitizers, which the process has loaded."""
    flags = [flag for flag in native.FLAGS if flag != "-O3"]
    command = [compiler, f"-march={native.levels()[0]}", *flags, "-O1", *SANITIZERS]
    engine = native.compile_engine(command, directory)
    native.find_library = lambda environ: engine


def main(compiler: str, directory: Path, count: int) -> int:
    """Run random instructions with an engine that is compiled with sanitizers."""
    use_sanitizers(compiler, directory)
    errors = [error for arch in ARCHS for error in find_errors(arch, count, 2)]
    print("\n".join([*errors, "done"]))
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
