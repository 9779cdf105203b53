"""What the emulator has to say of a kernel: each fault names kernel, pc, instruction and lane."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from qola.errors import Finding, QolaError

Kind = Literal[
    "out of range",
    "unmapped",
    "misaligned",
    "uninitialised register",
    "uninitialised LDS",
    "unsupported",
    "endless",
]

_EXPECTED: dict[Kind, str] = {
    "out of range": "an address within the buffer, the LDS or the scratch memory it is for",
    "unmapped": "an address within an allocation",
    "misaligned": "a multiple of the size; of 4 where it is larger, but for an atomic",
    "uninitialised register": "a register that was written before, or that the launch sets",
    "uninitialised LDS": "LDS that was written before",
    "unsupported": "what docs/internals/emulation.md lists",
    "endless": "a kernel that ends",
}


@dataclass(frozen=True)
class Fault:
    """One thing that a kernel did and must not, or that cannot be emulated.

    Attributes:
        pc: offset of the instruction from the kernel's first, in bytes.
        workgroup: its number in the grid, x first; -1 where that says nothing.
        wave: number of the wave in the workgroup, or -1.
        lane: the first lane that did it, or -1.
    """

    kind: Kind
    kernel: str
    pc: int
    instruction: str
    detail: str
    workgroup: int = -1
    wave: int = -1
    lane: int = -1

    @property
    def place(self) -> str:
        """Where it stands: kernel, pc and instruction, then who ran it."""
        numbers = {"workgroup": self.workgroup, "wave": self.wave, "lane": self.lane}
        who = [f"{name} {number}" for name, number in numbers.items() if number >= 0]
        return ", ".join([f"{self.kernel}+{self.pc:#x} {self.instruction}", *who])

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.place}: {self.kind}: {self.detail}"


class EmulationError(QolaError):
    """A kernel that cannot be run on, or did what it must not."""

    default_title = "the kernel cannot be emulated"

    def __init__(self, fault: Fault) -> None:
        super().__init__(
            Finding(fault.place, f"{fault.kind}: {fault.detail}", _EXPECTED[fault.kind])
        )
        self.fault = fault

    def __reduce__(self) -> tuple[type[EmulationError], tuple[Fault]]:
        """Let it pass between processes."""
        return EmulationError, (self.fault,)


@dataclass
class Faults:
    """Faults of a run, one for each kind and instruction: a loop does a thing a thousand times.

    Attributes:
        strict: the first one ends the run with an `EmulationError`.
    """

    strict: bool = False
    _found: dict[tuple[str, str, int], Fault] = field(default_factory=dict)

    def add(self, fault: Fault) -> None:
        """Keep a fault, or raise it."""
        if self.strict:
            raise EmulationError(fault)
        self._found.setdefault((fault.kind, fault.kernel, fault.pc), fault)

    def has(self, kind: Kind, kernel: str, pc: int) -> bool:
        """Whether one of a kind is known of an instruction."""
        return (kind, kernel, pc) in self._found

    @property
    def all(self) -> tuple[Fault, ...]:
        """What was found, in order."""
        return tuple(self._found.values())
