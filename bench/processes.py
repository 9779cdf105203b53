"""Runs programs and measures their time and memory."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from qola_base.errors import Finding, QolaError

_INTERVAL_SECONDS = 0.2
_LOG_LINES = 25
_COMPILER = re.compile(r"clang(\+\+)?(-\d+)?")


class BenchError(QolaError):
    """A step of the benchmark failed, or the two sides would build different kernels."""

    exit_code: ClassVar[int] = 1
    default_title: ClassVar[str] = "the benchmark failed"


@dataclass(frozen=True)
class Run:
    """Time and memory of a program.

    Attributes:
        seconds: wall time.
        cpu_seconds: user and system time of all its processes.
        compiler_peak_bytes: largest resident set of one compiler process, 0 if none was seen.
        build_peak_bytes: largest sum of resident sets at one time.
    """

    seconds: float
    cpu_seconds: float
    compiler_peak_bytes: int
    build_peak_bytes: int
    output: str


@dataclass(frozen=True)
class _Process:
    parent: int
    compiler: bool
    resident_bytes: int
    peak_bytes: int


def _processes() -> dict[int, _Process]:
    """Return all processes of this machine by their ids."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "status").read_text(encoding="utf-8", errors="replace")
            line = (entry / "cmdline").read_bytes().decode("utf-8", errors="replace")
        except OSError:
            continue  # the process has ended
        values = dict(re.findall(r"^(PPid|VmRSS|VmHWM):\s+(\d+)", status, re.MULTILINE))
        if len(values) == 3:
            # The SDK's wrapper runs clang through its own loader.
            programs = (argument.rpartition("/")[2] for argument in line.split("\0")[:8])
            found[int(entry.name)] = _Process(
                parent=int(values["PPid"]),
                compiler=any(map(_COMPILER.fullmatch, programs)),
                resident_bytes=int(values["VmRSS"]) * 1024,
                peak_bytes=int(values["VmHWM"]) * 1024,
            )
    return found


def _cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes, with those of their children that have ended."""
    total = 0.0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        except OSError:
            continue  # the process has ended
        # utime, stime, cutime and cstime; the program's name before them may contain blanks.
        total += sum(map(int, text.rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


@dataclass
class _Sampler:
    """Samples, in a thread, the memory of processes and of all their descendants."""

    roots: Callable[[], Iterable[int]]
    compiler_peak_bytes: int = 0
    build_peak_bytes: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> _Sampler:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            everything, wanted, sampled = _processes(), set(self.roots()), []
            while pids := wanted & everything.keys():
                sampled += [everything.pop(pid) for pid in pids]
                wanted = {pid for pid, p in everything.items() if p.parent in pids}
            self.build_peak_bytes = max(
                self.build_peak_bytes, sum(p.resident_bytes for p in sampled)
            )
            compilers = [p.peak_bytes for p in sampled if p.compiler]
            self.compiler_peak_bytes = max([self.compiler_peak_bytes, *compilers])


def run(
    command: Sequence[str | os.PathLike[str]],
    log: Path,
    *,
    cwd: Path,
    environ: Mapping[str, str],
    roots: Callable[[], Iterable[int]] = lambda: (),
) -> Run:
    """Run a program to its end.

    Args:
        log: file to which its standard error is appended.
        roots: ids of further processes that count, such as a server.

    Raises:
        BenchError: the program failed; with the end of its output.
    """
    with log.open("a", encoding="utf-8") as errors:
        errors.write("$ " + " ".join(map(str, command)) + "\n")
        errors.flush()
        start, before = time.monotonic(), _cpu_seconds(roots())
        try:
            process = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        except OSError as error:
            raise BenchError(Finding(str(command[0]), str(error), "a program")) from error
        try:
            with _Sampler(lambda: [process.pid, *roots()]) as sampler:
                output = process.stdout.read() if process.stdout else ""
                _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        seconds = time.monotonic() - start
        # A server that has just started was not there before; one that has ended is not there now.
        cpu = usage.ru_utime + usage.ru_stime + max(0, _cpu_seconds(roots()) - before)
    if process.returncode != 0:
        # The log also has what earlier programs wrote.
        end = (log.read_text(encoding="utf-8") + output).splitlines()[-_LOG_LINES:]
        raise BenchError(
            Finding(
                " ".join(map(str, command))[:300],
                f"exit code {process.returncode}\n" + "\n".join(line[:300] for line in end),
                "exit code 0",
                "see log.txt in the directory of bench/run --keep DIRECTORY",
            )
        )
    return Run(seconds, cpu, sampler.compiler_peak_bytes, sampler.build_peak_bytes, output)
