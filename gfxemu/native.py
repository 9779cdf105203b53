"""Runs launches with the engine in C, engine.c.

Bazel builds the engine beside this module. Otherwise a C compiler of the machine does so, once for
each version of its sources, into qola's cache. Without either, the functions in NumPy run.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gfxemu.arrays import F32, I32, I64, U8, U32, Array
from gfxemu.check import find_misfit, registers_of
from gfxemu.encode import Encoded, encode
from gfxemu.expressions import operations_header
from gfxemu.faults import EmulationError
from gfxemu.float8 import FORMATS, values_of
from gfxemu.machine import Machine
from gfxemu.operands import UnsupportedError
from gfxemu.program import Program
from gfxemu.waves import AGPRS, LANES, VGPRS, Waves
from qola_base.cache import cache_directory, distrust, kept_directory
from qola_base.errors import QolaError
from qola_base.files import sha256_of_text
from qola_base.progress import log

ENGINE = Path(__file__).with_name("engine.c")
#: By level of x86-64, the features that a processor needs for it, as Linux names them.
LEVELS = {
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": ("avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm"),
}
#: Numbers are rounded after each operation, as NumPy does, and integers wrap around.
FLAGS = (
    *("-O3", "-mprefer-vector-width=512", "-std=gnu11", "-fPIC", "-fwrapv", "-ffp-contract=off"),
    *("-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math"),
)
_COMPILERS = ("clang", "gcc", "cc")
#: The pinned compiler, if `qola hipcc` has fetched it (qola/build/compiler.py).
_PINNED = "compilers/*/bin/hipcc"
_FAULT_ROOM = 256
#: engine.c's faults of accesses of the LDS.
_RACE, _NOT_LOADED = 7, 8
#: engine.c's status of a launch.
(_OUTSIDE, _UNSUPPORTED, _ENDLESS, _AT_BARRIER) = range(1, 5)
(_STRICT, _FAILED, _SWIZZLED, _NO_MEMORY) = range(5, 9)

_FALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(ctypes.c_int32)
)
_PASS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_POINTER, _WORD = ctypes.c_void_p, ctypes.c_int64


class _Launch(ctypes.Structure):
    """`Launch` of engine.c."""

    _fields_ = [
        *((name, _WORD) for name in ("count", "registers", "groups", "group_waves")),
        *((name, _POINTER) for name in ("v", "s", "scc", "wave_groups", "wave_numbers", "live")),
        *(("insns", _POINTER), ("places", _POINTER), ("code_size", _WORD), ("insn_count", _WORD)),
        *(("dpp", _POINTER), ("formats", _POINTER), ("lds_start", ctypes.c_uint64)),
        *(("lds_row", _WORD), ("lds_bytes", _WORD), ("scratch_start", ctypes.c_uint64)),
        *(("scratch_row", _WORD), ("starts", _POINTER), ("ends", _POINTER)),
        *(("allocations", _WORD), ("entry", ctypes.c_uint64), ("start", _WORD)),
        *((name, _WORD) for name in ("strict", "limit", "executed")),
        ("fallback", _FALLBACK),
        *(("passages", _POINTER), ("states", _WORD), ("blocks", _WORD)),
        *(("block_of", _POINTER), ("pass_block", _PASS)),
        *(("owners", _POINTER), ("orders", _POINTER), ("granules", _WORD), ("shift", _WORD)),
        *((name, _WORD) for name in ("status", "status_insn", "fault_count", "fault_room")),
        ("faults", _POINTER),
    ]


def level(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the best level of x86-64 that this processor has; empty without one."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found: set[str] = set()
    for line in text.splitlines():
        if line.startswith("flags"):
            found = set(line.partition(":")[2].split())
            break
    return next((name for name, needed in LEVELS.items() if found.issuperset(needed)), "")


def compiler(environ: Mapping[str, str]) -> str:
    """Return a C compiler, clang first, whose code is twice as fast; empty without one."""
    places = sorted(cache_directory(environ).glob(_PINNED))
    pinned = [str(place) for place in places if distrust(place) is None]
    found = [shutil.which(name, path=environ.get("PATH")) or "" for name in _COMPILERS]
    return next(filter(None, [*pinned, *found]), "")


@cache
def engine(lanes: int = LANES) -> Callable[[Any], None] | None:
    """Return the function that runs a launch; None without an engine for this machine.

    Args:
        lanes: of a wave.
    """
    found = level()
    if not found:
        return None
    try:
        library = find_library(found, lanes, os.environ)
        if library is None:
            log.info(
                "the emulator runs in NumPy, ten times more slowly: install clang 15 or gcc 12"
            )
            return None
        function: Any = ctypes.CDLL(str(library)).qola_run
    except (AttributeError, OSError, QolaError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None)
        why = said.decode("utf-8", "replace").strip() if said else str(error)
        log.info(f"the emulator runs in NumPy, ten times more slowly: {why}")
        return None
    function.restype, function.argtypes = None, [ctypes.POINTER(_Launch)]
    return function


def find_library(name: str, lanes: int, environ: Mapping[str, str]) -> Path | None:
    """Return the engine for a level of x86-64: Bazel's, or one made by a compiler here."""
    built = ENGINE.with_name(f"engine_{name[-2:]}_{lanes}.so")
    if built.exists():
        return built
    program = compiler(environ)
    if not program:
        return None
    header, source = operations_header(), ENGINE.read_text(encoding="utf-8")
    key = sha256_of_text("\n".join([header, source, name, str(lanes), program, *FLAGS]))[:16]
    directory = cache_directory(environ) / "emulators" / key

    def make() -> None:
        with tempfile.TemporaryDirectory(prefix=".make-", dir=directory.parent) as temporary:
            place = Path(temporary, "engine")
            place.mkdir(mode=0o700)
            (place / "operations.h").write_text(header, encoding="utf-8")
            compile_engine(program, name, lanes, place, place / "engine.so")
            place.rename(directory)

    return kept_directory(directory, directory / "engine.so", "emulator", make) / "engine.so"


def compile_engine(program: str, name: str, lanes: int, headers: Path, output: Path) -> None:
    """Compile the engine.

    Raises:
        CalledProcessError: the compiler failed.
    """
    command = [program, "-xc", f"-march={name}", f"-DLANES={lanes}", *FLAGS, "-shared"]
    command += [f"-I{headers}", str(ENGINE), "-lm", "-o", str(output)]
    subprocess.run(command, check=True, capture_output=True)


@dataclass(frozen=True)
class NativeProgram:
    """A program, encoded once.

    Attributes:
        formats: values of the codes of FP8 and BF8 on the arch.
        passages: states of outstanding loads after blocks, for the engine.
    """

    program: Program
    encoded: Encoded
    formats: Array
    passages: Passages

    @classmethod
    def make(cls, program: Program) -> NativeProgram:
        """Encode a program."""
        formats = [values_of(FORMATS[name][program.fnuz]) for name in ("FP8", "BF8")]
        values = np.ascontiguousarray(np.concatenate(formats), F32)
        encoded = encode(program)
        return cls(program, encoded, values, Passages(program, encoded))


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


class NativeRun:
    """Waves of a launch in the engine.

    Attributes:
        v: vector registers, those of a wave side by side; (waves, registers, lanes).
        s: scalar registers; (waves, 128).
        scc: condition codes.
    """

    def __init__(
        self, native: NativeProgram, waves: Waves, live: Array, limit: int, executed: int
    ) -> None:
        self._native, self._program = native, native.program
        self._machine: Machine = waves.machine
        self._layout = waves.layout
        self.v = np.ascontiguousarray(waves.v.transpose(1, 0, 2))
        self.s = np.ascontiguousarray(waves.s)
        self.scc = np.ascontiguousarray(waves.scc[:, 0]).astype(U8)
        self._groups, self._numbers = waves.groups.astype(I64), waves.numbers.astype(I64)
        self._live = np.ascontiguousarray(live, I64)
        self._limit, self._executed = limit, executed
        self._faults = np.zeros((_FAULT_ROOM, 7), I64)
        self._reported = 0
        self._mirrors: dict[bytes, Waves] = {}
        self._error: BaseException | None = None

    def run(self) -> int:
        """Run the waves to their end, and return the number of instructions executed so far.

        Raises:
            EmulationError: as `Schedule.run`.
        """
        function = engine(self._layout.lanes)
        assert function
        encoded, machine = self._native.encoded, self._machine
        starts, ends = machine.map.bounds()
        passages, races = self._native.passages, machine.races
        races.spans[:] = 0, races.granules
        arrays = (self.v, self.s, self.scc, self._groups, self._numbers, self._live)
        self._launch = launch = _Launch(
            len(self._groups),
            self.v.shape[1],
            *(machine.groups, machine.group_waves),
            *(array.ctypes.data for array in arrays),
            *(encoded.words.ctypes.data, encoded.places.ctypes.data),
            *(4 * len(encoded.places), len(encoded.instructions)),
            *(encoded.dpp.ctypes.data, self._native.formats.ctypes.data),
            *(machine.lds_start, machine.lds_row, machine.lds_bytes),
            *(machine.scratch_start, machine.scratch_row),
            *(starts.ctypes.data, ends.ctypes.data, len(starts)),
            *(machine.entry - encoded.start, encoded.start),
            *(int(machine.faults.strict), self._limit, self._executed),
            _FALLBACK(self._fall_back),
            *(passages.table.ctypes.data, *passages.table.shape, passages.block_of.ctypes.data),
            _PASS(self._pass_block),
            *(races.owners.ctypes.data, races.orders.ctypes.data, races.granules, races.shift),
            *(0, 0, 0, _FAULT_ROOM, self._faults.ctypes.data),
        )
        function(ctypes.byref(launch))
        self._report_faults()
        # Its callbacks refer to this object, which would keep the kernel until a collection.
        del self._launch
        self._raise(launch.status, launch.status_insn)
        return int(launch.executed)

    def _raise(self, status: int, number: int) -> None:
        """Raise the error that ended a launch."""
        if not status or status == _STRICT:
            return
        if status == _NO_MEMORY:
            raise MemoryError(f"the waves of a launch of {self._program.kernel.symbol}")
        if status == _FAILED:
            assert self._error
            raise self._error
        program, code = self._program, self._program.code
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
        bound = program.bound(pc)
        one = self._native.encoded.instructions[number]
        why = bound if isinstance(bound, str) else find_misfit(one, self._layout)
        raise program.error("unsupported", pc, why)

    def _report_faults(self) -> None:
        """Record the faults that the engine found since the last time."""
        for values in self._faults[self._reported : self._launch.fault_count]:
            self._report(*(int(value) for value in values))
        self._reported = self._launch.fault_count

    def _report(
        self, kind: int, number: int, value: int, size: int, group: int, wave: int, lane: int
    ) -> None:
        """Record a fault of the engine as `Machine.report` does."""
        machine = self._machine
        one = self._native.encoded.instructions[number]
        address = value & (2**64 - 1)
        if kind in (_RACE, _NOT_LOADED):
            detail = machine.races.describe(value, size, kind == _RACE)
            name = "race" if kind == _RACE else "missing wait"
            machine.faults.add(machine.fault_at(one, name, detail, group, wave, lane))
            return
        name, detail = {
            1: ("unmapped", f"{size} bytes at {address:#x}"),
            2: (
                "out of range",
                f"{size} bytes at {address:#x} of {machine.lds_bytes:#x} bytes of LDS",
            ),
            3: (
                "out of range",
                f"beyond {machine.scratch_row} bytes of scratch memory of a lane",
            ),
            4: ("misaligned", f"{size} bytes at {address:#x}"),
            5: ("misaligned", f"{size} bytes of the LDS"),
            6: ("out of range", f"{size} bytes loaded to {machine.lds_bytes:#x} bytes of LDS"),
        }[kind]
        machine.faults.add(machine.fault_at(one, name, detail, group, wave, lane))

    def _pass_block(self, number: int, state: int, row: int) -> int:
        """Return the state of a wave after a block, -1 after an error."""
        passages, one = self._native.passages, self._native.encoded.instructions[number]
        try:
            passage = self._program.waits.passage(one.pc, state)
            if passage.misuses:
                # In the order of time, and in each launch.
                self._report_faults()
                place = int(self._groups[row]), int(self._numbers[row])
                self._machine.report_misuses(passage.misuses, *place)
            else:
                passages.put(number, state, passage.state)
                self._launch.passages = passages.table.ctypes.data
                self._launch.states = len(passages.table)
        except BaseException as error:
            self._error = error
            return -1
        return passage.state

    # Instructions in NumPy

    def _fall_back(self, number: int, count: int, rows: Any) -> int:
        one = self._native.encoded.instructions[number]
        try:
            chosen = np.array(rows[:count], I32)
            with np.errstate(all="ignore"):
                self._in_numpy(one, chosen)
        except EmulationError as error:
            self._error = error
        except UnsupportedError as error:
            self._error = self._program.error("unsupported", one.pc, str(error))
            self._error.__cause__ = error
        except (KeyboardInterrupt, SystemExit) as error:
            self._error = error
        except BaseException as error:
            if misfit := find_misfit(one, self._layout):
                self._error = self._program.error("unsupported", one.pc, misfit)
            else:
                place = f"{self._program.kernel.symbol}+{one.pc:#x} {one.text}"
                self._error = RuntimeError(f"the emulator failed at {place}")
            self._error.__cause__ = error
        return int(self._error is not None)

    def _in_numpy(self, one: Any, rows: Array) -> None:
        """Run an instruction on copies of the registers that it may use."""
        step = self._program.bound(one.pc)
        assert callable(step)
        w = self._mirrors.get(rows.tobytes())
        if w is None:
            w = self._mirror(rows)
        used = self._used(one)
        w.v[used] = self.v[rows[:, None], used[None, :]].transpose(1, 0, 2)
        w.s[...] = self.s[rows]
        w.scc[:, 0] = self.scc[rows]
        w.update_exec()
        step(w)
        self.v[rows[:, None], used[None, :]] = w.v[used].transpose(1, 0, 2)
        self.s[rows] = w.s
        self.scc[rows] = w.scc[:, 0]

    def _mirror(self, rows: Array) -> Waves:
        count = len(rows)
        v = np.zeros((self._layout.vgprs, count, self._layout.lanes), U32)
        s, scc = np.zeros((count, self.s.shape[1]), U32), np.zeros((count, 1), bool)
        state = self._groups[rows], self._numbers[rows]
        w = Waves(self._layout, v, s, scc, *state, 0, self._machine)
        self._mirrors[rows.tobytes()] = w
        return w

    def _used(self, one: Any) -> Array:
        found: set[int] = set()
        for _, number, count in registers_of(one):
            if number >= VGPRS:
                first = number - VGPRS
                if number >= AGPRS:
                    first = number - AGPRS + self._layout.first_agpr
                found |= set(range(first, min(first + count, self._layout.vgprs)))
        return np.array(sorted(found), I64)
