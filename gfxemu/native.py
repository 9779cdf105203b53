"""Runs launches in the engine, which is written in C.

Bazel builds the engine beside this module. Otherwise a C compiler of the machine does so, once for
each version of its sources, into qola's cache.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gfxemu.arrays import I32, I64, U8, Array
from gfxemu.encode import Encoded, encode
from gfxemu.expressions import operations_header
from gfxemu.faults import EmulationError, Fault
from gfxemu.machine import Machine
from gfxemu.operands import UnsupportedError
from gfxemu.program import Program
from gfxemu.registers import LANES, name_of
from qola_base.cache import cache_directory, distrust, kept_directory
from qola_base.errors import ExitCode, Finding, QolaError
from qola_base.files import sha256_of_text

SOURCES = Path(__file__).parent
#: The engine's files, and those that are compiled: the second one for each number of lanes.
_FILES = ("engine.h", "arithmetic.h", "operations.c", "engine.c")
_OPERATIONS, _ENGINE = _FILES[2:]
#: By level of x86-64, the features that a processor needs for it, as Linux names them.
LEVELS = {
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": ("avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm"),
    "x86-64": (),
}
#: Numbers are rounded after each operation, and integers wrap around.
FLAGS = (
    *("-O3", "-mprefer-vector-width=512", "-std=gnu11", "-fPIC", "-fwrapv", "-ffp-contract=off"),
    *("-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math"),
)
_COMPILERS = ("clang", "gcc", "cc")
#: The pinned compiler, if `qola hipcc` has fetched it (qola/build/compiler.py).
_PINNED = "compilers/*/bin/hipcc"
#: Of a compiler's messages, in an error.
_MOST_LINES = 10
_FAULT_ROOM = 256
#: engine.c's faults with another detail than an address.
_RACE, _NOT_LOADED, _UNKNOWN_REGISTER = 7, 8, 10
#: engine.c's status of a launch.
(_OUTSIDE, _UNSUPPORTED, _ENDLESS, _AT_BARRIER) = range(1, 5)
(_STRICT, _FAILED, _SWIZZLED, _NO_MEMORY, _TRAPPED) = range(5, 10)

_SERVE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
_PASS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_POINTER, _WORD = ctypes.c_void_p, ctypes.c_int64


class EngineError(QolaError, title="the emulator cannot run", exit_code=ExitCode.TOOLCHAIN):
    """There is no engine for this machine, and none can be compiled."""


class _Launch(ctypes.Structure):
    """`Launch` of engine.c."""

    _fields_ = [
        *((name, _WORD) for name in ("count", "registers", "groups", "group_waves")),
        *((name, _POINTER) for name in ("v", "s", "scc", "wave_groups", "wave_numbers", "live")),
        *(("insns", _POINTER), ("places", _POINTER), ("code_size", _WORD), ("insn_count", _WORD)),
        *(("dpp", _POINTER), ("fnuz", _WORD), ("lds_start", ctypes.c_uint64)),
        *(("lds_row", _WORD), ("lds_bytes", _WORD), ("scratch_start", ctypes.c_uint64)),
        *(("scratch_row", _WORD), ("starts", _POINTER), ("ends", _POINTER)),
        *(("allocations", _WORD), ("entry", ctypes.c_uint64), ("start", _WORD)),
        *((name, _WORD) for name in ("strict", "hints", "limit", "executed")),
        ("serve", _SERVE),
        *(("passages", _POINTER), ("states", _WORD), ("blocks", _WORD)),
        *(("block_of", _POINTER), ("pass_block", _PASS)),
        *(("owners", _POINTER), ("orders", _POINTER), ("granules", _WORD), ("shift", _WORD)),
        *((name, _POINTER) for name in ("known_v", "known_s", "lds_written", "written")),
        *((name, _POINTER) for name in ("uses", "first_uses", "readers")),
        *((name, _WORD) for name in ("status", "status_insn", "fault_count", "fault_room")),
        *(("faults", _POINTER), ("trap", _WORD * 7)),
    ]


def levels(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Return the levels of x86-64 that this processor has, the best one first; none of another."""
    if platform.machine() != "x86_64":
        return []
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    found = set(flags.partition(":")[2].split())
    return [name for name, needed in LEVELS.items() if found.issuperset(needed)]


def compiler(environ: Mapping[str, str]) -> str:
    """Return a C compiler, clang first, whose code is faster; empty without one."""
    places = sorted(cache_directory(environ).glob(_PINNED))
    pinned = [str(place) for place in places if distrust(place) is None]
    found = [shutil.which(name, path=environ.get("PATH")) or "" for name in _COMPILERS]
    return next(filter(None, [*pinned, *found]), "")


@cache
def engine(lanes: int = LANES) -> Callable[[Any], None]:
    """Return the function that runs a launch with waves of some lanes.

    Raises:
        EngineError: there is no engine for this machine.
    """
    library = find_library(os.environ)
    try:
        function: Any = getattr(ctypes.CDLL(str(library)), f"qola_run_{lanes}")
    except (AttributeError, OSError) as error:
        raise _error(str(error), f"rm -r {library.parent}") from error
    function.restype, function.argtypes = None, [ctypes.POINTER(_Launch)]
    return function


def _error(found: str, fix: str = "") -> EngineError:
    expected = "a C compiler, clang 15 or gcc 12 or a later one, for the emulator's engine"
    fix = fix or "apt install gcc; or qola hipcc --version, which fetches the pinned compiler"
    return EngineError(Finding(str(SOURCES / _ENGINE), found, expected, fix))


def find_library(environ: Mapping[str, str]) -> Path:
    """Return the engine: Bazel's, or one made by a compiler here.

    Raises:
        EngineError: there is neither.
    """
    names = levels()
    for name in names:
        if (built := SOURCES / f"engine_{name}.so").exists():
            return built
    program = compiler(environ)
    if not program:
        raise _error("no C compiler in PATH")
    level = names[0] if names else ""
    texts = [operations_header()]
    texts += [(SOURCES / name).read_text(encoding="utf-8") for name in _FILES]
    key = sha256_of_text("\n".join([*texts, level, program, *FLAGS]))[:16]
    directory = cache_directory(environ) / "emulators" / key

    def make() -> None:
        with tempfile.TemporaryDirectory(prefix=".make-", dir=directory.parent) as temporary:
            place = Path(temporary, "engine")
            place.mkdir(mode=0o700)
            compile_engine([program, *([f"-march={level}"] if level else []), *FLAGS], place)
            place.rename(directory)

    return kept_directory(directory, directory / "engine.so", "emulator", make) / "engine.so"


def compile_engine(command: list[str], directory: Path) -> Path:
    """Compile the engine into a directory, and return the library.

    Raises:
        EngineError: the compiler failed.
    """
    (directory / "operations.h").write_text(operations_header(), encoding="utf-8")
    includes = [f"-I{directory}", f"-I{SOURCES}"]
    parts: list[tuple[str, str, list[str]]] = [("operations.o", _OPERATIONS, [])]
    parts += [(f"engine_{lanes}.o", _ENGINE, [f"-DLANES={lanes}"]) for lanes in (32, 64)]
    commands = [
        [*command, "-xc", *options, *includes, "-c", str(SOURCES / source), "-o", name]
        for name, source, options in parts
    ]
    # All at once: the first launch waits for them.
    running = [
        subprocess.Popen(c, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for c in commands
    ]
    link = [*command, "-shared", *(name for name, _, _ in parts), "-lm", "-o", "engine.so"]
    said = [process.communicate()[0] for process in running]
    failed = [text for text, process in zip(said, running, strict=True) if process.returncode]
    if not failed:
        done = subprocess.run(link, cwd=directory, capture_output=True, check=False)
        failed = [done.stderr] if done.returncode else []
    if failed:
        lines = failed[0].decode("utf-8", "replace").strip().splitlines()
        raise _error("\n".join([f"{command[0]} failed", *lines[:_MOST_LINES]]))
    return directory / "engine.so"


@dataclass(frozen=True)
class NativeProgram:
    """A program, encoded once.

    Attributes:
        passages: states of outstanding loads after blocks, for the engine.
    """

    program: Program
    encoded: Encoded
    passages: Passages

    @classmethod
    def make(cls, program: Program) -> NativeProgram:
        """Encode a program."""
        encoded = encode(program)
        return cls(program, encoded, Passages(program, encoded))


class Passages:
    """A table of the answers of `Waits.passage`, for the engine.

    Attributes:
        block_of: the block that begins with an instruction, or -1.
        table: the state after a block, by the state before it; -1 if the engine has to ask.
    """

    def __init__(self, program: Program, encoded: Encoded) -> None:
        starts = program.starts | {0}
        self.block_of = np.full(len(encoded.instructions), -1, I32)
        first = [place for place, one in enumerate(encoded.instructions) if one.pc in starts]
        self.block_of[first] = np.arange(len(first))
        self.table = np.full((16, len(first)), -1, I32)

    def put(self, number: int, before: int, after: int) -> None:
        """Record the state after the block of an instruction."""
        block = self.block_of[number]
        if block < 0:
            return
        if before >= len(self.table):
            more = np.full((before + 1, self.table.shape[1]), -1, I32)
            self.table = np.concatenate([self.table, more])
        self.table[before, block] = after


@dataclass
class Waves:
    """Registers of the waves of some workgroups.

    Attributes:
        v: vector registers, accumulation registers behind the others; (waves, registers, lanes).
        s: scalar registers; (waves, 128).
        scc: the condition code of each wave.
        groups: the workgroup of each wave, by its row in the LDS.
        numbers: the wave's number in its workgroup.
        known_v: of a checked launch, a bit for each lane of a register that was written.
        known_s: of a checked launch, 1 for each scalar register that was written.
    """

    v: Array
    s: Array
    scc: Array
    groups: Array
    numbers: Array
    known_v: Array | None = None
    known_s: Array | None = None

    @classmethod
    def begin(cls, v: Array, s: Array, groups: int) -> Waves:
        """Return the waves of some workgroups before their first instruction."""
        waves = len(v) // groups
        return cls(
            *(v, s, np.zeros(len(v), U8), np.repeat(np.arange(groups, dtype=I64), waves)),
            np.tile(np.arange(waves, dtype=I64), groups),
        )


class NativeRun:
    """A run of waves in the engine."""

    def __init__(
        self, native: NativeProgram, waves: Waves, machine: Machine, limit: int, executed: int
    ) -> None:
        self._native, self._program = native, native.program
        self._machine, self._waves = machine, waves
        self._limit, self._executed = limit, executed
        self._faults = np.zeros((_FAULT_ROOM, 7), I64)
        self._reported = 0
        self._error: BaseException | None = None

    def run(self) -> int:
        """Run the waves to their end, and return the number of instructions executed so far.

        Raises:
            EmulationError: an operation that is not emulated, a launch that does not end, or a
                fault if faults are errors.
        """
        machine, waves = self._machine, self._waves
        function = engine(machine.lanes)
        encoded, faults = self._native.encoded, machine.faults
        starts, ends = machine.map.bounds()
        live = np.bincount(waves.groups, minlength=machine.groups)
        passages, races = self._native.passages, machine.races
        arrays = (waves.v, waves.s, waves.scc, waves.groups, waves.numbers, live)
        checked: tuple[int, ...] = (0,) * 7
        if waves.known_v is not None and waves.known_s is not None:
            written = machine.map.written_bytes()
            checks = [waves.known_v, waves.known_s, machine.lds_written, written]
            checks += [encoded.uses, encoded.first_uses, races.readers]
            checked = tuple(array.ctypes.data for array in checks)
        self._launch = launch = _Launch(
            len(waves.v),
            waves.v.shape[1],
            *(machine.groups, machine.group_waves),
            *(array.ctypes.data for array in arrays),
            *(encoded.words.ctypes.data, encoded.places.ctypes.data),
            *(4 * len(encoded.places), len(encoded.instructions)),
            *(encoded.dpp.ctypes.data, int(self._program.fnuz)),
            *(machine.lds_start, machine.lds_row, machine.lds_bytes),
            *(machine.scratch_start, machine.scratch_row),
            *(starts.ctypes.data, ends.ctypes.data, len(starts)),
            *(machine.entry - encoded.start, encoded.start),
            *(int(faults.strict), int(faults.hints), self._limit, self._executed),
            _SERVE(self._serve),
            *(passages.table.ctypes.data, *passages.table.shape, passages.block_of.ctypes.data),
            _PASS(self._pass_block),
            *(races.owners.ctypes.data, races.orders.ctypes.data, races.granules, races.shift),
            *checked,
            *(0, 0, 0, _FAULT_ROOM, self._faults.ctypes.data),
        )
        function(ctypes.byref(launch))
        self._report_faults()
        # Its callbacks refer to this object, which would keep the kernel until a collection.
        del self._launch
        self._raise(launch)
        return int(launch.executed)

    def _raise(self, launch: _Launch) -> None:
        """Raise the error that ended a launch."""
        status, number = launch.status, launch.status_insn
        if not status or status == _STRICT:
            return
        program, machine = self._program, self._machine
        if status == _NO_MEMORY:
            raise MemoryError(f"the waves of a launch of {program.kernel.symbol}")
        if status == _FAILED:
            assert self._error
            raise self._error
        if status == _TRAPPED:
            _, place, _, _, *who = launch.trap
            text = machine.hostcalls.error if machine.hostcalls else b""
            detail = text.decode("utf-8", "replace").strip() or "the kernel ended itself"
            one = self._native.encoded.instructions[place]
            raise EmulationError(machine.fault_at(one, "trap", detail, *who))
        code = program.code
        if status in (_OUTSIDE, _AT_BARRIER):
            pc = number - self._native.encoded.start
        else:
            pc = self._native.encoded.instructions[number].pc
        if status == _OUTSIDE:
            found = code.get(pc)
            why = found if isinstance(found, str) else "outside of the kernel's code"
            raise program.error("unsupported", pc, why)
        if status == _AT_BARRIER:
            why = "waves wait at a barrier that others never reach"
            raise program.error("endless", pc, why)
        if status == _ENDLESS:
            raise program.error("endless", pc, f"more than {self._limit:,} instructions")
        if status == _SWIZZLED:
            why = "a buffer that is swizzled, or adds the lane's number"
            raise program.error("unsupported", pc, why)
        raise program.error("unsupported", pc, self._native.encoded.refusals[pc])

    def _report_faults(self) -> None:
        """Record the faults that the engine found since the last time."""
        for values in self._faults[self._reported : self._launch.fault_count]:
            self._machine.faults.add(self._fault_of(*(int(value) for value in values)))
        self._reported = self._launch.fault_count

    def _fault_of(
        self, kind: int, number: int, value: int, size: int, group: int, wave: int, lane: int
    ) -> Fault:
        """Return a fault of the engine."""
        machine = self._machine
        one = self._native.encoded.instructions[number]
        address = value & (2**64 - 1)
        if kind in (_RACE, _NOT_LOADED):
            detail = machine.races.describe(value, size, kind == _RACE)
            name = "race" if kind == _RACE else "missing wait"
            return machine.fault_at(one, name, detail, group, wave, lane)
        if kind == _UNKNOWN_REGISTER:
            detail = f"{name_of(value)} was never written"
            return machine.fault_at(one, "uninitialised register", detail, group, wave, lane)
        place = f"{size} bytes at {address:#x}"
        lds = f"{machine.lds_bytes:#x} bytes of LDS"
        name, detail = {
            1: ("unmapped", place),
            2: ("out of range", f"{place} of {lds}"),
            3: (
                "out of range",
                f"beyond {machine.scratch_row} bytes of scratch memory of a lane",
            ),
            4: ("misaligned", place),
            5: ("misaligned", f"{size} bytes of the LDS"),
            6: ("out of range", f"{size} bytes loaded to {lds}"),
            11: ("uninitialised memory", place),
            12: ("uninitialised LDS", f"{place} of the LDS"),
            13: ("misaligned", place),
            14: ("misaligned", f"{place} of the LDS"),
        }[kind]
        return machine.fault_at(one, name, detail, group, wave, lane)

    # Calls of the engine

    def _pass_block(self, number: int, state: int, row: int) -> int:
        """Return the state of a wave after a block, -1 after an error."""
        passages, one = self._native.passages, self._native.encoded.instructions[number]
        try:
            passage = self._program.waits.passage(one.pc, state)
            if passage.misuses:
                # In the order of time, and in each launch.
                self._report_faults()
                place = int(self._waves.groups[row]), int(self._waves.numbers[row])
                self._machine.report_misuses(passage.misuses, *place)
            else:
                passages.put(number, state, passage.state)
                self._launch.passages = passages.table.ctypes.data
                self._launch.states = len(passages.table)
        except BaseException as error:
            self._error = error
            return -1
        return passage.state

    def _serve(self, number: int) -> int:
        """Answer calls of the host; return whether that failed."""
        one = self._native.encoded.instructions[number]
        try:
            if self._machine.hostcalls:
                self._machine.hostcalls.serve()
        except UnsupportedError as error:
            self._error = self._program.error("unsupported", one.pc, str(error))
            self._error.__cause__ = error
        except BaseException as error:
            self._error = error
        return int(self._error is not None)
