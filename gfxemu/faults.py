"""Faults of a kernel: each names kernel, pc, instruction and lane."""

from __future__ import annotations

from dataclasses import dataclass, field

from qola_base.errors import Finding, QolaError

#: What is right, by the kind of a fault.
_EXPECTED = {
    "out of range": "an address within the buffer, the LDS or the scratch memory it is for",
    "unmapped": "an address within an allocation",
    "misaligned": "a multiple of the size; of 4 if a plain access is larger",
    "uninitialised register": "a register that an instruction or the launch wrote",
    "uninitialised memory": "memory that the host or a kernel wrote",
    "uninitialised LDS": "LDS that an instruction wrote",
    "missing wait": "an s_waitcnt that covers the load before the register is used",
    "race": "an s_barrier between the accesses, and a wait for the first one before it",
    "unsupported": "an operation that docs/internals/emulation.md lists",
    "endless": "a kernel that ends",
    "trap": "a kernel without a failed assert, abort() or __builtin_trap()",
}

#: Titles of errors of kernels that make no invalid access.
_TITLES = {
    "unsupported": "the kernel cannot be emulated",
    "endless": "the kernel does not end",
    "trap": "the kernel ended itself",
}


@dataclass(frozen=True)
class Fault:
    """A forbidden access of a kernel, or an operation that is not emulated.

    Attributes:
        pc: offset of the instruction from the kernel's first, in bytes.
        workgroup: its number in the grid, x first; -1 if it is unknown.
        wave: number of the wave in the workgroup, or -1.
        lane: the first lane that did it, or -1.
    """

    kind: str
    kernel: str
    pc: int
    instruction: str
    detail: str
    workgroup: int = -1
    wave: int = -1
    lane: int = -1

    @property
    def place(self) -> str:
        """Kernel, pc and instruction, then workgroup, wave and lane."""
        numbers = {"workgroup": self.workgroup, "wave": self.wave, "lane": self.lane}
        who = [f"{name} {number}" for name, number in numbers.items() if number >= 0]
        return ", ".join([f"{self.kernel}{self.pc:+#x} {self.instruction}", *who])

    @property
    def is_hint(self) -> bool:
        """Whether it has no effect on most GPUs' results.

        Compilers read registers that nothing wrote where the result does not depend on them, and
        GPUs allow misaligned addresses, except of atomic operations.
        """
        name = self.instruction.partition("(")[0].lower()
        plain = any(word in name for word in ("load", "store", "read", "write"))
        return self.kind == "uninitialised register" or (self.kind == "misaligned" and plain)

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.place}: {self.kind}: {self.detail}"


class EmulationError(QolaError):
    """A kernel with a fault that ends its run."""

    def __init__(self, fault: Fault) -> None:
        found = Finding(fault.place, f"{fault.kind}: {fault.detail}", _EXPECTED[fault.kind])
        super().__init__(found, _TITLES.get(fault.kind, "the kernel makes an invalid access"))
        self.fault = fault

    def __reduce__(self) -> tuple[type[EmulationError], tuple[Fault]]:
        """Support pickling between processes."""
        return EmulationError, (self.fault,)


@dataclass
class Faults:
    """Faults of a run: the first one of each kind and instruction, as loops repeat them.

    Attributes:
        strict: the first one ends the run with an `EmulationError`.
        hints: hints do not end a strict run.
    """

    strict: bool = False
    hints: bool = False
    _found: dict[tuple[str, str, int], Fault] = field(default_factory=dict)

    def add(self, fault: Fault) -> None:
        """Record a fault, or raise it."""
        if self.strict and not (self.hints and fault.is_hint):
            raise EmulationError(fault)
        self._found.setdefault((fault.kind, fault.kernel, fault.pc), fault)

    @property
    def all(self) -> tuple[Fault, ...]:
        """The recorded faults, in order."""
        return tuple(self._found.values())
