"""A kernel's instructions, and where its blocks begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gfxemu.decode import Instruction, sweep
from gfxemu.faults import EmulationError, Fault
from gfxemu.isa import ISAS
from gfxemu.printf import HOSTCALL
from gfxemu.races import size_of
from gfxemu.registers import Layout
from gfxemu.waits import Waits
from qola_base.arch_facts import ARCHS
from qola_base.code_object.reader import CodeObject, Kernel

#: Branches that some waves take, in the order of engine.c.
BRANCHES = (
    *("S_CBRANCH_SCC0", "S_CBRANCH_SCC1", "S_CBRANCH_VCCZ", "S_CBRANCH_VCCNZ"),
    *("S_CBRANCH_EXECZ", "S_CBRANCH_EXECNZ"),
)
#: Instructions that end a block, in addition to branches.
ENDS = frozenset({"S_BRANCH", "S_BARRIER", "S_ENDPGM", "S_SETPC_B64", "S_SWAPPC_B64", "S_CALL_B64"})


class Program:
    """A kernel, decoded.

    Attributes:
        arch: that of its code object.
        isa: the arch's instruction set.
        fnuz: whether the arch's floats of 8 bits have the FNUZ formats.
        code: the instruction at each offset, or the reason why it cannot be decoded.
        starts: offsets at which blocks begin.
        waits: outstanding loads of waves.
        lds_accesses: instructions that access the LDS.
        checked: whether reads of uninitialised registers are reported.
        hostcalls: whether it has an argument for calls of the host.
    """

    def __init__(
        self,
        code_object: CodeObject,
        kernel: Kernel,
        checked: bool = False,
        code: Mapping[int, Instruction | str] | None = None,
    ) -> None:
        """Take the instructions of a kernel, decoded from its code object unless given."""
        self.arch = code_object.arch
        self.isa = ISAS[self.arch]
        self.fnuz = ARCHS[self.arch].fp8 == "fnuz"
        self.kernel = kernel
        self.checked = checked
        self.code = read_code(code_object, kernel) if code is None else code
        self.hostcalls = any(argument.kind == HOSTCALL for argument in kernel.arguments)
        decoded = [one for one in self.code.values() if isinstance(one, Instruction)]
        self.lds_accesses = [one for one in decoded if size_of(one)]
        self.starts = set(_targets(self.code.values()))
        first_agpr = kernel.descriptor.first_agpr
        self.waits = Waits(self.code, frozenset(BRANCHES) | ENDS, self.starts, first_agpr)

    @property
    def layout(self) -> Layout:
        """Registers that waves have."""
        descriptor, isa = self.kernel.descriptor, self.isa
        first_agpr = descriptor.vgprs if isa.is_rdna else descriptor.first_agpr
        return Layout(max(descriptor.vgprs, first_agpr), first_agpr, isa.lanes)

    def error(self, kind: str, pc: int, why: str) -> EmulationError:
        """Return the error of an instruction that a wave reached."""
        one = self.code.get(pc)
        text = one.text if isinstance(one, Instruction) else "no instruction"
        return EmulationError(Fault(kind, self.kernel.symbol, pc, text, why))


def read_code(code_object: CodeObject, kernel: Kernel) -> dict[int, Instruction | str]:
    """Decode a kernel, and if it calls functions, all code that is not of another kernel.

    Returns:
        By the offset from the kernel, which is negative in front of it, the instruction, or the
        reason why there is none.
    """
    image, arch = code_object.image, code_object.arch
    code = sweep(image[kernel.entry : kernel.entry + kernel.size], arch)
    if not any(
        isinstance(one, Instruction) and one.name == "S_SWAPPC_B64" for one in code.values()
    ):
        return code
    place, end = code_object.text
    kernels = sorted((k.entry, k.size) for k in code_object.kernels.values())
    for entry, size in [*kernels, (end, 0)]:
        code |= sweep(image[place:entry], arch, place - kernel.entry)
        place = max(place, entry + size)
    return code


def _targets(code: Iterable[Instruction | str]) -> set[int]:
    """Return the targets of branches, and the offsets after them."""
    found: set[int] = set()
    for one in code:
        if isinstance(one, str):
            continue
        if one.name in BRANCHES or one.name in ENDS:
            found.add(one.pc + one.size)
        if one.name in BRANCHES or one.name in ("S_BRANCH", "S_CALL_B64"):
            found.add(one.target)
    return found
