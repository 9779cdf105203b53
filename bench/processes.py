"""Runs programs; takes their time, and the memory of them and all they start."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import BenchError
from qola.errors import Finding

PROC = Path("/proc")
_INTERVAL_SECONDS = 0.2
_LOG_LINES = 25
_COMPILER = re.compile(r"clang(\+\+)?(-\d+)?")


@dataclass(frozen=True)
class Run:
    """What running a program took.

    Attributes:
        seconds: wall time.
        compiler_peak_bytes: largest resident set of one compiler process, 0 where none was seen.
        build_peak_bytes: largest sum of resident sets at one time.
    """

    seconds: float
    compiler_peak_bytes: int
    build_peak_bytes: int
    output: str


@dataclass(frozen=True)
class Process:
    """A process at one time.

    Attributes:
        pid: its id.
        parent: its parent's id.
        peak_bytes: the largest its resident set ever was.
    """

    pid: int
    parent: int
    compiler: bool
    resident_bytes: int
    peak_bytes: int


@dataclass
class Peaks:
    """The largest values of the samples so far, in bytes."""

    compiler: int = 0
    build: int = 0

    def add(self, sample: Iterable[Process]) -> None:
        """Take note of the processes of one time."""
        processes = list(sample)
        self.build = max(self.build, sum(p.resident_bytes for p in processes))
        self.compiler = max([self.compiler, *(p.peak_bytes for p in processes if p.compiler)])


def is_compiler(arguments: Sequence[str]) -> bool:
    """Tell whether a command line is clang's; the SDK's wrapper runs it through its own loader."""
    return any(_COMPILER.fullmatch(arg.rpartition("/")[2]) for arg in arguments[:8])


def parse_status(text: str, arguments: Sequence[str]) -> Process | None:
    """Return a process from /proc/PID/status and its command line; None for one that has ended."""
    found = dict(re.findall(r"^(Pid|PPid|VmRSS|VmHWM):\s+(\d+)", text, re.MULTILINE))
    if len(found) != 4:
        return None
    return Process(
        pid=int(found["Pid"]),
        parent=int(found["PPid"]),
        compiler=is_compiler(arguments),
        resident_bytes=int(found["VmRSS"]) * 1024,
        peak_bytes=int(found["VmHWM"]) * 1024,
    )


def below(processes: Iterable[Process], roots: Iterable[int]) -> list[Process]:
    """Return the processes with these ids, and all that these started."""
    everyone = list(processes)
    children: dict[int, list[Process]] = {}
    for process in everyone:
        children.setdefault(process.parent, []).append(process)
    wanted = set(roots)
    queue = [process for process in everyone if process.pid in wanted]
    found: dict[int, Process] = {}
    while queue:
        process = queue.pop()
        if process.pid not in found:
            found[process.pid] = process
            queue += children.get(process.pid, [])
    return list(found.values())


def _everyone() -> list[Process]:
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text(encoding="utf-8", errors="replace")
                line = (entry / "cmdline").read_bytes().decode("utf-8", errors="replace")
            except OSError:
                continue
            process = parse_status(status, line.split("\0"))
            found += [process] if process else []
    return found


@dataclass
class _Sampler:
    """Watches processes in a thread of its own, while a block runs."""

    roots: Callable[[], Iterable[int]]
    peaks: Peaks = field(default_factory=Peaks)
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
            self.peaks.add(below(_everyone(), self.roots()))


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
        log: file its standard error is added to.
        roots: ids of further processes whose memory counts: a server it asks.

    Raises:
        BenchError: it failed; the end of what it said is in the error.
    """
    with log.open("a", encoding="utf-8") as errors:
        errors.write("$ " + " ".join(map(str, command)) + "\n")
        errors.flush()
        start = time.monotonic()
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
                output, _ = process.communicate()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        seconds = time.monotonic() - start
    if process.returncode != 0:
        said = (output + log.read_text(encoding="utf-8")).splitlines()[-_LOG_LINES:]
        raise BenchError(
            Finding(
                " ".join(map(str, command))[:300],
                f"exit code {process.returncode}\n" + "\n".join(line[:300] for line in said),
                "exit code 0",
                "bench/run --keep DIRECTORY leaves the whole log there",
            )
        )
    return Run(seconds, sampler.peaks.compiler, sampler.peaks.build, output)
