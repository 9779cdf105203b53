"""Requested kernels: found, compiled, loaded, or unavailable with a reason."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from qola.lazy.index import Headers, render_index
from qola_base.files import sha256_of_text
from runtime.tests.lazy.lazy import (
    BROKEN,
    FILL,
    SCALE,
    SCALED,
    UNAVAILABLE,
    Toy,
    finish,
    kill,
    preloaded,
)
from tests.support.waiting import wait_for


def test_compiled_once_then_loaded(toy: Toy) -> None:
    """Prevents: each process compiles the kernel again, or loads it slowly."""
    cold = toy.check_available(SCALE, FILL)
    assert toy.compiles() == 2
    assert toy.entries() == sorted([toy.entry(SCALE), toy.entry(FILL)])
    assert toy.leftovers() == []
    again = toy.check_available(SCALE, FILL, QOLA_COMPILER="/nowhere/clang++")
    assert again.errors == ""
    assert toy.compiles() == 2
    print(f"cold {cold.milliseconds} ms, warm {again.milliseconds} ms")
    assert max(again.milliseconds) < 50


def test_an_entry_has_the_documented_format(warm: Toy) -> None:
    """Prevents: another implementation of the format rejects the entries."""
    entry = warm.entry(SCALE).read_bytes()
    magic, abi, zero, key, digest = struct.unpack("<8sII32s32s", entry[-80:])
    assert (magic, abi, zero) == (b"QOLAKRN1", 1, 0)
    assert key.hex() == warm.key(SCALE)
    assert digest == hashlib.sha256(entry[:-32]).digest()
    assert entry.startswith(b"\x7fELF")


def test_broken_kernel(toy: Toy) -> None:
    """Prevents: each call repeats a failed compile, or hides the compiler's error."""
    answer = toy.ask(BROKEN, SCALE, threads="3", times="2")
    assert sorted(answer.values) == [SCALED] * 6 + [UNAVAILABLE] * 6
    assert toy.compiles() == 2
    assert answer.errors.count("error: this kernel is broken on purpose") == 1
    assert "exit code 1; the command is" in answer.errors
    assert toy.leftovers() == []


def test_environment_of_the_compiler(toy: Toy) -> None:
    """Prevents: the compiler loads LD_PRELOAD of its caller, or writes to another TMPDIR."""
    output = toy.path / "told"
    compiler = toy.compiler(f'echo "$LD_PRELOAD|$TMPDIR|$PWD" > {output}')
    preloaded = toy.tools.hip
    toy.check_available(SCALE, QOLA_COMPILER=compiler, LD_PRELOAD=str(preloaded))
    preload, temporary, directory = output.read_text().strip().split("|")
    assert preload == ""
    assert temporary.startswith(f"{toy.entry(SCALE)}.tmp.")
    assert directory == f"{temporary}/sources"


def test_variables_that_would_change_the_code(toy: Toy) -> None:
    """Prevents: environment variables change a kernel without changing its key."""
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
    toy.check_available(SCALE, **settings)
    assert " --no-default-config " in toy.log.read_text()


def test_without_memory_files(toy: Toy) -> None:
    """Prevents: a system that forbids memfd_create gets no kernel of a pack."""
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
    toy.check_available(SCALE, FILL, LD_PRELOAD=shim, QOLA_CACHE="/proc/qola")
    assert toy.leftovers() == []


def with_trailer(library: bytes, abi: int, key: str) -> bytes:
    """Return a consistent entry for another ABI or key."""
    start = library + b"QOLAKRN1" + struct.pack("<II", abi, 0) + bytes.fromhex(key)
    return start + hashlib.sha256(start).digest()


def of_another_arch(toy: Toy, entry: bytes) -> bytes:
    other = Toy(toy.path / "other", toy.tools, toy.identity, archs=("gfx950",))
    return with_trailer(entry[:-80], 1, other.key(SCALE))


def check_refused(warm: Toy, reason: str, stored: bool = True) -> None:
    """Check that the entry of SCALE is not loaded, and is replaced once if possible."""
    never = warm.check_unavailable(SCALE, QOLA_LAZY="never")
    assert reason in never.errors
    answer = warm.check_available(SCALE)
    assert reason in answer.errors
    assert str(warm.entry(SCALE)) in answer.errors
    assert warm.compiles() == 1
    if stored:
        assert warm.check_available(SCALE).errors == ""
        assert warm.compiles() == 1


#: Functions that change the bytes of an entry, and the reason of the refusal.
DAMAGES: dict[str, tuple[Callable[[Toy, bytes], bytes], str]] = {
    "truncated": (lambda _, entry: entry[:-1000], "truncated or not a kernel of qola"),
    "emptied": (lambda *_: b"", "it has 0 bytes"),
    "flipped": (
        lambda _, entry: entry[:5000] + bytes([entry[5000] ^ 1]) + entry[5001:],
        "is damaged: its bytes have the digest",
    ),
    "of another kernel": (lambda toy, _: toy.entry(FILL).read_bytes(), "has the key"),
    "of another arch": (of_another_arch, "has the key"),
    "of older abi": (
        lambda toy, entry: with_trailer(entry[:-80], 0, toy.key(SCALE)),
        "has kernel ABI 0, expected 1",
    ),
    "foreign": (lambda *_: b"#!/bin/sh\n" * 40, "truncated or not a kernel of qola"),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entry(warm: Toy, damage: str) -> None:
    """Prevents: a damaged or planted file is loaded, or blocks its kernel forever."""
    content, reason = DAMAGES[damage]
    entry = warm.entry(SCALE)
    planted = content(warm, entry.read_bytes())
    entry.unlink()
    entry.write_bytes(planted)
    check_refused(warm, reason)


def test_entry_that_is_not_a_private_file(warm: Toy) -> None:
    """Prevents: a kernel is loaded from a link, a directory, or a file writable by others."""
    entry, aside = warm.entry(SCALE), warm.path / "aside.so"
    entry.chmod(0o666)
    check_refused(warm, "is writable by others (mode 0666, owner")
    entry.rename(aside)
    entry.symlink_to(aside)
    warm.log.unlink()
    check_refused(warm, "is a symbolic link; remove it")
    entry.unlink()
    # A directory cannot be read as a file, even by root.
    entry.mkdir()
    warm.log.unlink()
    check_refused(warm, "", stored=False)


@pytest.mark.parametrize("which", ["root", "kernel", "above"])
def test_writable_directory(warm: Toy, which: str) -> None:
    """Prevents: a kernel is loaded from a directory that others can write to."""
    cache = warm.path / "above/cache"
    cache.parent.mkdir()
    warm.cache.rename(cache)
    paths = {"root": cache, "kernel": cache / SCALE, "above": cache.parent}
    paths[which].chmod(0o777)
    answer = warm.check_available(SCALE, QOLA_CACHE=str(cache))
    assert warm.compiles() == 1
    assert f"{paths[which]} is writable by" in answer.errors
    assert f"w {paths[which]}" in answer.errors
    assert "kernels compiled now are not kept" in answer.errors
    warm.check_unavailable(SCALE, QOLA_LAZY="never", QOLA_CACHE=str(cache))
    assert [*cache.glob("*/*.tmp.*"), *warm.leftovers()] == []


def test_writable_temporary_directory(toy: Toy) -> None:
    """Prevents: a compile runs in a directory where others can replace its files."""
    temporary = toy.path / "temporary"
    temporary.mkdir()
    temporary.chmod(0o777)
    settings = {"QOLA_CACHE": "/proc/qola", "TMPDIR": str(temporary)}
    output = toy.path / "told"
    settings["QOLA_COMPILER"] = toy.compiler(f"echo $TMPDIR > {output}")
    answer = toy.check_available(SCALE, **settings)
    assert f"{temporary} is writable by everybody (mode 0777" in answer.errors
    assert "(TMPDIR); /tmp is used\n" in answer.errors
    assert output.read_text().startswith("/tmp/qola-lazy-")
    temporary.chmod(0o1777)
    toy.check_available(SCALE, **settings)
    assert output.read_text().startswith(f"{temporary}/qola-lazy-")


def test_cache_that_cannot_be_created(toy: Toy) -> None:
    """Prevents: a process without a writable cache gets no kernel."""
    (toy.path / "file").write_text("")
    for cache in (f"{toy.path}/file/cache", "/proc/qola"):
        answer = toy.check_available(SCALE, FILL, QOLA_CACHE=cache)
        assert answer.errors.count("kernels compiled now are not kept") == 1
    assert toy.leftovers() == []


def test_no_writable_directory(toy: Toy) -> None:
    """Prevents: a crash if no directory is writable."""
    shim = "#include <errno.h>\nchar* mkdtemp(char* path) { errno = ENOSPC; return 0; }\n"
    answer = toy.check_unavailable(SCALE, QOLA_CACHE="/proc/qola", LD_PRELOAD=preloaded(toy, shim))
    assert "no place for temporary files (TMPDIR): mkdtemp" in answer.errors
    assert "; mkdtemp /tmp/qola-lazy-XXXXXX: No space left on device" in answer.errors


@pytest.mark.parametrize("directory", ["/proc/qola", "absent"])
def test_temporary_directory_that_does_not_exist(toy: Toy, directory: str) -> None:
    """Prevents: no kernel is available after a job scheduler deleted TMPDIR."""
    temporary = str(toy.path / directory)
    answer = toy.check_available(SCALE, QOLA_CACHE="/proc/qola", TMPDIR=temporary)
    assert f"{temporary}" in answer.errors
    assert "(TMPDIR); /tmp is used\n" in answer.errors


def test_leftovers_of_a_killed_process(toy: Toy) -> None:
    """Prevents: each process that is killed during a compile leaves a directory in TMPDIR."""
    unrelated = toy.path / "tmp/qola-lazy-file"
    slow = toy.compiler("sleep 1234.5 & wait")
    owners = [toy.start(SCALE, QOLA_CACHE="/proc/qola", QOLA_COMPILER=slow) for _ in range(2)]
    wait_for(lambda: toy.compiles() == 2)
    unrelated.write_text("")
    try:
        kill(owners[0])
        assert len(toy.leftovers()) == 3
        # The other process still uses its directory.
        toy.check_available(SCALE, QOLA_CACHE="/proc/qola", QOLA_COMPILER=toy.compiler())
        assert len(toy.leftovers()) == 2
    finally:
        kill(owners[1])
    toy.check_available(SCALE, QOLA_CACHE="/proc/qola", QOLA_COMPILER=toy.compiler())
    assert toy.leftovers() == [unrelated]


@pytest.mark.parametrize("header", ["", "// a line\n" * 1000])
def test_file_size_limit(toy: Toy, header: str) -> None:
    """Prevents: a compile or its sources exceed a file size limit, which ends the process."""
    toy.headers[SCALE] += header
    toy.write()
    limited = ["prlimit", "--fsize=8192", *toy.command(str(toy.row(SCALE)))]
    answer = finish(toy.launch(limited))
    assert answer.values == [UNAVAILABLE]
    assert toy.leftovers() == []


@pytest.mark.parametrize(
    "file",
    [
        f"src/toys/{SCALE}.cpp",
        f"include/{SCALE}/{SCALE}.h",
        *("entries/one.cpp", "include/qola/qola_kernel.h", "kernels.index"),
    ],
)
def test_tampered_source(toy: Toy, file: str) -> None:
    """Prevents: a kernel is compiled from other sources than those of its key."""
    with (toy.root / file).open("a") as stream:
        stream.write("// another line\n")
    answer = toy.check_unavailable(SCALE)
    assert re.search(
        rf"{file} (differs from|belongs to) .* digest is [0-9a-f]{{64}}, expected [0-9a-f]{{64}}",
        answer.errors,
    )
    assert toy.compiles() == 0


@pytest.mark.parametrize("cache", ["", "/proc/qola"])
def test_sources_replaced_during_the_compile(toy: Toy, cache: str) -> None:
    """Prevents: a kernel of a newer version's sources gets the key of the old sources."""
    changed = (toy.root / f"include/{SCALE}/{SCALE}.h", toy.root / f"src/toys/{SCALE}.h")
    commands = "; ".join(f"echo '#define VALUE 70' > {header}" for header in changed)
    settings = {"QOLA_COMPILER": toy.compiler(commands), "QOLA_CACHE": cache or str(toy.cache)}
    toy.check_available(SCALE, **settings)
    assert toy.compiles() == 1
    assert toy.leftovers() == []
    # The sources now belong to another version.
    toy.check_unavailable(FILL, **settings)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "file",
    [
        f"src/toys/{SCALE}.h",  # in the source's directory: #include "..." searches it first
        f"include/{SCALE}/hip/hip_runtime_api.h",  # before the compiler's directories
        f"include/{SCALE}/qola_kernel.h",  # before another directory of the index
        *(f"include/{SCALE}/new", "module.modulemap", "src/toys/x/y"),
    ],
)
def test_unlisted_file(toy: Toy, file: str) -> None:
    """Prevents: a kernel compiled with an added header gets the key of the original sources."""
    planted = toy.root / file
    reported = planted if planted.parent.is_dir() else planted.parent
    planted.parent.mkdir(exist_ok=True)
    planted.write_text("#undef VALUE\n#define VALUE 70\n")
    answer = toy.check_unavailable(SCALE)
    assert f"{reported} is not among the files of {toy.root}/kernels.index" in answer.errors
    assert toy.compiles() == 0
    verified = toy.check_tool(1, "verify")
    assert verified.stdout.startswith(f"{reported} is not among the files of ")
    assert len(verified.stdout.splitlines()) == 1


def test_sources_of_a_group(toy: Toy) -> None:
    """Prevents: the runtime rejects sources that pip installed under umask 2."""
    for path in (toy.root, *toy.root.rglob("*")):
        path.chmod(path.stat().st_mode | 0o020)
    toy.check_available(SCALE)
    toy.check_tool(0, "verify")


def test_index_that_was_edited(toy: Toy) -> None:
    """Prevents: qola-kernels stores a kernel with edited flags under the original key."""
    index = toy.root / "kernels.index"
    text = index.read_text()
    header = "#define VALUE 70\n"
    for old, new in (
        ("flag\t-std=c++20\n", "flag\t-std=c++20\nflag\t-DMORE\n"),
        ("link-flag\t-shared\n", "link-flag\t-shared\nlink-flag\t-s\n"),
        (f"dir\t{SCALE}\tinclude/qola\n", f"dir\t{SCALE}\tinclude/{FILL}\n"),
        (sha256_of_text(toy.headers[SCALE]), sha256_of_text(header)),
    ):
        assert old in text
        index.write_text(text.replace(old, new))
        if new == sha256_of_text(header):
            (toy.root / f"include/{SCALE}/{SCALE}.h").write_text(header)
        for command in (("build", SCALE), ("verify",)):
            result = toy.check_tool(1, *command)
            assert " has the digest " in result.stdout + result.stderr
            assert f"expected {toy.codes()[SCALE]}" in result.stdout + result.stderr
    assert toy.compiles() == 0


def test_index_with_paths_outside(toy: Toy) -> None:
    """Prevents: an index makes the runtime read or write files outside of its directory."""
    index = toy.index
    (toy.root.parent / "outside.h").write_text("1")
    for path in ("../outside.h", f"{toy.root.parent}/outside.h", "include/../../outside.h"):
        files = dict(index.headers[SCALE].files) | {path: sha256_of_text("1")}
        headers = Headers(index.headers[SCALE].dirs, files)
        other = replace(index, headers={**index.headers, SCALE: headers})
        (toy.root / "kernels.index").write_text(render_index(other))
        result = toy.check_tool(1, "build", SCALE)
        assert f"has the path {path}, which is not below its directory" in result.stderr
    assert toy.compiles() == 0


def test_missing_sources(toy: Toy) -> None:
    """Prevents: a library without sources does not report what is missing."""
    shutil.rmtree(toy.root)
    answer = toy.check_unavailable(SCALE)
    assert "its sources are not there to be compiled" in answer.errors
    assert "QOLA_ROOT" in answer.errors


@pytest.mark.thorough
def test_rows_of_several_archs(toy: Toy) -> None:
    """Prevents: a device launches a kernel of another arch."""
    toy.archs = ("gfx942", "gfx950")
    toy.write()
    command = toy.command(f"{toy.row(SCALE, 'gfx942')}+2", times="2")
    for arch in toy.archs:
        answer = finish(toy.launch(command, FAKE_HIP_ARCH=arch, QOLA_VERBOSE="1"))
        assert answer.values == [SCALED] * 2
        assert f"{SCALE} for {arch}: compiled" in answer.errors
    single = toy.command(f"{toy.row(SCALE, 'gfx950')}+0")
    assert finish(toy.launch(single)).values == ["status -2"]


def test_hip_fails(warm: Toy) -> None:
    """Prevents: a HIP failure is reported as a missing kernel."""
    command = warm.command(f"{warm.row(SCALE)}+2")
    answer = finish(warm.launch(command, FAKE_HIP_FAIL="hipGetDevice=100"))
    assert answer.values == ["status -3"]
    assert "qola: hipGetDevice: " in answer.errors
