"""Calls that launch several kernels: parallel compiles, and no launch before all are available."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.tests.lazy.lazy import (
    ARCH,
    BROKEN,
    FILL,
    FILLED,
    SCALE,
    SCALED,
    UNAVAILABLE,
    Answer,
    Toy,
    finish,
    preloaded,
)
from tests.support.waiting import wait_for

BOTH = f"{SCALED},{FILLED}"
CALLS = 100

_MEMORY = """\
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int open(const char* path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    const char* told = getenv("ASK_TOLD");
    const char* of = getenv("ASK_TOLD_OF");
    return syscall(SYS_openat, AT_FDCWD, of && strcmp(path, of) == 0 ? told : path, flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
"""


def logging_compiler(toy: Toy, wait: str) -> tuple[str, Path]:
    """Return a compiler that logs its start, runs `wait` (shell), and logs its end."""
    events = toy.path / "events"
    return toy.compiler(f"echo start >> {events}; {wait}; echo end >> {events}"), events


def launches(toy: Toy) -> int:
    """Return the number of launches in the log of FAKE_HIP_LOG."""
    log = toy.path / "launches"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_kernels_of_a_call_compile_in_parallel(toy: Toy) -> None:
    """Prevents: a first backward call runs three compiles one after another."""
    # Each compile waits until both have started; the log shows if they do not overlap.
    both = f'[ "$(grep -c start {toy.path}/events)" = 2 ]'
    wait = f"for i in $(seq 300); do {both} && break; sleep 0.1; done"
    compiler, events = logging_compiler(toy, wait)
    answer = toy.call(SCALE, FILL, QOLA_COMPILER=compiler, MAX_JOBS="2")
    assert answer.values == [BOTH]
    assert events.read_text().split() == ["start", "start", "end", "end"]
    assert toy.compiles() == 2
    assert toy.leftovers() == []


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "settings",
    [
        {"MAX_JOBS": "1"},
        {"CK_JIT_JOBS": "1", "MAX_JOBS": "2"},
        {"ASK_TOLD_OF": "/proc/meminfo"},
        {"ASK_TOLD_OF": "/sys/fs/cgroup/memory.max"},
    ],
)
def test_no_more_compiles_than_fit(toy: Toy, settings: dict[str, str]) -> None:
    """Prevents: parallel compiles take memory or cores that the application needs."""
    memory_file = toy.path / "told"
    memory_file.write_text("MemTotal: 9000000 kB\nMemAvailable: 2000000 kB\nBuffers: 1 kB\n")
    if settings.get("ASK_TOLD_OF", "").startswith("/sys"):
        memory_file.write_text("2000000000\n")
    compiler, events = logging_compiler(toy, "sleep 0.2")
    shim = preloaded(toy, _MEMORY)
    environ = {
        "QOLA_COMPILER": compiler,
        "LD_PRELOAD": shim,
        "ASK_TOLD": str(memory_file),
    } | settings
    assert toy.call(SCALE, FILL, **environ).values == [BOTH]
    assert events.read_text().split() == ["start", "end", "start", "end"]


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["MAX_JOBS", "CK_JIT_JOBS"])
@pytest.mark.parametrize("value", ["0", "many", "99999"])
def test_wrong_numbers_of_jobs(toy: Toy, name: str, value: str) -> None:
    """Prevents: a setting for other programs makes kernels unavailable."""
    answer = toy.call(SCALE, FILL, **{name: value})
    assert answer.values == [BOTH]
    assert f"qola: {name}={value} is ignored: expected a number of compiles" in answer.errors


def test_a_call_that_lacks_a_kernel_launches_nothing(toy: Toy) -> None:
    """Prevents: a call returns -4 after it launched some of its kernels."""
    log = {"FAKE_HIP_LOG": str(toy.path / "launches")}
    for _ in range(2):  # the second process finds SCALE and FILL in the cache
        answer = toy.call(SCALE, BROKEN, FILL, times="3", **log)
        assert answer.values == [UNAVAILABLE] * 3
        assert launches(toy) == 0
        assert answer.errors.count("error: this kernel is broken on purpose") == 1
    assert toy.entries() == sorted([toy.entry(SCALE), toy.entry(FILL)])
    # Each process compiles BROKEN once; other kernels are compiled only once.
    assert toy.compiles() == 4


def test_never(warm: Toy) -> None:
    """Prevents: the report names only the first of several kernels that a pack lacks."""
    warm.entry(FILL).unlink()
    log = {"FAKE_HIP_LOG": str(warm.path / "launches")}
    answer = warm.call(SCALE, FILL, BROKEN, times="2", QOLA_LAZY="never", **log)
    assert answer.values == [UNAVAILABLE] * 2
    assert [line.split()[1] for line in answer.errors.splitlines()] == [FILL, BROKEN]
    assert launches(warm) == 0


def test_a_recorded_call_launches_nothing(toy: Toy) -> None:
    """Prevents: kernels run twice, on inputs that the previous kernel has not written yet."""
    log = {"FAKE_HIP_LOG": str(toy.path / "launches")}
    # The program aborts if the assembly launch reaches HIP in the recorded call.
    answer = toy.call(SCALE, "asm", FILL, SCALE, times="2", **log)
    assert answer.values == [f"{SCALED},refused,{FILLED},{SCALED}"] * 2
    assert answer.runs == [2, 1]
    assert launches(toy) == 6


def test_prepared_calls(toy: Toy) -> None:
    """Prevents: a first call compiles although it was prepared, or preparing launches kernels."""
    log = {"FAKE_HIP_LOG": str(toy.path / "launches")}
    never = toy.call(SCALE, FILL, ASK_PREPARE="1", QOLA_LAZY="never", **log)
    assert never.values == [UNAVAILABLE]
    prepared = toy.call(SCALE, FILL, SCALE, times="2", ASK_PREPARE="1", **log)
    assert prepared.values == ["2", "2"]
    assert toy.compiles() == 2
    assert launches(toy) == 0
    assert toy.call(SCALE, FILL, QOLA_LAZY="never", **log).values == [BOTH]


def test_a_recorded_call_that_queries_a_kernel(toy: Toy) -> None:
    """Prevents: a dispatch decides by an answer that no kernel returned."""
    answer = toy.call(f"?{toy.row(SCALE)}", FILL, times="2")
    assert answer.values == [f"known,{FILLED}"] * 2
    assert answer.runs == [2, 1]
    assert toy.compiles() == 2


def test_arguments_that_own_resources(toy: Toy) -> None:
    """Prevents: a call runs the caller's allocator twice and frees memory that is in use."""
    answer = toy.call(SCALE, FILL, times="2", ASK_OWNS="1")
    assert answer.values == [BOTH] * 2
    assert answer.runs == [1, 1]
    assert toy.compiles() == 2


def test_an_earlier_hip_error(toy: Toy) -> None:
    """Prevents: a recorded call clears an earlier HIP error that the call would report."""
    answer = toy.call("error", SCALE)
    assert answer.values == ["refused,-1"]
    assert answer.runs == [1]


def test_threads_that_make_the_same_call(toy: Toy) -> None:
    """Prevents: concurrent calls record into each other, compile twice or deadlock."""
    log = {"FAKE_HIP_LOG": str(toy.path / "launches")}
    answer = toy.call(SCALE, FILL, threads="8", times="3", MAX_JOBS="2", **log)
    assert answer.values == [BOTH] * 24
    assert toy.compiles() == 2
    assert launches(toy) == 48
    assert toy.leftovers() == []


def test_the_row_of_the_device(toy: Toy) -> None:
    """Prevents: a recorded call compiles a kernel of another arch."""
    both = Toy(toy.path / "both", toy.tools, toy.identity, archs=("gfx950", ARCH))
    answer = both.call(f"{both.row(SCALE, 'gfx950')}+2", f"{both.row(FILL, 'gfx950')}+2")
    assert answer.values == [BOTH]
    assert both.compiles() == 2
    assert [path.name[:6] for path in both.entries()] == [ARCH, ARCH]


def test_without_threads(toy: Toy) -> None:
    """Prevents: a process that cannot start threads gets no kernel."""
    shim = preloaded(
        toy,
        """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
static int started;
typedef void* (*Start)(void*);
typedef int (*Create)(pthread_t*, const pthread_attr_t*, Start, void*);
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, Start start, void* of)
{
    if(started++)
        return EAGAIN;
    return ((Create)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, start, of);
}
""",
    )
    assert toy.call(SCALE, FILL, LD_PRELOAD=shim, MAX_JOBS="2").values == [BOTH]
    assert toy.compiles() == 2


def call_in_background(toy: Toy, *kernels: str) -> Answer:
    """Call repeatedly for two seconds while compiles wait until all have started."""
    # Compile the kernels before, so that the compiler's cache answers quickly.
    Toy(toy.path / "before", toy.tools, toy.identity).ask(*kernels)
    go = toy.path / "go"
    compiler, events = logging_compiler(toy, f"while [ ! -e {go} ]; do sleep 0.05; done")
    settings = {"QOLA_LAZY": "background", "MAX_JOBS": "2", "QOLA_COMPILER": compiler}
    settings |= {"ASK_PAUSE": "20", "FAKE_HIP_LOG": str(toy.path / "launches")}
    rows = ",".join(str(toy.row(kernel)) for kernel in kernels)
    process = toy.launch(toy.command(rows, times=str(CALLS)), **settings)
    wait_for(lambda: events.exists() and events.read_text().count("start") == len(kernels))
    go.touch()
    return finish(process)


def test_background(toy: Toy) -> None:
    """Prevents: with QOLA_LAZY=background, a call waits for a compile."""
    answer = call_in_background(toy, SCALE, FILL)
    failures = answer.values.index(BOTH)
    assert answer.values == [UNAVAILABLE] * failures + [BOTH] * (CALLS - failures)
    assert failures > 0
    assert launches(toy) == 2 * (CALLS - failures)
    assert "is compiled in the background; calls that need it answer -4" in answer.errors
    assert toy.compiles() == 2
    assert toy.leftovers() == []


@pytest.mark.thorough
def test_background_tries_once(toy: Toy) -> None:
    """Prevents: a process compiles a broken kernel again for each call."""
    answer = call_in_background(toy, SCALE, BROKEN)
    assert answer.values == [UNAVAILABLE] * CALLS
    assert launches(toy) == 0
    assert answer.errors.count("error: this kernel is broken on purpose") == 1
    assert toy.compiles() == 2


def test_background_waits_for_cached_kernels(warm: Toy) -> None:
    """Prevents: a call returns -4 for a cached kernel."""
    before = warm.compiles()
    assert warm.call(SCALE, FILL, QOLA_LAZY="background").values == [BOTH]
    assert warm.compiles() == before
