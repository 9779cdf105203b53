"""Calls that launch several kernels: had side by side, and all of them before any is launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lazy.lazy import (
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


def told_compiler(toy: Toy, wait: str) -> tuple[str, Path]:
    """A compiler that logs when a compile starts and, after `wait` (shell), that it ends."""
    events = toy.path / "events"
    return toy.compiler(f"echo start >> {events}; {wait}; echo end >> {events}"), events


def launches(toy: Toy) -> int:
    """Number of launches so far, of those that FAKE_HIP_LOG was told of."""
    log = toy.path / "launches"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_kernels_of_a_call_compile_side_by_side(toy: Toy) -> None:
    """Prevents: a first backward call that takes three compiles one after the other."""
    # Each waits for the other to start; where it does not, the log shows it.
    both = f'[ "$(grep -c start {toy.path}/events)" = 2 ]'
    wait = f"for i in $(seq 300); do {both} && break; sleep 0.1; done"
    compiler, events = told_compiler(toy, wait)
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
    """Prevents: compiles that take the memory, or the cores, that the application needs."""
    told = toy.path / "told"
    told.write_text("MemTotal: 9000000 kB\nMemAvailable: 2000000 kB\nBuffers: 1 kB\n")
    if settings.get("ASK_TOLD_OF", "").startswith("/sys"):
        told.write_text("2000000000\n")
    compiler, events = told_compiler(toy, "sleep 0.2")
    shim = preloaded(toy, _MEMORY)
    asked = {"QOLA_COMPILER": compiler, "LD_PRELOAD": shim, "ASK_TOLD": str(told)} | settings
    assert toy.call(SCALE, FILL, **asked).values == [BOTH]
    assert events.read_text().split() == ["start", "end", "start", "end"]


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["MAX_JOBS", "CK_JIT_JOBS"])
@pytest.mark.parametrize("value", ["0", "many", "99999"])
def test_wrong_numbers_of_jobs(toy: Toy, name: str, value: str) -> None:
    """Prevents: kernels that cannot be had because of a setting for other programs."""
    answer = toy.call(SCALE, FILL, **{name: value})
    assert answer.values == [BOTH]
    assert f"qola: {name}={value} is ignored: expected a number of compiles" in answer.errors


def test_a_call_that_lacks_a_kernel_launches_nothing(toy: Toy) -> None:
    """Prevents: -4 for a call of which a part has run, the first time or any other."""
    log = {"FAKE_HIP_LOG": str(toy.path / "launches")}
    for _ in range(2):  # the second finds one of them in the cache
        answer = toy.call(SCALE, BROKEN, FILL, times="3", **log)
        assert answer.values == [UNAVAILABLE] * 3
        assert launches(toy) == 0
        assert answer.errors.count("error: this kernel is broken on purpose") == 1
    assert toy.entries() == sorted([toy.entry(SCALE), toy.entry(FILL)])
    # Each process tries it once, and nothing else again.
    assert toy.compiles() == 4


def test_never(warm: Toy) -> None:
    """Prevents: a report that names the first of three kernels that a pack lacks."""
    warm.entry(FILL).unlink()
    log = {"FAKE_HIP_LOG": str(warm.path / "launches")}
    answer = warm.call(SCALE, FILL, BROKEN, times="2", QOLA_LAZY="never", **log)
    assert answer.values == [UNAVAILABLE] * 2
    assert [line.split()[1] for line in answer.errors.splitlines()] == [FILL, BROKEN]
    assert launches(warm) == 0


def test_a_recorded_call_launches_nothing(toy: Toy) -> None:
    """Prevents: kernels that run twice, on what the one before has not made yet."""
    log = {"FAKE_HIP_LOG": str(toy.path / "launches")}
    # The program ends where the launch beside the kernels gets to HIP in the recorded call.
    answer = toy.call(SCALE, "asm", FILL, SCALE, times="2", **log)
    assert answer.values == [f"{SCALED},refused,{FILLED},{SCALED}"] * 2
    assert answer.runs == [2, 1]
    assert launches(toy) == 6


def test_prepared_calls(toy: Toy) -> None:
    """Prevents: a first call that compiles although prepared, or a question that launches."""
    log = {"FAKE_HIP_LOG": str(toy.path / "launches")}
    never = toy.call(SCALE, FILL, ASK_PREPARE="1", QOLA_LAZY="never", **log)
    assert never.values == [UNAVAILABLE]
    prepared = toy.call(SCALE, FILL, SCALE, times="2", ASK_PREPARE="1", **log)
    assert prepared.values == ["2", "2"]
    assert toy.compiles() == 2
    assert launches(toy) == 0
    assert toy.call(SCALE, FILL, QOLA_LAZY="never", **log).values == [BOTH]


def test_what_a_recorded_call_asks_a_kernel(toy: Toy) -> None:
    """Prevents: a dispatch that decides by an answer that no kernel gave."""
    answer = toy.call(f"?{toy.row(SCALE)}", FILL, times="2")
    assert answer.values == [f"known,{FILLED}"] * 2
    assert answer.runs == [2, 1]
    assert toy.compiles() == 2


def test_arguments_that_own_something(toy: Toy) -> None:
    """Prevents: an allocator of the caller's that is asked twice and frees what is in use."""
    answer = toy.call(SCALE, FILL, times="2", ASK_OWNS="1")
    assert answer.values == [BOTH] * 2
    assert answer.runs == [1, 1]
    assert toy.compiles() == 2


def test_an_error_from_before(toy: Toy) -> None:
    """Prevents: a recorded call that meets, and forgets, an error that the call would report."""
    answer = toy.call("error", SCALE)
    assert answer.values == ["refused,-1"]
    assert answer.runs == [1]


def test_threads_that_make_the_same_call(toy: Toy) -> None:
    """Prevents: threads that record into each other, compile twice, or wait for each other."""
    log = {"FAKE_HIP_LOG": str(toy.path / "launches")}
    answer = toy.call(SCALE, FILL, threads="8", times="3", MAX_JOBS="2", **log)
    assert answer.values == [BOTH] * 24
    assert toy.compiles() == 2
    assert launches(toy) == 48
    assert toy.leftovers() == []


def test_the_row_of_the_device(toy: Toy) -> None:
    """Prevents: a recorded call that has another arch's kernel compiled."""
    both = Toy(toy.path / "both", toy.tools, toy.identity, archs=("gfx950", ARCH))
    answer = both.call(f"{both.row(SCALE, 'gfx950')}+2", f"{both.row(FILL, 'gfx950')}+2")
    assert answer.values == [BOTH]
    assert both.compiles() == 2
    assert [path.name[:6] for path in both.entries()] == [ARCH, ARCH]


def test_without_threads(toy: Toy) -> None:
    """Prevents: a process that may start no thread and so gets no kernel."""
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


def called_in_background(toy: Toy, *kernels: str) -> Answer:
    """Call again and again, for two seconds, while compiles wait until each has begun."""
    # The compiler, asked for these before, is quick.
    Toy(toy.path / "before", toy.tools, toy.identity).ask(*kernels)
    go = toy.path / "go"
    compiler, events = told_compiler(toy, f"while [ ! -e {go} ]; do sleep 0.05; done")
    settings = {"QOLA_LAZY": "background", "MAX_JOBS": "2", "QOLA_COMPILER": compiler}
    settings |= {"ASK_PAUSE": "20", "FAKE_HIP_LOG": str(toy.path / "launches")}
    rows = ",".join(str(toy.row(kernel)) for kernel in kernels)
    process = toy.launch(toy.command(rows, times=str(CALLS)), **settings)
    wait_for(lambda: events.exists() and events.read_text().count("start") == len(kernels))
    go.touch()
    return finish(process)


def test_background(toy: Toy) -> None:
    """Prevents: a call that waits for a compile where somebody asked that none does."""
    answer = called_in_background(toy, SCALE, FILL)
    there = answer.values.index(BOTH)
    assert answer.values == [UNAVAILABLE] * there + [BOTH] * (CALLS - there)
    assert there > 0
    assert launches(toy) == 2 * (CALLS - there)
    assert "is compiled in the background; calls that need it answer -4" in answer.errors
    assert toy.compiles() == 2
    assert toy.leftovers() == []


@pytest.mark.thorough
def test_background_tries_once(toy: Toy) -> None:
    """Prevents: a kernel that does not compile and is compiled for as long as the process runs."""
    answer = called_in_background(toy, SCALE, BROKEN)
    assert answer.values == [UNAVAILABLE] * CALLS
    assert launches(toy) == 0
    assert answer.errors.count("error: this kernel is broken on purpose") == 1
    assert toy.compiles() == 2


def test_background_waits_for_what_is_there(warm: Toy) -> None:
    """Prevents: -4 for kernels that a cache has."""
    before = warm.compiles()
    assert warm.call(SCALE, FILL, QOLA_LAZY="background").values == [BOTH]
    assert warm.compiles() == before
