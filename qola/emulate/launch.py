"""A launch: workgroups of a grid, with registers as the kernel's descriptor asks for them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property, partial
from mmap import mmap

import numpy as np

from qola.code_object.reader import LDS_BYTES, CodeObject, Descriptor, Kernel
from qola.emulate.arrays import I64, U8, U32, Array
from qola.emulate.faults import EmulationError, Fault, Faults
from qola.emulate.machine import Machine
from qola.emulate.memory import AddressMap
from qola.emulate.program import Program
from qola.emulate.schedule import Schedule
from qola.emulate.waves import EXEC, LANES, SGPRS, Waves
from qola.emulate.workers import Share, in_processes
from qola.errors import Finding, QolaError

Dim = tuple[int, int, int]

ARCHS = ("gfx942", "gfx950")
"""The archs that are emulated."""

#: The most scratch memory of a lane in bytes: the memory of a wave is a number of 13 bits, in KiB
#: (WAVESIZE of COMPUTE_TMPRING_SIZE).
_MAX_SCRATCH = ((1 << 13) - 1) * 1024 // 64

#: Initial value of registers and LDS: a small negative float and a large integer, so that results
#: that depend on it are wrong.
_POISON = 0xBADDCAFE
#: User SGPRs that bits of the descriptor's properties enable, in this order: name and count.
_USER = (
    ("private_segment_buffer", 4),
    ("dispatch_ptr", 2),
    ("queue_ptr", 2),
    ("kernarg_segment_ptr", 2),
    ("dispatch_id", 2),
    ("flat_scratch_init", 2),
    ("private_segment_size", 1),
)
#: A dispatch packet: header, dimensions, workgroup, reserved, grid, private and group bytes,
#: kernel object, kernarg address, reserved, completion signal.
_PACKET = struct.Struct("<HHHHHHIIIIIQQQQ")


@dataclass(frozen=True)
class Options:
    """Options of a launch.

    Attributes:
        strict: the first fault is an error.
        checked: also report misaligned addresses and reads of registers and LDS before they are
            written; half as fast.
        waves: number of waves that run together; more are faster until caches are full.
        limit: number of instructions of waves after which a launch counts as endless.
        processes: number of processes that share the workgroups; memory must be shared between
            processes, as that of the fake HIP runtime is.
    """

    strict: bool = False
    checked: bool = False
    waves: int = 32
    limit: int = 2_000_000_000
    processes: int = 1


@dataclass(frozen=True)
class Result:
    """The result of a launch, apart from memory."""

    kernel: str
    instructions: int
    faults: tuple[Fault, ...]


@dataclass
class Device:
    """An emulated device: memory and loaded code.

    Attributes:
        map: allocations that kernels may touch.
    """

    options: Options = field(default_factory=Options)
    map: AddressMap = field(default_factory=AddressMap)

    def load(self, code: bytes, name: str = "code object") -> Module:
        """Load a code object."""
        return Module(self, CodeObject.read(code, name))

    def launch(
        self,
        module: Module,
        symbol: str,
        grid: Dim,
        block: Dim,
        kernarg: bytes,
        dynamic_lds: int = 0,
    ) -> Result:
        """Run a kernel; grid in workgroups, block in work-items, arguments as they lie in memory.

        Raises:
            EmulationError: an operation that is not emulated, or a fault if `strict` is set.
        """
        program = module.program(symbol)
        return _Launch(self, module, program, grid, block, kernarg, dynamic_lds).run()


class Module:
    """A code object in memory.

    Attributes:
        base: its address.
    """

    def __init__(self, device: Device, code_object: CodeObject) -> None:
        if code_object.arch not in ARCHS:
            found = f"an arch that is not emulated: {code_object.arch}"
            raise QolaError(Finding("code object", found, " or ".join(ARCHS)))
        self.code_object = code_object
        # The processes of a launch share it: kernels may write to variables of a module.
        self._image = np.frombuffer(mmap(-1, max(1, len(code_object.image))), U8)
        self._image[: len(code_object.image)] = np.frombuffer(code_object.image, U8)
        self.base = device.map.own(self._image)
        self._checked = device.options.checked
        self._programs: dict[str, Program] = {}

    def program(self, symbol: str) -> Program:
        """Return a kernel, bound to functions."""
        found = self._programs.get(symbol)
        if found is None:
            kernel = self.code_object.kernels[symbol]
            found = Program(self.code_object, kernel, self._checked)
            self._programs[symbol] = found
        return found


def _unsupported(descriptor: Descriptor) -> str:
    """Return a setting of a descriptor that is not emulated, "" if all are."""
    if descriptor.properties >> 10 & 1:
        return "waves of 32 lanes"
    if descriptor.float_mode & 0xF:
        return "rounding that is not to nearest"
    return "f16 that does not overflow (FP16_OVFL)" if descriptor.rsrc1 >> 26 & 1 else ""


@dataclass
class _Launch:
    device: Device
    module: Module
    program: Program
    grid: Dim
    block: Dim
    kernarg: bytes
    dynamic_lds: int

    @property
    def kernel(self) -> Kernel:
        return self.program.kernel

    @property
    def descriptor(self) -> Descriptor:
        return self.kernel.descriptor

    @cached_property
    def items(self) -> int:
        x, y, z = self.block
        return x * y * z

    def run(self) -> Result:
        options, descriptor = self.device.options, self.descriptor
        refused = _unsupported(descriptor) or self._too_large()
        if refused:
            raise EmulationError(
                Fault("unsupported", self.kernel.symbol, 0, "the descriptor", refused)
            )
        waves = -(-self.items // LANES)
        groups = self.grid[0] * self.grid[1] * self.grid[2]
        at_once = max(1, min(groups, options.waves // waves))
        faults = Faults(options.strict)
        owned = [self.device.map.own(array) for array in (self._arguments(), self._packet())]
        machine = Machine(
            kernel=self.kernel.symbol,
            map=self.device.map,
            faults=faults,
            lds_bytes=descriptor.lds_bytes + self.dynamic_lds,
            scratch_bytes=descriptor.scratch_bytes,
            groups=at_once,
            group_waves=waves,
            entry=self.module.base + self.kernel.entry,
            checked=options.checked,
            fnuz=self.program.arch == "gfx942",
        )
        starts = range(0, groups, at_once)
        count = max(1, min(options.processes, len(starts)))
        parts = [
            partial(self._part, machine, starts[number::count], groups, owned)
            for number in range(count)
        ]
        try:
            shares = in_processes(parts)
        finally:
            for address in owned:
                self.device.map.remove(address)
        for share in shares[1:]:
            for fault in share.faults:
                faults.add(fault)
        return Result(self.kernel.symbol, sum(share.instructions for share in shares), faults.all)

    def _too_large(self) -> str:
        """Return the size that exceeds a limit of the arch, with the limit; empty if all fit."""
        arch, lds = self.program.arch, self.descriptor.lds_bytes + self.dynamic_lds
        scratch = self.descriptor.scratch_bytes
        if lds > LDS_BYTES[arch]:
            limit = f"{LDS_BYTES[arch]:,}"
            return f"{lds:,} bytes of LDS, and a workgroup of {arch} has at most {limit}"
        if scratch > _MAX_SCRATCH:
            return f"{scratch:,} bytes of scratch memory, and a lane has at most {_MAX_SCRATCH:,}"
        return ""

    def _part(self, machine: Machine, starts: range, groups: int, owned: list[int]) -> Share:
        """Run some of the workgroups, as many at once as the machine can hold."""
        executed = 0
        for first in starts:
            some = range(first, min(first + machine.groups, groups))
            machine.begin(first, _POISON)
            live = np.full(machine.groups, machine.group_waves)
            schedule = Schedule(self.program, live, self.device.options.limit, executed)
            schedule.run(self._waves(machine, some, machine.group_waves, owned))
            executed = schedule.executed
        return Share(executed, machine.faults.all)

    def _arguments(self) -> Array:
        """Return the kernarg segment: the caller's arguments, then hidden ones with sizes."""
        size = max(
            [len(self.kernarg), *(a.offset + a.size for a in self.kernel.arguments)], default=0
        )
        segment = np.zeros(-(-max(size, 16) // 64) * 64, U8)
        segment[: len(self.kernarg)] = np.frombuffer(self.kernarg, U8)
        for argument in self.kernel.arguments:
            value = self._hidden(argument.kind)
            if value is not None and argument.offset + argument.size > len(self.kernarg):
                octets = value.to_bytes(argument.size, "little")
                segment[argument.offset : argument.offset + argument.size] = list(octets)
        return segment

    def _hidden(self, kind: str) -> int | None:
        for axis, grid, block in zip("xyz", self.grid, self.block, strict=True):
            if kind == f"hidden_block_count_{axis}":
                return grid
            if kind == f"hidden_group_size_{axis}":
                return block
        if kind == "hidden_grid_dims":
            sizes = zip(self.grid, self.block, strict=True)
            return max([1, *(axis for axis, pair in enumerate(sizes, 1) if max(pair) > 1)])
        return 0 if kind.startswith("hidden_") else None

    def _packet(self) -> Array:
        x, y, z = (count * size for count, size in zip(self.grid, self.block, strict=True))
        packed = _PACKET.pack(
            0,
            3,
            *self.block,
            0,
            x,
            y,
            z,
            self.descriptor.scratch_bytes,
            self.descriptor.lds_bytes + self.dynamic_lds,
            self.module.base,
            0,
            0,
            0,
        )
        return np.frombuffer(packed.ljust(64, b"\0"), U8).copy()

    def _waves(self, machine: Machine, groups: range, waves: int, owned: list[int]) -> Waves:
        """Return all waves of some workgroups, before their first instruction."""
        count = len(groups) * waves
        layout = self.program.layout
        v = np.full((layout.vgprs, count, LANES), _POISON, U32)
        s = np.full((count, SGPRS), _POISON, U32)
        known = None
        if machine.checked:
            known = np.zeros(v.shape, bool), np.zeros(s.shape, bool)
        item = (np.arange(waves)[:, None] * LANES + np.arange(LANES)).astype(U32)
        x, y, _ = (U32(size) for size in self.block)
        packed = item % x | item // x % y << U32(10) | item // (x * y) << U32(20)
        v[0] = np.tile(packed, (len(groups), 1))
        self._scalars(s, groups, waves, owned)
        lanes = np.tile(item < self.items, (len(groups), 1))
        s[:, EXEC : EXEC + 2] = np.packbits(lanes, axis=1, bitorder="little").view(U32)
        if known is not None:
            known[0][0] = True
            known[1][:] = s != _POISON
            known[1][:, self._set_scalars()] = True
        return Waves(
            layout,
            v,
            s,
            np.zeros((count, 1), bool),
            np.repeat(np.arange(len(groups)), waves).astype(I64),
            np.tile(np.arange(waves), len(groups)).astype(I64),
            0,
            machine,
            known,
        )

    def _set_scalars(self) -> slice:
        ids = sum(self.descriptor.workgroup_id(axis) for axis in range(3))
        return slice(0, self.descriptor.user_sgprs + ids)

    def _scalars(self, s: Array, groups: range, waves: int, owned: list[int]) -> None:
        """Write the SGPRs that the descriptor asks for: the caller's, then the workgroup's."""
        kernarg, packet = owned
        values = {"kernarg_segment_ptr": kernarg, "dispatch_ptr": packet}
        number = 0
        for bit, (name, count) in enumerate(_USER):
            if not self.descriptor.properties >> bit & 1:
                continue
            value = values.get(name, 0)
            for word in range(count):
                s[:, number] = value >> 32 * word & 0xFFFFFFFF
                number += 1
        if words := self.descriptor.preload_words:
            first = self.descriptor.preload_offset
            arguments = np.zeros(first + words, U32)
            segment = self._arguments().view(U32)[: len(arguments)]
            arguments[: len(segment)] = segment
            s[:, number : number + words] = arguments[first:]
        number = self.descriptor.user_sgprs
        x, y, _ = self.grid
        for axis, place in enumerate((1, x, x * y)):
            if self.descriptor.workgroup_id(axis):
                ids = np.array([group // place % self.grid[axis] for group in groups], U32)
                s[:, number] = np.repeat(ids, waves)
                number += 1
