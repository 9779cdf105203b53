"""Measures two ways to get AITER's assembly (v3) code objects into a library, and prints a table.

    bench/python bench/asm_embedding.py AITER_TREE

`.incbin` is what embedded_code_objects.bzl does; the other is an array of hexadecimal
numbers in C++, as AITER's and QoLA's embedding has it. Both have all .co files of fmha_v3_fwd and
fmha_v3_bwd for gfx942 and gfx950, aligned to 4096 bytes, and the resulting data are compared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ARCHS = ("gfx942", "gfx950")
_SUBDIRS = ("fmha_v3_fwd", "fmha_v3_bwd")
_SECTION = ".blobs"
_COMPILER = "hipcc"


@dataclass(frozen=True)
class Measured:
    """One compile.

    Attributes:
        cpu: user and system time, in seconds.
        memory: largest resident size of a process, in MiB.
        source: size of the source, in MB.
    """

    cpu: float
    memory: float
    source: float


def code_objects(tree: Path) -> list[Path]:
    """Return the .co files of the v3 kernels in an AITER tree, sorted."""
    root = tree / "aiter_meta/hsa"
    hsa = root if root.is_dir() else tree / "hsa"
    found = [p for a in _ARCHS for d in _SUBDIRS for p in sorted((hsa / a / d).rglob("*.co"))]
    if not found:
        sys.exit(f"{tree}: no .co files below hsa/: name the root of an AITER tree")
    return found


def incbin(files: Sequence[Path]) -> str:
    """Return assembly that includes the files."""
    lines = [f'.section {_SECTION}, "a", @progbits']
    for index, file in enumerate(files):
        lines += [f".globl b{index}", ".p2align 12", f"b{index}:", f'.incbin "{file}"']
    return "\n".join([*lines, '.section .note.GNU-stack, "", @progbits', ""])


def hexadecimal(files: Sequence[Path]) -> str:
    """Return C++ that spells the files out."""
    texts = []
    for index, file in enumerate(files):
        numbers = ",".join(f"0x{byte:02x}" for byte in file.read_bytes())
        texts.append(
            f'extern "C" alignas(4096) __attribute__((section("{_SECTION}"))) '
            f"const unsigned char b{index}[] = {{{numbers}}};\n"
        )
    return "".join(texts)


def compile_source(source: Path, language: str) -> Measured:
    """Compile one source to ``<source>.o`` and return what it took."""
    command = [_COMPILER, "-x", language, "-fPIC", "-c", str(source), "-o", f"{source}.o"]
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{source.name}: the compiler failed")
    return Measured(
        cpu=usage.ru_utime + usage.ru_stime,
        memory=usage.ru_maxrss / 1024,
        source=source.stat().st_size / 1e6,
    )


def section(source: Path, objcopy: str) -> bytes:
    """Return the code objects out of ``<source>.o``."""
    data = Path(f"{source}.data")
    command = [objcopy, f"--dump-section={_SECTION}={data}", f"{source}.o", "/dev/null"]
    subprocess.run(command, check=True)
    return data.read_bytes().rstrip(b"\0")


def main() -> int:
    """Measure both ways; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("tree", type=Path, help="root of an AITER tree")
    options = parser.parse_args()
    ask = [_COMPILER, "-print-prog-name=llvm-objcopy"]
    objcopy = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    files = code_objects(options.tree.resolve())
    size = sum(file.stat().st_size for file in files)
    print(f"{len(files)} code objects, {size:,} bytes\n")
    print("| How | Source | CPU time | Peak memory |")
    print("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        ways = {
            ".incbin": ("assembler", "blobs.s", incbin),
            "array of numbers in C++": ("c++", "blobs.cpp", hexadecimal),
        }
        found = []
        for label, (language, file, text) in ways.items():
            source = Path(name, file)
            source.write_text(text(files), encoding="utf-8")
            m = compile_source(source, language)
            found.append(section(source, objcopy))
            print(f"| {label} | {m.source:.2f} MB | {m.cpu:.2f} s | {m.memory:,.0f} MiB |")
    if found[0] != found[1]:
        sys.exit("the two objects do not hold the same data")
    return 0


if __name__ == "__main__":
    sys.exit(main())
