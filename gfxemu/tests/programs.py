"""Small hand-assembled programs of scalar instructions, and their final registers."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from gfxemu.arrays import U32
from gfxemu.decode import Instruction, decode
from gfxemu.encode import encode
from gfxemu.faults import Faults
from gfxemu.launch import Device, Dim, Module, Options, Result
from gfxemu.machine import Machine
from gfxemu.memory import AddressMap
from gfxemu.program import Program
from gfxemu.registers import EXEC, LANES, SGPRS, VCC
from gfxemu.tests import machines
from qola_base.code_object.reader import Argument, CodeObject, Descriptor, Kernel

SOPP = {
    "S_ENDPGM": 1,
    "S_BRANCH": 2,
    "S_CBRANCH_SCC0": 4,
    "S_CBRANCH_SCC1": 5,
    "S_CBRANCH_VCCZ": 6,
    "S_CBRANCH_VCCNZ": 7,
    "S_CBRANCH_EXECZ": 8,
    "S_CBRANCH_EXECNZ": 9,
    "S_BARRIER": 10,
}
END = 0xBF800000 | 1 << 16
#: s0 and s1 hold the kernarg segment's address, s2 to s4 its first three words.
DESCRIPTOR = Descriptor(0, 0, 0, 0, 0, 5 << 1, 0, 1 << 3, 3, 0)


def not_covered(program: Program) -> list[str]:
    """Return offset, instruction and reason for each instruction that cannot run."""
    refused = encode(program).refusals
    return [
        f"+{pc:#x} {insn if isinstance(insn, str) else f'{insn}: {refused[pc]}'}"
        for pc, insn in program.code.items()
        if isinstance(insn, str) or pc in refused
    ]


def load(
    words: Sequence[int],
    descriptor: Descriptor,
    arguments: tuple[Argument, ...] = (),
    options: Options | None = None,
    arch: str = "gfx942",
) -> tuple[Device, Module]:
    """Load a code object with one kernel into a new device."""
    image = struct.pack(f"<{len(words)}I", *words)
    kernel = Kernel("test", 0, len(image), descriptor, arguments, 1024)
    device = Device(options or Options(strict=True))
    return device, Module(device, CodeObject(arch, image, {"test": kernel}))


def launch(
    words: Sequence[int],
    descriptor: Descriptor = DESCRIPTOR,
    arguments: bytes = b"",
    options: Options | None = None,
    arch: str = "gfx942",
    *,
    grid: Dim = (1, 1, 1),
    block: Dim = (64, 1, 1),
    lds: int = 0,
) -> Result:
    """Launch a kernel on a new device.

    Args:
        lds: dynamic LDS in bytes.

    Raises:
        EmulationError: as `Device.launch`.
    """
    device, module = load(words, descriptor, (), options, arch)
    return device.launch(module, "test", grid, block, arguments, lds)


def sopp(name: str, distance: int = 0) -> int:
    return 0xBF800000 | SOPP[name] << 16 | distance & 0xFFFF


def wait(vm: int = 63, lgkm: int = 15) -> int:
    return 0xBF8C0070 | vm & 15 | vm >> 4 << 14 | lgkm << 8


def movk(register: int, value: int) -> int:
    return 0xB0000000 | register << 16 | value & 0xFFFF


def addk(register: int, value: int) -> int:
    return 0xB0000000 | 14 << 23 | register << 16 | value & 0xFFFF


def cmp_lg(register: int, constant: int) -> int:
    return 0xBF000000 | 7 << 16 | 128 + constant << 8 | register


def execute(
    words: Sequence[int], scalars: Sequence[dict[int, int]], limit: int = 10_000
) -> dict[int, list[int]]:
    """Run a workgroup with a wave for each dict of SGPRs; return the final SGPRs 0 to 15."""
    _, module = load(words, Descriptor(0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    program = module.program("test")
    count = len(scalars)
    s = np.zeros((count, SGPRS), U32)
    s[:, EXEC : EXEC + 2] = 0xFFFFFFFF
    for wave, values in enumerate(scalars):
        for number, value in values.items():
            s[wave, number] = value
    machine = Machine("test", AddressMap(), Faults(), 0, 0, 1, count, entry=0x10000)
    v = np.zeros((program.layout.vgprs, count, LANES), U32)
    w = machines.Waves(v, s, False, machine)
    machines.run_program(program, w, limit)
    return {wave: [int(value) for value in w.s[wave, :16]] for wave in range(count)}


def check(name: str) -> None:
    """Test a branch or end instruction with waves that diverge."""
    if name.startswith("S_CBRANCH"):
        # SCC is 1 if s0 is not 0; the branch skips a move.
        words = [cmp_lg(0, 0), sopp(name, 1), movk(1, 7), END]
        vcc = name.startswith("S_CBRANCH_VCC")
        mask = VCC if vcc else EXEC
        waves: list[dict[int, int]] = [{0: 1, mask: 1, mask + 1: 0}, {0: 0, mask: 0, mask + 1: 0}]
        skips_first = name.endswith(("SCC1", "NZ"))
        found = execute(words, waves)
        assert [found[0][1], found[1][1]] == ([0, 7] if skips_first else [7, 0])
    elif name in ("S_BRANCH", "S_ENDPGM"):
        assert execute([sopp("S_BRANCH", 1), movk(1, 7), END], [{}])[0][1] == 0
    elif name == "S_BARRIER":
        # The second wave counts to 3 before it reaches the barrier; both waves end.
        words = [cmp_lg(0, 0), sopp("S_CBRANCH_SCC0", 2), addk(0, -1), sopp("S_BRANCH", -4)]
        found = execute([*words, sopp("S_BARRIER"), movk(1, 7), END], [{0: 0}, {0: 3}])
        assert [found[0][1], found[1][1]] == [7, 7]
    else:
        _jumps(name)


def _jumps(name: str) -> None:
    # The code starts at 0x10000; s2 and s3 hold the jump target, after the move.
    if name == "S_CALL_B64":
        words = [0xB0000000 | 21 << 23 | 4 << 16 | 1, movk(1, 7), END]
    else:
        opcode = {"S_SETPC_B64": 29, "S_SWAPPC_B64": 30}[name]
        words = [0xBE800000 | 4 << 16 | opcode << 8 | 2, movk(1, 7), END]
    found = execute(words, [{2: 0x10008, 3: 0}])[0]
    assert found[1] == 0
    assert found[4] == (0 if name == "S_SETPC_B64" else 0x10004)


def decode_words(*words: int, arch: str = "gfx1201") -> Instruction:
    """Decode the instruction that begins with some words."""
    return decode(struct.pack(f"<{len(words)}I", *words), 0, arch)
