"""Changes instructions of compiled and assembly kernels at random, and launches the kernels.

Every launch must end, or be refused: a fault, `unsupported` or `endless`, and no other exception.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gfxemu.arrays import U8
from gfxemu.decode import Instruction
from gfxemu.faults import EmulationError
from gfxemu.launch import ARCHS, Device, Module, Options
from gfxemu.program import Program
from gfxemu.tests.mutants import use_sanitizers
from qola_base.code_object.reader import CodeObject, Descriptor, Kernel
from tests.library.offload import code_objects

#: Bytes that kernels may access, which each pointer of their arguments points into.
_BUFFER = 1 << 16
#: Instructions of waves after which a launch counts as endless.
_LIMIT = 3000
#: Kernels of more bytes take too long to decode again for each mutant.
_MOST_BYTES = 40_000
#: Start and machine type of an ELF file for AMD GPUs.
_ELF, _AMDGPU = b"\x7fELF", 224
#: Ends of the files of scalar and vector registers, and what lies between them.
_EDGES = (0x69, 0x6B, 0x7B, 0x7C, 0x7D, 0x7E, 0x7F, 0xF9, 0xFA, 0xFE, 0xFF)


@dataclass(frozen=True)
class Original:
    """A kernel, and the offset and size of each instruction that a launch executes."""

    name: str
    code_object: CodeObject
    kernel: Kernel
    executed: Sequence[tuple[int, int]]


def read_kernels(files: Sequence[Path]) -> Iterator[tuple[str, CodeObject, Kernel]]:
    """Yield the kernels of libraries and programs, each machine code once."""
    seen = set()
    for file in files:
        data = file.read_bytes()
        found = [code for arch, code in code_objects(data) if arch in ARCHS]
        for code in [*found, *_embedded(data)]:
            code_object = CodeObject.read(code)
            for kernel in code_object.kernels.values():
                content = code_object.image[kernel.entry : kernel.entry + kernel.size]
                if content not in seen and len(content) <= _MOST_BYTES:
                    seen.add(content)
                    name = f"{file.name} {code_object.arch} {kernel.symbol}"
                    yield name, code_object, kernel


def _embedded(data: bytes) -> Iterator[bytes]:
    """Yield the code objects that a library contains as they are: assembly kernels."""
    place = data.find(_ELF, 1)
    while place > 0:
        if struct.unpack_from("<H", data, place + 18)[0] == _AMDGPU:
            (sections,) = struct.unpack_from("<Q", data, place + 40)
            size, count = struct.unpack_from("<HH", data, place + 58)
            yield data[place : place + sections + size * count]
        place = data.find(_ELF, place + 1)


def launch(code_object: CodeObject, kernel: Kernel, rng: random.Random) -> Program:
    """Launch two workgroups with arguments that point into a buffer, or are small numbers."""
    device = Device(Options(limit=_LIMIT, waves=8), write=lambda *_: None)
    buffer = np.zeros(_BUFFER, U8)
    address = device.map.own(buffer)
    words = [
        address + 256 * rng.randrange(32) if rng.random() < 0.7 else rng.randrange(1 << 8)
        for _ in range(1 + kernel.descriptor.kernarg_bytes // 8)
    ]
    kernarg = struct.pack(f"<{len(words)}Q", *words)[: kernel.descriptor.kernarg_bytes]
    code_object = replace(code_object, kernels={kernel.symbol: kernel})
    module = Module(device, code_object)
    program = module.program(kernel.symbol)
    block = min(kernel.max_block, rng.choice((64, 128, 256)))
    with suppress(EmulationError):
        device.launch(module, kernel.symbol, (2, 1, 1), (block, 1, 1), kernarg)
    return program


def read_original(name: str, code_object: CodeObject, kernel: Kernel) -> Original:
    """Launch a kernel as it is."""
    program = launch(code_object, kernel, random.Random(name))
    starts, executed = program.waits.executed(), []
    reached = False
    for pc, one in program.code.items():
        reached = pc in starts or (reached and pc not in program.starts)
        if reached and isinstance(one, Instruction) and 0 <= pc < kernel.size:
            executed.append((pc, one.size))
    return Original(name, code_object, kernel, executed)


def mutate(
    original: Original, others: Sequence[Original], rng: random.Random
) -> tuple[CodeObject, Kernel, str]:
    """Return a kernel with some changed instructions, and a description of the changes."""
    image, kernel, done = bytearray(original.code_object.image), original.kernel, []
    for _ in range(rng.choice((1, 1, 2, 4))):
        pc, size = rng.choice(original.executed)
        place = kernel.entry + pc
        if rng.random() < 0.2:
            # An instruction of another kernel for the arch.
            other = rng.choice(others)
            start, size = rng.choice(other.executed)
            start += other.kernel.entry
            image[place : place + size] = other.code_object.image[start : start + size]
        elif rng.random() < 0.5:
            # Registers, and parts of opcodes and offsets.
            image[place + rng.randrange(size)] = rng.choice(_EDGES)
        else:
            for _ in range(rng.choice((1, 2))):
                bit = rng.randrange(8 * size)
                image[place + bit // 8] ^= 1 << bit % 8
        done.append(f"{pc:+#x} {image[place : place + size].hex()}")
    if rng.random() < 0.2:
        descriptor = _change(kernel.descriptor, rng)
        kernel = replace(kernel, descriptor=descriptor)
        done.append(str(descriptor))
    return replace(original.code_object, image=bytes(image)), kernel, ", ".join(done)


def _change(descriptor: Descriptor, rng: random.Random) -> Descriptor:
    """Change a size of a descriptor, or one of its bits."""
    name = rng.choice(("lds_bytes", "scratch_bytes", "rsrc1", "rsrc2", "rsrc3", "properties"))
    value = getattr(descriptor, name)
    if name.endswith("bytes"):
        return replace(descriptor, **{name: rng.choice((0, value // 2, value + 4, 1 << 31))})
    if name == "rsrc1" and rng.random() < 0.5:
        # Fewer vector registers.
        return replace(descriptor, rsrc1=value & ~0x3F | rng.randrange(1 + (value & 0x3F)))
    return replace(descriptor, **{name: value ^ 1 << rng.randrange(14)})


def run_mutants(files: Sequence[Path], count: int, seed: int) -> list[str]:
    """Launch mutants, as many of each arch; return those that end with another exception.

    Each is printed before its launch: the last one is the one that ended the process.
    """
    originals: dict[str, list[Original]] = {}
    for name, code_object, kernel in read_kernels(files):
        print(name, flush=True)
        if (original := read_original(name, code_object, kernel)).executed:
            originals.setdefault(code_object.arch, []).append(original)
    errors = []
    for arch, some in sorted(originals.items()):
        rng = random.Random(f"{arch} {seed}")
        for number in range(count // len(originals)):
            original = some[number % len(some)]
            code_object, kernel, changes = mutate(original, some, rng)
            print(f"{original.name} {changes}", flush=True)
            try:
                launch(code_object, kernel, rng)
            except Exception as error:
                errors.append(f"{original.name} {changes}: {type(error).__name__} {error}")
    print(f"{count} mutants of {', '.join(summary(originals))}")
    return errors


def summary(originals: Mapping[str, Sequence[Original]]) -> list[str]:
    """Return how many kernels each arch has."""
    return [f"{len(some)} kernels of {arch}" for arch, some in sorted(originals.items())]


def main(compiler: str, directory: str, count: str, *files: str) -> int:
    """Run mutants of the kernels in files with an engine that is compiled with sanitizers."""
    use_sanitizers(compiler, Path(directory))
    errors = run_mutants([Path(file) for file in files], int(count), 1)
    print("\n".join([*errors, "done"]))
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
