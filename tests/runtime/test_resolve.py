"""Kernels that are asked for: found, compiled once, loaded, or not to be had and why."""

from __future__ import annotations

import hashlib
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from qola.lazy.index import render_table
from tests.runtime.lazy import (
    ARCH,
    BROKEN,
    FILL,
    SCALE,
    UNAVAILABLE,
    VALUES,
    Answer,
    Toy,
    finish,
    kill,
    processes_with,
    run,
)

SCALED, FILLED = str(VALUES[SCALE]), str(VALUES[FILL])


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something holds, and fail where it does not come to."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def test_compiled_once_then_loaded(toy: Toy) -> None:
    """Prevents: a kernel that is compiled by every process, or loaded slowly."""
    cold = toy.ask(SCALE, FILL)
    assert cold.values == [SCALED, FILLED]
    assert toy.compiles() == 2
    assert toy.entries() == sorted([toy.entry(SCALE), toy.entry(FILL)])
    assert toy.leftovers() == []
    again = toy.ask(SCALE, FILL, QOLA_COMPILER="/nowhere/clang++")
    assert again.values == [SCALED, FILLED]
    assert again.errors == ""
    assert toy.compiles() == 2
    print(f"cold {cold.milliseconds} ms, warm {again.milliseconds} ms")
    assert max(again.milliseconds) < 50


def test_entry_is_what_its_format_says(warm: Toy) -> None:
    """Prevents: entries that another implementation of the format refuses."""
    entry = warm.entry(SCALE).read_bytes()
    magic, abi, zero, key, digest = struct.unpack("<8sII32s32s", entry[-80:])
    assert (magic, abi, zero) == (b"QOLAKRN1", 1, 0)
    assert key.hex() == warm.key(SCALE)
    assert digest == hashlib.sha256(entry[:-32]).digest()
    assert entry.startswith(b"\x7fELF")


def test_processes_compile_once(toy: Toy) -> None:
    """Prevents: a machine whose ranks all compile the same kernel."""
    running = [toy.start(SCALE) for _ in range(16)]
    answers = [finish(process) for process in running]
    assert [answer.values for answer in answers] == [[SCALED]] * 16
    assert toy.compiles() == 1
    assert toy.leftovers() == []


def test_threads_compile_once(toy: Toy) -> None:
    """Prevents: threads that compile or load the same kernel side by side."""
    answer = toy.ask(SCALE, threads="8", times="3")
    assert answer.values == [SCALED] * 24
    assert toy.compiles() == 1


def test_owner_killed(toy: Toy) -> None:
    """Prevents: a killed process that blocks all others, or leaves its compiler running."""
    slow = toy.compiler("sleep 1234.5 & wait")
    owner = toy.start(SCALE, QOLA_COMPILER=slow)
    wait_for(toy.compiles)
    wait_for(lambda: processes_with("sleep 1234.5"))
    waiting = toy.start(SCALE, QOLA_COMPILER=toy.compiler())
    time.sleep(0.3)
    kill(owner)
    assert finish(waiting).values == [SCALED]
    wait_for(lambda: not processes_with("sleep 1234.5"))
    assert not processes_with(str(toy.path))
    assert toy.compiles() == 2
    assert toy.leftovers() == []


def test_wait_ends(toy: Toy) -> None:
    """Prevents: a process that waits forever for another one's compile."""
    owner = toy.start(SCALE, QOLA_COMPILER=toy.compiler("sleep 1234.5 & wait"))
    wait_for(toy.compiles)
    try:
        answer = toy.ask(SCALE, QOLA_COMPILER=toy.compiler(), QOLA_WAIT="1")
    finally:
        kill(owner)
    assert answer.values == [UNAVAILABLE]
    assert (
        f"waited 1 s for {toy.entry(SCALE)}.lock, held by process {owner.pid} on" in answer.errors
    )
    assert "QOLA_WAIT" in answer.errors


def test_lock_removed_while_waiting(toy: Toy) -> None:
    """Prevents: a process that waits for a lock file that nobody else can see any more."""
    owner = toy.start(SCALE, QOLA_COMPILER=toy.compiler("sleep 1234.5 & wait"))
    wait_for(toy.compiles)
    waiting = toy.start(SCALE, QOLA_COMPILER=toy.compiler())
    time.sleep(0.3)
    Path(f"{toy.entry(SCALE)}.lock").unlink()
    try:
        assert finish(waiting).values == [SCALED]
    finally:
        kill(owner)


def test_killed_and_cleaned(toy: Toy) -> None:
    """Prevents: kernels that are lost where processes are killed and caches are emptied."""
    choice = random.Random(1)
    running: list[tuple[subprocess.Popen[str], float]] = []
    answers: list[Answer] = []
    end = time.monotonic() + 8
    while running or time.monotonic() < end:
        while len(running) < 6 and time.monotonic() < end:
            killed_in = choice.choice([choice.random(), 1000.0])
            running.append((toy.start(SCALE, FILL), time.monotonic() + killed_in))
        if choice.random() < 0.2:
            assert toy.tool("clean", "--all").returncode == 0
        for process, killed_at in list(running):
            if process.poll() is not None:
                answers.append(finish(process))
            elif time.monotonic() > killed_at:
                kill(process)
            else:
                continue
            running.remove((process, killed_at))
        time.sleep(0.02)
    assert answers
    assert {tuple(answer.values) for answer in answers} == {(SCALED, FILLED)}
    wait_for(lambda: not processes_with(str(toy.path)))
    verified = toy.tool("verify")
    assert (verified.returncode, verified.stdout) == (0, "")


def test_compile_timeout(toy: Toy) -> None:
    """Prevents: a compiler that hangs and takes the process with it."""
    slow = toy.compiler("sleep 1234.5 & wait")
    answer = toy.ask(SCALE, QOLA_COMPILER=slow, QOLA_COMPILE_TIMEOUT="1")
    assert answer.values == [UNAVAILABLE]
    assert "no end within 1 s (QOLA_COMPILE_TIMEOUT)" in answer.errors
    wait_for(lambda: not processes_with("sleep 1234.5"))
    assert toy.leftovers() == []


def test_progress_is_told(toy: Toy) -> None:
    """Prevents: a process that seems to hang while a compiler runs."""
    owner = toy.start(SCALE, QOLA_COMPILER=toy.compiler("sleep 3"))
    wait_for(toy.compiles)
    waiting = finish(toy.start(SCALE, QOLA_COMPILER=toy.compiler("sleep 3")))
    told = finish(owner).errors
    assert f"qola: compiling {SCALE} for {ARCH} ...\n" in told
    assert re.search(rf"qola: compiled {SCALE} for {ARCH} in [0-9.]+ s\n", told)
    assert f"qola: waiting for {SCALE} for {ARCH}, which process {owner.pid} on" in waiting.errors


def test_broken_kernel(toy: Toy) -> None:
    """Prevents: a failing compile that is repeated for each call, or whose reason nobody sees."""
    answer = toy.ask(BROKEN, SCALE, threads="3", times="2")
    assert sorted(answer.values) == [SCALED] * 6 + [UNAVAILABLE] * 6
    assert toy.compiles() == 2
    assert answer.errors.count("error: this kernel is broken on purpose") == 1
    assert "exit code 1; the command is" in answer.errors
    assert toy.leftovers() == []


def test_signals_of_the_process(toy: Toy) -> None:
    """Prevents: a process that ignores its children's end, and so waits for it forever."""
    process = subprocess.run(
        toy.command(str(toy.row(SCALE))),
        env=toy.environment(),
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert process.stdout.split()[-1] == SCALED


def test_environment_of_the_compiler(toy: Toy) -> None:
    """Prevents: a compiler that loads what is preloaded into its caller, or fills another /tmp."""
    told = toy.path / "told"
    compiler = toy.compiler(f'echo "$LD_PRELOAD|$TMPDIR|$PWD" > {told}')
    preloaded = toy.tools.hip
    assert toy.ask(SCALE, QOLA_COMPILER=compiler, LD_PRELOAD=str(preloaded)).values == [SCALED]
    preload, temporary, directory = told.read_text().strip().split("|")
    assert preload == ""
    assert temporary.startswith(f"{toy.entry(SCALE)}.tmp.")
    assert directory == str(toy.root)


def preloaded(toy: Toy, source: str) -> str:
    """A library that takes the place of a function of the C library's."""
    (toy.path / "shim.c").write_text(source)
    shim = str(toy.path / "shim.so")
    options = ["-x", "c", "-shared", "-fPIC", "-fuse-ld=lld", "-o", shim]
    run([*toy.tools.compiler, *options, str(toy.path / "shim.c")])
    return shim


def test_without_locks(toy: Toy) -> None:
    """Prevents: a file system without locks on which no kernel can be had."""
    shim = preloaded(
        toy,
        """\
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
int fcntl(int fd, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    long value = va_arg(rest, long);
    va_end(rest);
    if(command >= 36 && command <= 38)
        return errno = ENOLCK, -1;
    return syscall(SYS_fcntl, fd, command, value);
}
int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));
""",
    )
    running = [toy.start(SCALE, FILL, LD_PRELOAD=shim) for _ in range(3)]
    answers = [finish(process) for process in running]
    assert [answer.values for answer in answers] == [[SCALED, FILLED]] * 3
    assert [answer.errors.count("qola: no locks in ") for answer in answers] == [1] * 3
    assert toy.ask(SCALE, QOLA_LAZY="never").values == [SCALED]
    assert toy.tool("verify").returncode == 0


def test_without_memory_files(toy: Toy) -> None:
    """Prevents: a system that forbids memory files and so gets no kernel of a pack."""
    shim = preloaded(
        toy,
        """\
#include <errno.h>
int memfd_create(const char* name, unsigned flags)
{
    (void)name;
    (void)flags;
    return errno = EACCES, -1;
}
""",
    )
    answer = toy.ask(SCALE, FILL, LD_PRELOAD=shim, QOLA_CACHE="/proc/qola")
    assert answer.values == [SCALED, FILLED]
    assert toy.leftovers() == []


def put(path: Path, content: bytes) -> None:
    """Replace an entry, as nobody should."""
    path.unlink()
    path.write_bytes(content)


def with_trailer(library: bytes, abi: int, key: str) -> bytes:
    """An entry for another ABI or key, right in itself."""
    start = library + b"QOLAKRN1" + struct.pack("<II", abi, 0) + bytes.fromhex(key)
    return start + hashlib.sha256(start).digest()


def truncated(toy: Toy) -> None:
    entry = toy.entry(SCALE)
    put(entry, entry.read_bytes()[:-1000])


def emptied(toy: Toy) -> None:
    put(toy.entry(SCALE), b"")


def flipped(toy: Toy) -> None:
    content = bytearray(toy.entry(SCALE).read_bytes())
    content[len(content) // 2] ^= 1
    put(toy.entry(SCALE), bytes(content))


def of_another_kernel(toy: Toy) -> None:
    put(toy.entry(SCALE), toy.entry(FILL).read_bytes())


def of_another_arch(toy: Toy) -> None:
    entry = toy.entry(SCALE)
    other = Toy(toy.path / "other", toy.tools, toy.identity, archs=("gfx950",))
    put(entry, with_trailer(entry.read_bytes()[:-80], 1, other.key(SCALE)))


def of_older_abi(toy: Toy) -> None:
    entry = toy.entry(SCALE)
    put(entry, with_trailer(entry.read_bytes()[:-80], 0, toy.key(SCALE)))


def foreign(toy: Toy) -> None:
    put(toy.entry(SCALE), b"#!/bin/sh\necho this is no kernel\n" * 10)


def writable_file(toy: Toy) -> None:
    toy.entry(SCALE).chmod(0o666)


def linked(toy: Toy) -> None:
    entry = toy.entry(SCALE)
    aside = toy.path / "aside.so"
    entry.rename(aside)
    entry.symlink_to(aside)


def unreadable(toy: Toy) -> None:
    # What stands there is a directory: for root, too, there is nothing to be read.
    entry = toy.entry(SCALE)
    entry.unlink()
    entry.mkdir()


DAMAGES: dict[Callable[[Toy], None], str] = {
    truncated: "truncated or none of qola's",
    emptied: "it has 0 bytes",
    flipped: "is damaged: its bytes have the digest",
    of_another_kernel: "has the key",
    of_another_arch: "has the key",
    of_older_abi: "is of kernel ABI 0, expected 1",
    foreign: "truncated or none of qola's",
    writable_file: "is writable by others (mode 0666, owner",
    linked: "is a symbolic link; remove it",
    unreadable: "",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_entry(warm: Toy, damage: Callable[[Toy], None]) -> None:
    """Prevents: a damaged or planted file that is loaded, or that a kernel is lost to for good."""
    damage(warm)
    never = warm.ask(SCALE, QOLA_LAZY="never")
    assert never.values == [UNAVAILABLE]
    assert DAMAGES[damage] in never.errors
    answer = warm.ask(SCALE)
    assert answer.values == [SCALED]
    assert DAMAGES[damage] in answer.errors
    assert str(warm.entry(SCALE)) in answer.errors
    assert warm.compiles() == 1
    if damage is not unreadable:
        again = warm.ask(SCALE)
        assert (again.values, again.errors) == ([SCALED], "")
        assert warm.compiles() == 1


@pytest.mark.parametrize("place", ["root", "kernel", "above"])
def test_writable_directory(warm: Toy, place: str) -> None:
    """Prevents: a kernel from a directory where anybody can put files."""
    paths = {"root": warm.cache, "kernel": warm.cache / SCALE, "above": warm.path}
    paths[place].chmod(0o777)
    answer = warm.ask(SCALE)
    assert answer.values == [SCALED]
    assert warm.compiles() == 1
    assert f"{paths[place]} is writable by" in answer.errors
    assert f"w {paths[place]}" in answer.errors
    assert "kernels compiled now are not kept" in answer.errors
    never = warm.ask(SCALE, QOLA_LAZY="never")
    assert never.values == [UNAVAILABLE]
    assert warm.leftovers() == []


def test_cache_that_cannot_be_made(toy: Toy) -> None:
    """Prevents: a process without a place to write to that gets no kernel."""
    (toy.path / "file").write_text("")
    for cache in (f"{toy.path}/file/cache", "/proc/qola"):
        answer = toy.ask(SCALE, FILL, QOLA_CACHE=cache)
        assert answer.values == [SCALED, FILLED]
        assert answer.errors.count("kernels compiled now are not kept") == 1
    assert toy.leftovers() == []


def test_no_place_at_all(toy: Toy) -> None:
    """Prevents: a crash where nothing can be written anywhere."""
    answer = toy.ask(SCALE, QOLA_CACHE="/proc/qola", TMPDIR="/proc/qola")
    assert answer.values == [UNAVAILABLE]


def test_file_size_limit(toy: Toy) -> None:
    """Prevents: a limit that a compile runs into and that ends the process."""
    process = subprocess.run(
        toy.command(str(toy.row(SCALE))),
        env=toy.environment(),
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)),
    )
    assert process.stdout.split()[1:] == UNAVAILABLE.split()
    assert toy.leftovers() == []


def test_header_of_one_kernel(warm: Toy) -> None:
    """Prevents: a change of one header that leaves a stale kernel, or compiles all anew."""
    before = warm.codes()
    warm.headers[SCALE] = "#define VALUE 70\n"
    warm.write()
    after = warm.codes()
    assert {name for name in before if before[name] != after[name]} == {SCALE}
    answer = warm.ask(SCALE, FILL)
    assert answer.values == ["70", FILLED]
    assert warm.compiles() == 1


TAMPERED = [
    f"src/toys/{SCALE}.cpp",
    "entries/one.cpp",
    f"include/{SCALE}/{SCALE}.h",
    "include/qola/qola_kernel.h",
    "kernels.index",
]


@pytest.mark.parametrize("file", TAMPERED)
def test_tampered_source(toy: Toy, file: str) -> None:
    """Prevents: a kernel that is compiled from other sources than its key says."""
    with (toy.root / file).open("a") as stream:
        stream.write("// another line\n")
    answer = toy.ask(SCALE)
    assert answer.values == [UNAVAILABLE]
    assert re.search(
        rf"{file} is not .* digest is [0-9a-f]{{64}}, expected [0-9a-f]{{64}}", answer.errors
    )
    assert toy.compiles() == 0


def test_missing_sources(toy: Toy) -> None:
    """Prevents: a library without its sources that does not say what is missing."""
    shutil.rmtree(toy.root)
    answer = toy.ask(SCALE)
    assert answer.values == [UNAVAILABLE]
    assert "its sources are not there to be compiled" in answer.errors
    assert "QOLA_ROOT" in answer.errors


@pytest.mark.parametrize(
    ("settings", "compiles"),
    [
        ({"QOLA_LAZY": "never"}, False),
        ({"QOLA_LAZY": "auto"}, True),
        ({"QOLA_LAZY": "auto", "NVTE_CK_JIT": "0"}, True),
        ({"QOLA_LAZY": "never", "NVTE_CK_JIT": "1"}, False),
        *(({"NVTE_CK_JIT": value}, False) for value in ("0", "false", "off", "OFF", "False")),
        *(({"NVTE_CK_JIT": value}, True) for value in ("1", "true", "on", "auto", "Auto")),
    ],
)
def test_modes(toy: Toy, settings: dict[str, str], compiles: bool) -> None:
    """Prevents: a machine that must not compile and does, or the other way round."""
    answer = toy.ask(SCALE, **settings)
    assert answer.values == [SCALED if compiles else UNAVAILABLE]
    assert toy.compiles() == int(compiles)
    if not compiles:
        assert f"{SCALE}/{toy.entry(SCALE).name}" in answer.errors
        assert f"qola kernels build --arch {ARCH} {SCALE}" in answer.errors


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("QOLA_LAZY", "Never", "auto (a kernel that is nowhere is compiled) or never"),
        ("QOLA_LAZY", "1", "auto (a kernel that is nowhere is compiled) or never"),
        ("NVTE_CK_JIT", "2", "0, false or off (no kernel is compiled), or 1, true, on or auto"),
        ("NVTE_CK_JIT", "yes", "0, false or off (no kernel is compiled), or 1, true, on or auto"),
        ("QOLA_WAIT", "soon", "a whole number of seconds from 0 to 1000000"),
        ("QOLA_WAIT", "-1", "a whole number of seconds from 0 to 1000000"),
        ("QOLA_WAIT", "1e3", "a whole number of seconds from 0 to 1000000"),
        ("QOLA_COMPILE_TIMEOUT", "0", "a whole number of seconds from 1 to 1000000"),
        ("QOLA_COMPILE_TIMEOUT", "99999999999999999999", "from 1 to 1000000"),
        ("QOLA_VERBOSE", "yes", "0 or 1"),
    ],
)
def test_wrong_settings(warm: Toy, name: str, value: str, right: str) -> None:
    """Prevents: a misspelt setting that is taken for some other."""
    answer = warm.ask(SCALE, FILL, **{name: value})
    assert answer.values == [UNAVAILABLE, UNAVAILABLE]
    assert answer.errors.count(f"{name}={value} is not right: expected ") == 1
    assert right in answer.errors
    tool = warm.tool("list", **{name: value})
    assert tool.returncode == 2
    assert right in tool.stderr


def test_deprecated_names(warm: Toy) -> None:
    """Prevents: users of ck-jit whose settings are silently without effect."""
    answer = warm.ask(
        SCALE,
        QOLA_CACHE="",
        CK_JIT_CACHE_DIR=str(warm.cache),
        CK_JIT_VERBOSE="2",
        NVTE_CK_JIT_DIR="/x",
    )
    assert answer.values == [SCALED]
    for old, new in (
        ("CK_JIT_CACHE_DIR", "QOLA_CACHE"),
        ("CK_JIT_VERBOSE", "QOLA_VERBOSE"),
        ("NVTE_CK_JIT_DIR", "QOLA_ROOT"),
    ):
        assert answer.errors.count(f"qola: {old} is deprecated, use {new}\n") == 1
    assert f"{SCALE} for {ARCH}: cache {warm.entry(SCALE)}, " in answer.errors
    silent = warm.ask(SCALE, CK_JIT_CACHE_DIR="/x", QOLA_VERBOSE="0", CK_JIT_VERBOSE="1")
    assert (silent.values, silent.errors) == ([SCALED], "")


def test_places_of_sources(toy: Toy) -> None:
    """Prevents: a library that was moved away from its sources for good."""
    aside = toy.path / "aside"
    toy.root.parent.rename(aside)
    manifest = aside / toy.root.name / "kernels.index"
    for settings, note in (
        ({"QOLA_ROOT": str(aside)}, ""),
        ({"CK_JIT_ROOT": str(aside), "NVTE_CK_JIT_DIR": "/x"}, "CK_JIT_ROOT is deprecated"),
        ({"NVTE_CK_JIT_DIR": str(aside)}, "NVTE_CK_JIT_DIR is deprecated, use QOLA_ROOT"),
        ({"CK_JIT_MANIFEST": str(manifest)}, "CK_JIT_MANIFEST is deprecated, use QOLA_ROOT"),
        (
            {"CK_JIT_MANIFEST": "/x/manifest.json", "QOLA_ROOT": ""},
            "CK_JIT_MANIFEST=/x/manifest.json is ignored: qola has an index of its own",
        ),
    ):
        shutil.rmtree(toy.cache, ignore_errors=True)
        answer = toy.ask(SCALE, **settings)
        assert answer.values == [UNAVAILABLE if "ignored" in note else SCALED]
        assert answer.errors.startswith(f"qola: {note}" if note else "")


def test_library_behind_a_link(toy: Toy) -> None:
    """Prevents: sources that are not found because the library is reached by a symbolic link."""
    real = toy.path / "real"
    real.mkdir()
    (toy.path / "lib").rename(real / "lib")
    (toy.path / "share").rename(real / "share")
    (toy.path / "lib").mkdir()
    (toy.path / "lib/ask").symlink_to(real / "lib/ask")
    assert toy.ask(SCALE).values == [SCALED]


def test_record(toy: Toy) -> None:
    """Prevents: a record that misses kernels, or names one for each call."""
    record = toy.path / "record"
    settings = {"QOLA_RECORD": str(record)}
    toy.ask(SCALE, BROKEN, threads="2", times="3", **settings)
    assert sorted(record.read_text().splitlines()) == [f"{BROKEN} {ARCH}", f"{SCALE} {ARCH}"]
    toy.ask(FILL, QOLA_LAZY="never", **settings)
    assert record.read_text().splitlines()[2:] == [f"{FILL} {ARCH}"]
    answer = toy.ask(SCALE, QOLA_RECORD="/proc/qola/record")
    assert answer.values == [SCALED]
    assert "QOLA_RECORD: open /proc/qola/record" in answer.errors


def test_caches_in_order(warm: Toy) -> None:
    """Prevents: a shared cache that is not read, or is written to."""
    own = warm.path / "own"
    settings = {"QOLA_CACHE": f"{own}:{warm.cache}", "QOLA_COMPILER": warm.compiler()}
    assert warm.ask(SCALE, **settings).values == [SCALED]
    assert (warm.compiles(), own.exists()) == (0, False)
    warm.entry(FILL).unlink()
    assert warm.ask(FILL, **settings).values == [FILLED]
    assert not warm.entry(FILL).exists()
    (entry,) = own.glob("*/*.so")
    modes = [oct(path.stat().st_mode & 0o777) for path in (own, entry.parent, entry)]
    assert modes == ["0o700", "0o700", "0o600"]


def test_modes_of_a_shared_cache(toy: Toy) -> None:
    """Prevents: a cache for all users whose entries only one can read."""
    toy.cache.mkdir(mode=0o755)
    previous = os.umask(0o077)
    try:
        assert toy.ask(SCALE).values == [SCALED]
    finally:
        os.umask(previous)
    entry = toy.entry(SCALE)
    assert [oct(path.stat().st_mode & 0o777) for path in (entry.parent, entry)] == [
        "0o755",
        "0o644",
    ]


def test_default_cache(toy: Toy) -> None:
    """Prevents: a cache that is somewhere else than documented."""
    xdg = toy.path / "xdg"
    toy.ask(SCALE, QOLA_CACHE="", XDG_CACHE_HOME=str(xdg))
    toy.ask(SCALE, QOLA_CACHE="")
    assert len(list((xdg / "qola/kernels").glob("*/*.so"))) == 1
    assert len(list((toy.path / ".cache/qola/kernels").glob("*/*.so"))) == 1


def test_other_compiler(toy: Toy) -> None:
    """Prevents: kernels of another compiler that pass for those of the library's own."""
    own = toy.identity
    toy.identity = "some other compiler"
    toy.write()
    answer = toy.ask(SCALE, FILL)
    assert answer.values == [SCALED, FILLED]
    assert (
        answer.errors.count("is not the one the library was built with (some other compiler)") == 1
    )
    assert toy.entries() == sorted(toy.entry(name, own) for name in (SCALE, FILL))
    again = toy.ask(SCALE, FILL)
    assert again.values == [SCALED, FILLED]
    assert toy.compiles() == 2
    assert toy.ask(SCALE, QOLA_LAZY="never").values == [UNAVAILABLE]


def test_places_of_compilers(toy: Toy) -> None:
    """Prevents: a compiler that is there and not found, or one that is preferred by accident."""
    compiler = Path(toy.compiler())

    def place(path: str) -> Path:
        target = toy.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(compiler)
        return target

    def used(**settings: str) -> str:
        shutil.rmtree(toy.cache, ignore_errors=True)
        # Its command is shown when it fails.
        command = toy.ask(BROKEN, QOLA_COMPILER="", **settings).errors.splitlines()[1]
        return command.split()[0].removeprefix(f"{toy.path}/")

    place("rocm/llvm/bin/clang++")
    place("hip/llvm/bin/clang++")
    place("rocm2/llvm/bin/clang++")
    (toy.path / "rocm2/hip").mkdir()
    place("a/hipcc")
    place("b/amdclang++")
    path = f"{toy.path}/a:{toy.path}/b"
    rocm, hip = f"{toy.path}/rocm", f"{toy.path}/hip"
    assert used(ROCM_PATH=rocm, HIP_PATH=hip, PATH=path) == "rocm/llvm/bin/clang++"
    assert used(HIP_PATH=hip, PATH=path) == "hip/llvm/bin/clang++"
    assert used(HIP_PATH=f"{toy.path}/rocm2/hip") == "rocm2/hip/../llvm/bin/clang++"
    if not Path("/opt/rocm/llvm/bin/clang++").exists():
        assert used(PATH=path) == "b/amdclang++"
        assert used(PATH=f"{toy.path}/a") == "a/hipcc"
        answer = toy.ask(SCALE, QOLA_COMPILER="", PATH="/nowhere")
        assert answer.values == [UNAVAILABLE]
        assert "here there is none of $ROCM_PATH/llvm/bin/clang++" in answer.errors


def test_compiler_that_is_none(toy: Toy) -> None:
    """Prevents: a wrong QOLA_COMPILER that is said for each kernel, or not at all."""
    for compiler, why in (
        ("/nowhere/clang++ -O3", "QOLA_COMPILER: there is no program /nowhere/clang++"),
        ("false", "cannot preprocess HIP (exit code 1)"),
        ("true", "/identity.txt: No such file or directory"),
    ):
        answer = toy.ask(SCALE, FILL, QOLA_COMPILER=compiler)
        assert answer.values == [UNAVAILABLE, UNAVAILABLE]
        assert answer.errors.count(why) == 1
        assert answer.errors.count("neither a cache nor a pack has") == 2


def test_rows_of_several_archs(toy: Toy) -> None:
    """Prevents: the kernel of one arch on a device of another."""
    toy.archs = ("gfx942", "gfx950")
    toy.write()
    row = toy.row(SCALE, "gfx942")
    command = toy.command(f"{row}+2", times="2")
    for arch in toy.archs:
        environment = toy.environment(FAKE_HIP_ARCH=arch, QOLA_VERBOSE="1")
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        assert [line.split()[-1] for line in process.stdout.splitlines()] == [SCALED] * 2
        assert f"{SCALE} for {arch}: compiled" in process.stderr
    other = toy.row(SCALE, "gfx950")
    alone = toy.command(f"{other}+0")
    process = subprocess.run(
        alone, env=toy.environment(), capture_output=True, text=True, check=True
    )
    assert process.stdout.split()[1:] == ["status", "-2"]


def test_hip_fails(warm: Toy) -> None:
    """Prevents: a failing HIP runtime that passes for a missing kernel."""
    command = warm.command(f"{warm.row(SCALE)}+2")
    environment = warm.environment(FAKE_HIP_FAIL="hipGetDevice=100")
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.split()[1:] == ["status", "-3"]
    assert "qola: hipGetDevice: " in process.stderr


def test_table_of_a_library(toy: Toy) -> None:
    """Prevents: a table of kernels that does not fit the runtime's declarations."""
    source = toy.path / "table.cpp"
    source.write_text(render_table(toy.index))
    include = ["-I", str(toy.tools.runtime), "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*toy.tools.compiler, *include, "-fsyntax-only", source], check=True)
