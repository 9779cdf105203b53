"""Translates a kernel into blocks of Python functions, one for each instruction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qola.code_object.reader import CodeObject, Kernel
from qola.emulate.bind import bind_table
from qola.emulate.buffers import BUFFERS
from qola.emulate.check import checking
from qola.emulate.control import BRANCHES, CONTROL, ENDS, NOTHING
from qola.emulate.decode import Instruction, pseudocode, sweep
from qola.emulate.faults import EmulationError, Fault, Kind
from qola.emulate.lanes import LANES, Binder
from qola.emulate.lds import LDS
from qola.emulate.matrix import bind_matrix, supported
from qola.emulate.mixed import MIXED
from qola.emulate.operands import Literals, UnsupportedError
from qola.emulate.scalar_memory import SCALAR_MEMORY
from qola.emulate.table import PACKED, SCALAR, VECTOR
from qola.emulate.waves import Layout, Step, Waves

#: Operations with a binder of their own.
BINDERS: dict[str, Binder] = {
    **LANES,
    **LDS,
    **BUFFERS,
    **SCALAR_MEMORY,
    **CONTROL,
    **MIXED,
}


def is_covered(name: str) -> bool:
    """Whether an operation is emulated."""
    tables = (BINDERS, VECTOR, SCALAR, PACKED, BRANCHES, ENDS, NOTHING)
    return any(name in table for table in tables) or supported(name)


def covered() -> list[str]:
    """All operations that are emulated, sorted."""
    tables = (BINDERS, VECTOR, SCALAR, PACKED, BRANCHES, ENDS, NOTHING)
    matrix = [name for name in pseudocode() if supported(name)]
    return sorted({name for table in tables for name in table} | set(matrix))


def bind(one: Instruction, literals: Literals) -> Step | None:
    """The function of an instruction; None where it changes nothing.

    Raises:
        UnsupportedError: it is not emulated.
    """
    if one.name in NOTHING:
        return None
    binder = BINDERS.get(one.name)
    if binder is not None:
        return binder(one, literals)
    if one.form == "VOP3P_MFMA":
        return bind_matrix(one, literals)
    step = bind_table(one, literals)
    if step is None:
        raise UnsupportedError("the operation is not emulated")
    return step


@dataclass
class Block:
    """Instructions that follow each other.

    Attributes:
        steps: their functions.
        places: the instruction of each.
        instructions: how many there are, those that change nothing included.
        end: the instruction that ends it, None where the next block begins.
        after: offset of the next instruction.
    """

    start: int
    steps: list[Step]
    places: list[Instruction]
    instructions: int
    end: Instruction | None
    after: int


class Program:
    """A kernel whose instructions are bound to functions; blocks are made when they are reached.

    Attributes:
        arch: that of its code object.
        code: the instruction at each offset, or the reason why it cannot be decoded.
        literals: constants that the ISA lacks, complete before the first wave starts.
    """

    def __init__(self, code_object: CodeObject, kernel: Kernel, checked: bool = False) -> None:
        self.arch = code_object.arch
        self.kernel = kernel
        self.checked = checked
        self.code = sweep(code_object.image[kernel.entry : kernel.entry + kernel.size])
        self.literals = Literals()
        self._bound: dict[int, Step | str | None] = {}
        self._blocks: dict[int, Block] = {}
        self._starts = set(_targets(self.code.values()))
        # Literals are registers, of which waves have a view each: they must not come later.
        for pc, one in self.code.items():
            self._bound[pc] = one if isinstance(one, str) else self._bind(one)

    @property
    def layout(self) -> Layout:
        """Registers that waves have."""
        descriptor = self.kernel.descriptor
        registers = max(descriptor.vgprs, descriptor.first_agpr)
        return Layout(registers, descriptor.first_agpr, tuple(self.literals.bits))

    def _bind(self, one: Instruction) -> Step | str | None:
        if one.name in BRANCHES or one.name in ENDS:
            return None
        try:
            step = bind(one, self.literals)
        except UnsupportedError as error:
            return str(error)
        if self.checked and step is not None:
            return checking(one, step)
        return step

    def unsupported(self, pc: int, why: str) -> EmulationError:
        """The error of an instruction that a wave came to and that cannot be run."""
        return self._error("unsupported", pc, why)

    def endless(self, pc: int, why: str) -> EmulationError:
        """The error of a launch that does not end."""
        return self._error("endless", pc, why)

    def _error(self, kind: Kind, pc: int, why: str) -> EmulationError:
        one = self.code.get(pc)
        text = one.text if isinstance(one, Instruction) else "no instruction"
        return EmulationError(Fault(kind, self.kernel.symbol, pc, text, why))

    def block(self, start: int) -> Block:
        """The block that begins at an offset."""
        found = self._blocks.get(start)
        if found is None:
            found = self._blocks[start] = self._read_block(start)
        return found

    def _read_block(self, start: int) -> Block:
        steps: list[Step] = []
        places: list[Instruction] = []
        pc, count = start, 0
        while pc == start or pc not in self._starts:
            one = self.code.get(pc)
            if one is None or isinstance(one, str):
                raise self.unsupported(pc, one or "outside of the kernel's code")
            count += 1
            if one.name in BRANCHES or one.name in ENDS:
                return Block(start, steps, places, count, one, pc + one.size)
            step = self._bound[pc]
            if isinstance(step, str):
                # It may never be reached: the error comes when it is.
                step = self._refusal(pc, step)
            if step is not None:
                steps.append(step)
                places.append(one)
            pc += one.size
        return Block(start, steps, places, count, None, pc)

    def _refusal(self, pc: int, why: str) -> Step:
        def refuse(w: Waves) -> None:
            raise self.unsupported(pc, why)

        return refuse

    def not_covered(self) -> Sequence[str]:
        """Return offset, instruction and reason for each that cannot be decoded or run."""
        return [
            f"+{pc:#x} {why if one is why else f'{one}: {why}'}"
            for pc, one in self.code.items()
            if isinstance(why := self._bound[pc], str)
        ]


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
