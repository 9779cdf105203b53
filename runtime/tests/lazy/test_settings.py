"""User settings: modes, directories, compilers, records, and wrong or deprecated settings."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from runtime.tests.lazy.lazy import (
    ARCH,
    BROKEN,
    FILL,
    SCALE,
    SCALED,
    UNAVAILABLE,
    Toy,
    finish,
    preloaded,
)
from tests.setup.cache_rule import cache_rule


@pytest.mark.quick(5)
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
    """Prevents: a machine compiles although it must not, or does not compile although it may."""
    answer = toy.ask(SCALE, **settings)
    assert answer.values == [SCALED if compiles else UNAVAILABLE]
    assert toy.compiles() == int(compiles)
    if not compiles:
        assert f"{SCALE}/{toy.entry(SCALE).name}" in answer.errors
        assert f"qola-kernels build --arch {ARCH} {SCALE}" in answer.errors


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("QOLA_LAZY", "Never", "auto (missing kernels are compiled), background ("),
        ("QOLA_LAZY", "1", "return -4 until then) or never (a missing kernel is an error)"),
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
def test_wrong_settings(warm: Toy, name: str, value: str, expected: str) -> None:
    """Prevents: a misspelt setting is read as another setting."""
    answer = warm.check_unavailable(SCALE, FILL, **{name: value})
    assert answer.errors.count(f"{name}={value} is invalid: expected ") == 1
    assert expected in answer.errors
    tool = warm.check_tool(2, "list", **{name: value})
    assert expected in tool.stderr


def test_deprecated_names(warm: Toy) -> None:
    """Prevents: settings of ck-jit users silently have no effect."""
    answer = warm.check_available(
        SCALE,
        QOLA_CACHE="",
        CK_JIT_CACHE_DIR=str(warm.cache),
        CK_JIT_VERBOSE="2",
        NVTE_CK_JIT_DIR="/x",
    )
    for old, new in (
        ("CK_JIT_CACHE_DIR", "QOLA_CACHE"),
        ("CK_JIT_VERBOSE", "QOLA_VERBOSE"),
        ("NVTE_CK_JIT_DIR", "QOLA_ROOT"),
    ):
        assert answer.errors.count(f"qola: {old} is deprecated, use {new}\n") == 1
    assert f"{SCALE} for {ARCH}: cache {warm.entry(SCALE)}, " in answer.errors
    quiet = warm.check_available(SCALE, CK_JIT_CACHE_DIR="/x", QOLA_VERBOSE="0", CK_JIT_VERBOSE="1")
    assert quiet.errors == ""


def test_directories_of_sources(toy: Toy) -> None:
    """Prevents: a library that was moved away from its sources cannot be used."""
    moved = toy.path / "aside"
    toy.root.parent.rename(moved)
    manifest = moved / toy.root.name / "kernels.index"
    for settings, note in (
        ({"QOLA_ROOT": str(moved)}, ""),
        ({"CK_JIT_ROOT": str(moved), "NVTE_CK_JIT_DIR": "/x"}, "CK_JIT_ROOT is deprecated"),
        ({"NVTE_CK_JIT_DIR": str(moved)}, "NVTE_CK_JIT_DIR is deprecated, use QOLA_ROOT"),
        ({"CK_JIT_MANIFEST": str(manifest)}, "CK_JIT_MANIFEST is deprecated, use QOLA_ROOT"),
        (
            {"CK_JIT_MANIFEST": "/x/manifest.json", "QOLA_ROOT": ""},
            "CK_JIT_MANIFEST=/x/manifest.json is ignored: qola reads kernels.index",
        ),
    ):
        shutil.rmtree(toy.cache, ignore_errors=True)
        answer = toy.ask(SCALE, **settings)
        assert answer.values == [UNAVAILABLE if "ignored" in note else SCALED]
        assert answer.errors.startswith(f"qola: {note}" if note else "")


def test_library_behind_several_links(toy: Toy) -> None:
    """Prevents: the runtime does not find sources next to a link in a chain of links."""
    (toy.path / "stored").mkdir()
    (toy.path / "lib/ask").rename(toy.path / "stored/file")
    (toy.path / "lib/ask").symlink_to("../stored/file")
    solib = toy.path / "far/away/_solib"
    solib.mkdir(parents=True)
    (solib / "ask").symlink_to("../../../lib/ask")
    command: list[str | Path] = [solib / "ask", *toy.command(str(toy.row(SCALE)))[1:]]
    assert finish(toy.launch(command)).values == [SCALED]


def test_record(toy: Toy) -> None:
    """Prevents: a record omits kernels, or has a line for each call."""
    record = toy.path / "record"
    settings = {"QOLA_RECORD": str(record)}
    toy.ask(SCALE, BROKEN, threads="2", times="3", **settings)
    assert sorted(record.read_text().splitlines()) == [f"{BROKEN} {ARCH}", f"{SCALE} {ARCH}"]
    toy.ask(FILL, QOLA_LAZY="never", **settings)
    assert record.read_text().splitlines()[2:] == [f"{FILL} {ARCH}"]
    answer = toy.check_available(SCALE, QOLA_RECORD="/proc/qola/record")
    assert "QOLA_RECORD: open /proc/qola/record" in answer.errors


def test_caches_in_order(warm: Toy) -> None:
    """Prevents: a shared cache is not read, or is written to."""
    private = warm.path / "own"
    settings = {"QOLA_CACHE": f"{private}:{warm.cache}", "QOLA_COMPILER": warm.compiler()}
    warm.check_available(SCALE, **settings)
    assert (warm.compiles(), private.exists()) == (0, False)
    warm.entry(FILL).unlink()
    warm.check_available(FILL, **settings)
    assert not warm.entry(FILL).exists()
    (entry,) = private.glob("*/*.so")
    modes = [oct(path.stat().st_mode & 0o777) for path in (private, entry.parent, entry)]
    assert modes == ["0o700", "0o700", "0o600"]


def test_modes_of_a_shared_cache(toy: Toy) -> None:
    """Prevents: only one user can read entries of a shared cache."""
    toy.cache.mkdir(mode=0o755)
    previous = os.umask(0o077)
    try:
        toy.check_available(SCALE)
    finally:
        os.umask(previous)
    entry = toy.entry(SCALE)
    assert [oct(path.stat().st_mode & 0o777) for path in (entry.parent, entry)] == [
        "0o755",
        "0o644",
    ]


def test_default_cache(toy: Toy, filled: Path) -> None:
    """Prevents: the runtime uses another cache directory than bazelw, rules and Python."""
    passwd = toy.path / "passwd"
    shim = preloaded(
        toy,
        f"""\
#include <pwd.h>
#include <stddef.h>
int getpwuid_r(uid_t user, struct passwd* entry, char* text, size_t size, struct passwd** found)
{{
    (void)user;
    (void)text;
    (void)size;
    entry->pw_dir = "{passwd}";
    *found = entry;
    return 0;
}}
""",
    )
    for environ, expected in cache_rule(toy.path, passwd):
        kernels = expected / "kernels"
        kernels.parent.mkdir(parents=True)
        shutil.copytree(filled, kernels)
        settings = {"HOME": "", "QOLA_CACHE": "", "LD_PRELOAD": shim} | environ
        assert toy.ask(SCALE, QOLA_LAZY="never", **settings).values == [SCALED], environ
        shutil.rmtree(kernels.parent)
    # New kernels are written to this cache too.
    toy.check_available(SCALE, QOLA_CACHE="", HOME="", LD_PRELOAD=shim)
    assert len(list((passwd / ".cache/qola/kernels").glob("*/*.so"))) == 1


def test_other_compiler(toy: Toy) -> None:
    """Prevents: kernels of another compiler get the key of the library's compiler."""
    identity = toy.identity
    toy.identity = "some other compiler"
    toy.write()
    answer = toy.check_available(SCALE, FILL)
    assert (
        answer.errors.count("is not the one the library was built with (some other compiler)") == 1
    )
    assert toy.entries() == sorted(toy.entry(name, identity) for name in (SCALE, FILL))
    toy.check_available(SCALE, FILL)
    assert toy.compiles() == 2
    toy.check_unavailable(SCALE, QOLA_LAZY="never")


def test_arguments_of_the_compiler(toy: Toy) -> None:
    """Prevents: kernels with other flags get the key of the library's flags."""
    settings = {
        "QOLA_COMPILER": f"{toy.compiler()} -L/nowhere -B {toy.path} -no-canonical-prefixes"
    }
    toy.check_available(SCALE, **settings)
    assert toy.entries() == [toy.entry(SCALE)]
    settings["QOLA_COMPILER"] += " -ffast-math"
    toy.check_available(SCALE, FILL, **settings)
    assert toy.entry(FILL, f"{toy.identity} -ffast-math") in toy.entries()
    assert not toy.entry(FILL).exists()


def test_search_for_compilers(toy: Toy) -> None:
    """Prevents: an installed compiler is not found, or a wrong compiler is preferred."""
    compiler = Path(toy.compiler())

    def link(path: str) -> Path:
        target = toy.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(compiler)
        return target

    def used(**settings: str) -> str:
        shutil.rmtree(toy.cache, ignore_errors=True)
        # After a failure, the runtime prints the command on a separate line.
        errors = toy.ask(BROKEN, QOLA_COMPILER="", **settings).errors
        command = errors.partition("the command is, in ")[2].splitlines()[1]
        return command.split()[0].removeprefix(f"{toy.path}/")

    link("rocm/llvm/bin/clang++")
    link("hip/llvm/bin/clang++")
    link("rocm2/llvm/bin/clang++")
    (toy.path / "rocm2/hip").mkdir()
    link("a/hipcc")
    link("b/amdclang++")
    path = f"{toy.path}/a:{toy.path}/b"
    rocm, hip = f"{toy.path}/rocm", f"{toy.path}/hip"
    assert used(ROCM_PATH=rocm, HIP_PATH=hip, PATH=path) == "rocm/llvm/bin/clang++"
    assert used(HIP_PATH=hip, PATH=path) == "hip/llvm/bin/clang++"
    assert used(HIP_PATH=f"{toy.path}/rocm2/hip") == "rocm2/hip/../llvm/bin/clang++"
    if not Path("/opt/rocm/llvm/bin/clang++").exists():
        assert used(PATH=path) == "b/amdclang++"
        assert used(PATH=f"{toy.path}/a") == "a/hipcc"
        answer = toy.check_unavailable(SCALE, QOLA_COMPILER="", PATH="/nowhere")
        places = "/opt/rocm/llvm/bin/clang++, /nowhere/amdclang++, /nowhere/hipcc"
        assert f"here there is none of {places} (QOLA_COMPILER names another)" in answer.errors


def test_wrong_compiler(toy: Toy) -> None:
    """Prevents: a wrong QOLA_COMPILER is reported for each kernel, or not at all."""
    for compiler, message in (
        ("/nowhere/clang++ -O3", "QOLA_COMPILER: no program /nowhere/clang++"),
        ("false", "cannot preprocess HIP (exit code 1)"),
        ("true", "/identity.txt: No such file or directory"),
    ):
        answer = toy.check_unavailable(SCALE, FILL, QOLA_COMPILER=compiler)
        assert answer.errors.count(message) == 1
        assert answer.errors.count("neither a cache nor a pack has") == 2
