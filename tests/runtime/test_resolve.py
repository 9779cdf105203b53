"""Kernels that are asked for: found, compiled, loaded, or not to be had and why."""

from __future__ import annotations

import hashlib
import re
import resource
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from qola.lazy.index import ABI, render_table
from tests.runtime.lazy import (
    BROKEN,
    FILL,
    FILLED,
    SCALE,
    SCALED,
    UNAVAILABLE,
    Tools,
    Toy,
    preloaded,
)


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


def test_broken_kernel(toy: Toy) -> None:
    """Prevents: a failing compile that is repeated for each call, or whose reason nobody sees."""
    answer = toy.ask(BROKEN, SCALE, threads="3", times="2")
    assert sorted(answer.values) == [SCALED] * 6 + [UNAVAILABLE] * 6
    assert toy.compiles() == 2
    assert answer.errors.count("error: this kernel is broken on purpose") == 1
    assert "exit code 1; the command is" in answer.errors
    assert toy.leftovers() == []


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


def test_environment_that_decides_code(toy: Toy) -> None:
    """Prevents: kernels that differ by what happens to be set, under the same key."""
    headers = toy.path / "headers"
    headers.mkdir()
    (headers / f"{SCALE}.h").write_text("#define VALUE 70\n")
    clang = toy.path / "clang++"
    shutil.copy(toy.compiler(), clang)
    settings = {
        "CPATH": str(headers),
        "CPLUS_INCLUDE_PATH": str(headers),
        "CCC_OVERRIDE_OPTIONS": "+-no-such-option",
        "QOLA_COMPILER": str(clang),
    }
    assert toy.ask(SCALE, **settings).values == [SCALED]
    assert " --no-default-config " in toy.log.read_text()


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


def test_writable_temporary_directory(toy: Toy) -> None:
    """Prevents: a compile in a directory where anybody can replace its files."""
    temporary = toy.path / "temporary"
    temporary.mkdir()
    temporary.chmod(0o777)
    settings = {"QOLA_CACHE": "/proc/qola", "TMPDIR": str(temporary)}
    told = toy.path / "told"
    settings["QOLA_COMPILER"] = toy.compiler(f"echo $TMPDIR > {told}")
    answer = toy.ask(SCALE, **settings)
    assert answer.values == [SCALED]
    assert f"{temporary} is writable by everybody (mode 0777" in answer.errors
    assert "(TMPDIR); /tmp is used\n" in answer.errors
    assert told.read_text().startswith("/tmp/qola-")
    temporary.chmod(0o1777)
    assert toy.ask(SCALE, **settings).values == [SCALED]
    assert told.read_text().startswith(f"{temporary}/qola-")


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


@pytest.mark.parametrize("cache", ["", "/proc/qola"])
def test_sources_replaced_during_the_compile(toy: Toy, cache: str) -> None:
    """Prevents: a kernel of the next version's sources under the key of this one's."""
    header = toy.root / f"include/{SCALE}/{SCALE}.h"
    compiler = toy.compiler(f"echo '#define VALUE 70' > {header}")
    answer = toy.ask(SCALE, QOLA_COMPILER=compiler, QOLA_CACHE=cache or str(toy.cache))
    assert answer.values == [UNAVAILABLE]
    assert f"{header} is not the file of the index" in answer.errors
    assert toy.compiles() == 1
    assert (toy.entries(), toy.leftovers()) == ([], [])


def test_missing_sources(toy: Toy) -> None:
    """Prevents: a library without its sources that does not say what is missing."""
    shutil.rmtree(toy.root)
    answer = toy.ask(SCALE)
    assert answer.values == [UNAVAILABLE]
    assert "its sources are not there to be compiled" in answer.errors
    assert "QOLA_ROOT" in answer.errors


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


def test_versions_agree(built: Tools) -> None:
    """Prevents: digests of one version of the interface in libraries of another."""
    text = (built.runtime / "qola_kernel.h").read_text()
    (abi,) = re.findall(r"^#define QOLA_KERNEL_ABI (\d+)", text, re.MULTILINE)
    assert int(abi) == ABI


def test_table_of_a_library(toy: Toy) -> None:
    """Prevents: a table of kernels that does not fit the runtime's declarations."""
    source = toy.path / "table.cpp"
    source.write_text(render_table(toy.index))
    include = ["-I", str(toy.tools.runtime), "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*toy.tools.compiler, *include, "-fsyntax-only", source], check=True)
