"""A launch: workgroups of a grid, with registers as the kernel's descriptor asks for them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gfxemu.arrays import U8, U32, U64, Array
from gfxemu.faults import EmulationError, Fault, Faults
from gfxemu.isa import ISAS
from gfxemu.machine import Machine
from gfxemu.memory import AddressMap
from gfxemu.native import NativeProgram, NativeRun, Waves
from gfxemu.operands import UnsupportedError
from gfxemu.printf import (
    HOSTCALL,
    PRINTF,
    HostcallBuffer,
    PrintfBuffer,
    Write,
    write_to_stream,
)
from gfxemu.program import Program
from gfxemu.registers import EXEC, NULL, SGPRS
from qola_base.arch_facts import ARCHS as FACTS
from qola_base.code_object.reader import CodeObject, Descriptor, Kernel
from qola_base.errors import Finding, QolaError

Dim = tuple[int, int, int]

ARCHS = tuple(ISAS)
"""The archs that are emulated."""

#: The most scratch memory of a lane in bytes: the memory of a wave is a number of 13 bits, in KiB
#: (WAVESIZE of COMPUTE_TMPRING_SIZE).
_MAX_SCRATCH = ((1 << 13) - 1) * 1024 // 64

#: The most work-items of a workgroup, and of a grid on an axis; the most workgroups on an axis of
#: which a TTMP register has the index in its half.
_MAX_ITEMS, _MAX_GRID, _MAX_TTMP = 1024, (1 << 32) - 1, (1 << 16) - 1
#: The most user SGPRs (LLVM's getMaxNumUserSGPRs).
_MAX_USER = 16

#: Initial value of registers, LDS and scratch memory: a NaN as f16, bf16, f32, f64 and OCP's floats
#: of 8 bits, so that a sum that begins with it is wrong; the FNUZ formats have no NaN but 0x80.
UNWRITTEN = 0xFFFFFFFF
#: Numbers of user SGPRs that bits of the descriptor's properties enable: private segment buffer,
#: dispatch, queue, kernarg segment, dispatch id, flat scratch, private segment size. All but the
#: addresses of scratch memory, the dispatch packet and the kernarg segment are 0, where no kernel
#: finds memory.
_USER = (4, 2, 2, 2, 2, 2, 1)
_SCRATCH, _DISPATCH, _KERNARG = 0, 1, 3
#: Number of the first TTMP register. RDNA4 has the workgroup's index on the first axis in the
#: tenth, on the other axes in halves of the eighth, and the wave's number from bit 25 of the ninth.
_TTMP = 108


@dataclass(frozen=True)
class Options:
    """Options of a launch.

    Attributes:
        strict: the first fault is an error.
        hints: a fault that is a hint is no error, but only in the result.
        checked: also report misaligned addresses and reads of uninitialised registers, LDS, and
            memory whose writes are followed.
        waves: number of waves that run together; more are faster until caches are full.
        limit: number of instructions of waves after which a launch counts as endless.
    """

    strict: bool = False
    hints: bool = False
    checked: bool = False
    waves: int = 32
    limit: int = 2_000_000_000


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
        write: writes the text of printf and assert in kernels.
    """

    options: Options = field(default_factory=Options)
    map: AddressMap = field(default_factory=AddressMap)
    write: Write = write_to_stream

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
        # A copy: kernels may write to variables of a module.
        self.base = device.map.own(np.frombuffer(code_object.image.ljust(1, b"\0"), U8).copy())
        self._checked = device.options.checked
        self._programs: dict[str, Program] = {}
        self._natives: dict[str, NativeProgram] = {}

    def program(self, symbol: str) -> Program:
        """Return a kernel, decoded."""
        found = self._programs.get(symbol)
        if found is None:
            kernel = self.code_object.kernels[symbol]
            found = Program(self.code_object, kernel, self._checked)
            self._programs[symbol] = found
        return found

    def forget_blocks(self) -> None:
        """Forget which blocks of its kernels waves have run (`Waits.executed`)."""
        for program in self._programs.values():
            program.waits.forget()
        for native in self._natives.values():
            native.passages.table[:] = -1

    def native(self, program: Program) -> NativeProgram:
        """Return a kernel, encoded for the engine in C."""
        symbol = program.kernel.symbol
        if symbol not in self._natives:
            self._natives[symbol] = NativeProgram.make(program)
        return self._natives[symbol]


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

    @cached_property
    def group_waves(self) -> int:
        """Waves of a workgroup."""
        return -(-self.items // self.program.isa.lanes)

    @cached_property
    def groups(self) -> int:
        x, y, z = self.grid
        return x * y * z

    @cached_property
    def at_once(self) -> int:
        """Workgroups that run together."""
        return max(1, min(self.groups, self.device.options.waves // self.group_waves))

    @cached_property
    def hostcalls(self) -> HostcallBuffer | None:
        """The buffer for calls of the host, if the kernel has an argument for it."""
        if not self.program.hostcalls:
            return None
        return HostcallBuffer(self.at_once * self.group_waves, self.device.write)

    @cached_property
    def printf(self) -> PrintfBuffer | None:
        """The buffer of `-mprintf-kind=buffered`, if the kernel has an argument for it."""
        needed = any(argument.kind == PRINTF for argument in self.kernel.arguments)
        return PrintfBuffer() if needed else None

    def run(self) -> Result:
        options, descriptor = self.device.options, self.descriptor
        if refusal := self._refusal():
            symbol = self.kernel.symbol
            raise EmulationError(Fault("unsupported", symbol, 0, "the descriptor", refusal))
        waves, groups = self.group_waves, self.groups
        faults = Faults(options.strict, options.hints)
        kernarg = self.device.map.own(self._arguments())
        packet = self.device.map.own(self._packet(kernarg))
        buffers = [b for b in (self.hostcalls, self.printf) if b]
        for buffer in buffers:
            self.device.map.own(buffer.array)
        machine = Machine(
            kernel=self.kernel.symbol,
            map=self.device.map,
            faults=faults,
            lds_bytes=descriptor.lds_bytes + self.dynamic_lds,
            scratch_bytes=descriptor.scratch_bytes,
            groups=self.at_once,
            group_waves=waves,
            entry=self.module.base + self.kernel.entry,
            checked=self.program.checked,
            lanes=self.program.isa.lanes,
            lds_accesses=self.program.lds_accesses,
            hostcalls=self.hostcalls,
        )
        # Generic pointers reach the LDS, too.
        self.device.map.add(machine.lds_start, len(machine.lds))
        # And scratch memory, which buffers of gfx90a reach, too.
        self.device.map.add(machine.scratch_start, len(machine.scratch))
        executed = 0
        native = self.module.native(self.program)
        try:
            for first in range(0, groups, self.at_once):
                some = range(first, min(first + self.at_once, groups))
                machine.begin(first, UNWRITTEN)
                first_waves = self._waves(machine, some, waves, kernarg, packet)
                executed = NativeRun(native, first_waves, machine, options.limit, executed).run()
        finally:
            self.device.map.remove(kernarg)
            self.device.map.remove(packet)
            for buffer in buffers:
                self.device.map.remove(buffer.address)
            self.device.map.remove(machine.lds_start)
            self.device.map.remove(machine.scratch_start)
            if self.printf:
                self._print(self.printf)
        return Result(self.kernel.symbol, executed, faults.all)

    def _print(self, buffer: PrintfBuffer) -> None:
        try:
            buffer.print(self.module.code_object.printf_formats, self.device.write)
        except UnsupportedError as error:
            fault = Fault("unsupported", self.kernel.symbol, 0, "printf", str(error))
            raise EmulationError(fault) from error

    def _refusal(self) -> str:
        """Return a setting of the descriptor that is not emulated, or a size that no device has."""
        arch, descriptor = self.program.arch, self.descriptor
        if refusal := self._refused_size():
            return refusal
        lds, scratch = descriptor.lds_bytes + self.dynamic_lds, descriptor.scratch_bytes
        if (lanes := 32 if descriptor.properties >> 10 & 1 else 64) != self.program.isa.lanes:
            return f"waves of {lanes} lanes"
        if descriptor.float_mode & 0xF:
            return "rounding that is not to nearest"
        if descriptor.rsrc1 >> 26 & 1:
            return "f16 that does not overflow (FP16_OVFL)"
        if lds > FACTS[arch].lds_bytes:
            limit = f"{FACTS[arch].lds_bytes:,}"
            return f"{lds:,} bytes of LDS, and a workgroup of {arch} has at most {limit}"
        if scratch > _MAX_SCRATCH:
            return f"{scratch:,} bytes of scratch memory, and a lane has at most {_MAX_SCRATCH:,}"
        return ""

    def _refused_size(self) -> str:
        """Return a size of the launch that no device has; empty without one."""
        if min(*self.grid, *self.block) < 1:
            return (
                f"a grid of {self.grid} workgroups of {self.block} work-items, and 1 is the least"
            )
        if self.items > _MAX_ITEMS:
            return f"a workgroup of {self.items:,} work-items, and it has at most {_MAX_ITEMS:,}"
        items = [grid * block for grid, block in zip(self.grid, self.block, strict=True)]
        if max(items) > _MAX_GRID:
            return (
                f"a grid of {max(items):,} work-items on an axis, and it has at most {_MAX_GRID:,}"
            )
        if self.program.isa.ids_in_ttmp and max(self.grid[1:]) > _MAX_TTMP:
            return f"a grid of {self.grid} workgroups, and an axis has at most {_MAX_TTMP:,}"
        descriptor = self.descriptor
        user = sum(count for bit, count in enumerate(_USER) if descriptor.properties >> bit & 1)
        if max(user + descriptor.preload_words, descriptor.user_sgprs) > _MAX_USER:
            words = f"{user} words of addresses and {descriptor.preload_words} preloaded ones"
            return f"{words} in {descriptor.user_sgprs} user SGPRs, and a wave has {_MAX_USER}"
        return ""

    def _arguments(self) -> Array:
        """Return the kernarg segment: the caller's arguments, then hidden ones with sizes."""
        size = max(
            [len(self.kernarg), *(a.offset + a.size for a in self.kernel.arguments)], default=0
        )
        segment = np.zeros(-(-max(size, 16) // 64) * 64, U8)
        segment[: len(self.kernarg)] = np.frombuffer(self.kernarg, U8)
        sizes = [*zip("xyz", self.grid, self.block, strict=True)]
        used = [axis for axis, (_, *pair) in enumerate(sizes, 1) if max(pair) > 1]
        hidden = {"hidden_grid_dims": max([1, *used])}
        for axis, grid, block in sizes:
            hidden |= {f"hidden_block_count_{axis}": grid, f"hidden_group_size_{axis}": block}
        buffers = {HOSTCALL: self.hostcalls, PRINTF: self.printf}
        hidden |= {kind: buffer.address for kind, buffer in buffers.items() if buffer}
        for argument in self.kernel.arguments:
            start, end = argument.offset, argument.offset + argument.size
            # The runtime, which lays out the other hidden arguments, has no such buffers.
            missing = end > len(self.kernarg) or argument.kind in buffers
            if argument.kind.startswith("hidden_") and missing:
                octets = hidden.get(argument.kind, 0).to_bytes(argument.size, "little")
                segment[start:end] = list(octets)
        return segment

    def _packet(self, kernarg: int) -> Array:
        """Return the dispatch packet: hsa_kernel_dispatch_packet_t without header and signal."""
        sizes = [grid * block for grid, block in zip(self.grid, self.block, strict=True)]
        lds = self.descriptor.lds_bytes + self.dynamic_lds
        code = self.module.base + self.kernel.entry
        sizes += [self.descriptor.scratch_bytes, lds]
        octets = struct.pack("<6H5I2Q16x", 0, 3, *self.block, 0, *sizes, code, kernarg)
        return np.frombuffer(octets, U8).copy()

    def _waves(
        self, machine: Machine, groups: range, waves: int, kernarg: int, packet: int
    ) -> Waves:
        """Return all waves of some workgroups, before their first instruction."""
        v, s = self._registers(machine, groups, waves, kernarg, packet, UNWRITTEN)
        found = Waves.begin(v, s, len(groups))
        if machine.checked:
            # The launch wrote the registers whose values do not depend on the initial one.
            others = self._registers(machine, groups, waves, kernarg, packet, 0)
            lanes = np.packbits(v == others[0], axis=2, bitorder="little")
            found.known_v = np.zeros((*v.shape[:2], 8), U8)
            found.known_v[:, :, : lanes.shape[2]] = lanes
            found.known_v = found.known_v.view(U64)[:, :, 0].copy()
            found.known_s = (s == others[1]).astype(U8)
        return found

    def _registers(
        self,
        machine: Machine,
        groups: range,
        waves: int,
        kernarg: int,
        packet: int,
        unwritten: int,
    ) -> tuple[Array, Array]:
        """Return vector and scalar registers of waves, with a value for those without a content."""
        count = len(groups) * waves
        layout = self.program.layout
        lanes = layout.lanes
        v = np.full((count, layout.vgprs, lanes), unwritten, U32)
        s = np.full((count, SGPRS), unwritten, U32)
        if self.program.isa.is_rdna:
            s[:, NULL] = 0
        item = (np.arange(waves)[:, None] * lanes + np.arange(lanes)).astype(U32)
        x, y, _ = (U32(size) for size in self.block)
        packed = item % x | item // x % y << U32(10) | item // (x * y) << U32(20)
        v[:, 0] = np.tile(packed, (len(groups), 1))
        # For gfx90a scratch memory is a buffer, swizzled by bit 63.
        scratch = machine.scratch_start | 1 << 63
        self._scalars(s, groups, waves, {_SCRATCH: scratch, _DISPATCH: packet, _KERNARG: kernarg})
        active = np.tile(item < self.items, (len(groups), 1))
        masks = np.packbits(active, axis=1, bitorder="little").view(U32)
        s[:, EXEC : EXEC + masks.shape[1]] = masks
        return v, s

    def _scalars(self, s: Array, groups: range, waves: int, addresses: dict[int, int]) -> None:
        """Write the SGPRs that the descriptor asks for: the caller's, then the workgroup's."""
        number = 0
        for bit, count in enumerate(_USER):
            if self.descriptor.properties >> bit & 1:
                s[:, number : number + count] = 0
                if address := addresses.get(bit):
                    s[:, number : number + 2] = address & 0xFFFFFFFF, address >> 32
                number += count
        if words := self.descriptor.preload_words:
            first = self.descriptor.preload_offset
            arguments = np.zeros(first + words, U32)
            segment = self._arguments().view(U32)[: len(arguments)]
            arguments[: len(segment)] = segment
            s[:, number : number + words] = arguments[first:]
        number = self.descriptor.user_sgprs
        x, y, _ = self.grid
        ids = [
            np.repeat(np.array([group // place % size for group in groups], U32), waves)
            for place, size in zip((1, x, x * y), self.grid, strict=True)
        ]
        if self.program.isa.ids_in_ttmp:
            third = self.descriptor.workgroup_id(2)
            s[:, _TTMP + 9] = ids[0]
            s[:, _TTMP + 7] = ids[1] | ids[2] << U32(16) if third else ids[1]
            s[:, _TTMP + 8] = np.tile(np.arange(waves, dtype=U32) << U32(25), len(groups))
            return
        for axis, numbers in enumerate(ids):
            if self.descriptor.workgroup_id(axis):
                s[:, number] = numbers
                number += 1
        if self.descriptor.properties >> _SCRATCH & 1:
            # Offset of the wave's memory: 0, because the address of each lane includes it.
            s[:, number] = 0
