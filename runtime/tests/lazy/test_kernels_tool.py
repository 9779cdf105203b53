"""qola-kernels: commands, their output, and exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runtime.tests.lazy.lazy import ARCH, BROKEN, FILL, SCALE, VALUES, Toy

COMMANDS = ("list", "build", "export", "verify", "clean", "cache", "pack")


@pytest.mark.parametrize("command", COMMANDS)
def test_help(toy: Toy, command: str) -> None:
    """Prevents: a command without --help, or missing in the help of the tool."""
    result = toy.check_tool(0, command, "--help")
    assert result.stdout.startswith(f"usage: qola-kernels {command} ")
    assert f"\n  {command} " in toy.tool("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no command"),
        (["frobnicate"], "unknown command frobnicate"),
        (["--frobnicate", "list"], "unknown option --frobnicate"),
        (["list", "--jobs", "2"], "list: unknown option --jobs"),
        (["list", "--format", "json"], "--format: expected human or list, found json"),
        (["list", "--format"], "--format needs a value"),
        (["list", "--all=1"], "--all has no value, found 1"),
        (["build"], "build: no kernel is selected"),
        (["build", "--jobs", "0", "--all"], "--jobs: expected a number from 1 to 4096, found 0"),
        (["export", SCALE], "export: --output is missing"),
        (["clean"], "clean: nothing is selected"),
        (["pack", "--output", "x.qpack", "a:b=c"], "pack: expected a kernels.index before a:b=c"),
        (["--root", "/nowhere", "list"], "no directory below /nowhere has a kernels.index"),
    ],
)
def test_usage(toy: Toy, arguments: list[str], message: str) -> None:
    """Prevents: a wrong command line has an effect."""
    result = toy.check_tool(2, *arguments)
    assert message in result.stderr
    assert not toy.cache.exists()


def test_list(warm: Toy) -> None:
    """Prevents: `list` shows a wrong state of a kernel, or hides an unknown kernel name."""
    result = warm.check_tool(0, "list")
    assert result.stdout.splitlines() == [
        f"{SCALE} {ARCH}  cache {warm.entry(SCALE)}",
        f"{FILL} {ARCH}  cache {warm.entry(FILL)}",
        f"{BROKEN} {ARCH}  not there yet",
    ]
    result = warm.check_tool(1, "list", "--format", "list", SCALE, "toy_nobody", f"src/{FILL}.cpp")
    assert result.stdout.splitlines() == [f"{SCALE} {ARCH}", f"{FILL} {ARCH}"]
    assert "no kernel toy_nobody below" in result.stderr
    assert warm.tool("list", "--arch", "gfx950").stdout == ""


def test_selection(toy: Toy) -> None:
    """Prevents: qola-kernels misreads a line of a user's list, or accepts a wrong line."""
    digits = "0123456789abcdef0123456789abcdef"
    lines = [
        "# a comment",
        "",
        f"{SCALE}  # the first",
        f"some/where/{SCALE}.cpp",
        f"{SCALE}.so.01234567",
        f"{SCALE}.so.x1Y2z3",
        f"{FILL}/{ARCH}-{digits}.so",
        f"{FILL}/{ARCH}-{digits}.so.tmp.12.0",
    ]
    result = toy.check_tool(0, "list", "--format", "list", "--list", "-", stdin="\n".join(lines))
    assert result.stdout.splitlines() == [f"{SCALE} {ARCH}", f"{FILL} {ARCH}"]
    assert "2 lines name temporary files" in result.stderr
    (toy.path / "record").write_text(f"{SCALE} {ARCH}\n{FILL} gfx000\n")
    result = toy.check_tool(1, "list", "--format=blob-list", "--record", "record")
    assert result.stdout.splitlines() == [f"{SCALE} {ARCH}"]
    assert f"no kernel {FILL} gfx000 below" in result.stderr
    result = toy.tool("list", "--format", "list", "--blob", SCALE, "--blob-list", "-", stdin=FILL)
    assert result.stdout.splitlines() == [f"{SCALE} {ARCH}", f"{FILL} {ARCH}"]
    result = toy.check_tool(1, "list", "--list", "-", stdin="one two three")
    assert "-:1: expected a kernel's name and optionally an arch" in result.stderr
    toy.check_tool(1, "list", "--list", "/nowhere")


def test_build(toy: Toy) -> None:
    """Prevents: `build` compiles cached kernels again, or hides failures."""
    result = toy.check_tool(0, "build", "--jobs", "2", SCALE, FILL)
    assert result.stdout.splitlines()[-1] == "2 compiled, 0 cached, 0 failed"
    assert toy.ask(SCALE, QOLA_LAZY="never").values == [str(VALUES[SCALE])]
    result = toy.tool("build", SCALE, FILL, QOLA_LAZY="never")
    assert result.stdout.splitlines() == ["0 compiled, 2 cached, 0 failed"]
    assert toy.compiles() == 2
    result = toy.check_tool(1, "build", "--all")
    assert result.stdout.splitlines()[-1] == "0 compiled, 2 cached, 1 failed"
    assert "this kernel is broken on purpose" in result.stderr
    result = toy.check_tool(1, "build", SCALE, "toy_nobody")
    assert result.stdout.splitlines()[-1] == "0 compiled, 1 cached, 0 failed, 1 unknown"
    compiles = toy.compiles()
    result = toy.tool("build", "--force", SCALE)
    assert result.stdout.splitlines()[-1] == "1 compiled, 0 cached, 0 failed"
    assert toy.compiles() == compiles + 1
    assert toy.leftovers() == []


@pytest.mark.parametrize("program", ["bin/hipcc", "llvm/bin/clang++", "bin/amdclang++"])
def test_hip_of_the_compiler(toy: Toy, program: str) -> None:
    """Prevents: the tool does not find the HIP runtime of its compiler."""
    rocm = toy.path / "rocm"
    (rocm / "lib/llvm/bin").mkdir(parents=True)
    (rocm / "bin").mkdir()
    # The layout of ROCm.
    (rocm / "llvm").symlink_to("lib/llvm")
    (rocm / "bin/amdclang++").symlink_to("../lib/llvm/bin/clang++")
    shutil.copy(toy.compiler(), rocm / "lib/llvm/bin/clang++")
    shutil.copy(toy.compiler(), rocm / "bin/hipcc")
    result = toy.check_tool(1, "build", BROKEN, QOLA_COMPILER=str(rocm / program))
    assert f" -L{rocm}/lib -lamdhip64 " in result.stderr
    result = toy.tool("build", BROKEN, QOLA_COMPILER=str(rocm / program), ROCM_PATH="/other")
    assert " -L/other/lib -lamdhip64 " in result.stderr


def test_build_into_a_pack(toy: Toy) -> None:
    """Prevents: `build --output` writes a pack without a requested kernel."""
    toy.check_tool(0, "build", SCALE, FILL, "--output", "x.qpack")
    toy.check_tool(1, "build", SCALE, BROKEN, "--output", "y.qpack")
    assert not (toy.path / "y.qpack").exists()
    settings = {"QOLA_PACKS": f"{toy.path}/x.qpack", "QOLA_CACHE": "/proc/qola"}
    assert toy.ask(SCALE, FILL, QOLA_LAZY="never", **settings).values == [
        str(VALUES[SCALE]),
        str(VALUES[FILL]),
    ]


def test_build_that_cannot_store(toy: Toy) -> None:
    """Prevents: `build` succeeds although it cannot store the kernel."""
    result = toy.check_tool(1, "--cache-dir", "/proc/qola", "build", SCALE)
    assert "was compiled, but could not be stored" in result.stderr


def test_export(warm: Toy) -> None:
    """Prevents: `export` writes a pack although a kernel is missing."""
    for arguments, code in (
        ([SCALE, BROKEN], 1),
        ([SCALE, "toy_nobody"], 1),
        (["--all"], 1),
        ([SCALE], 0),
        ([], 0),
    ):
        warm.check_tool(code, "export", "--output", "x.qpack", *arguments)
        assert (warm.path / "x.qpack").exists() == (code == 0)
        (warm.path / "x.qpack").unlink(missing_ok=True)
    assert warm.compiles() == 0
    warm.check_tool(1, "--cache-dir", "empty", "export", "--output", "x.qpack")
    assert list(warm.path.glob("x.qpack*")) == []


def test_verify(warm: Toy) -> None:
    """Prevents: a user notices a damaged cache only when a program requests a kernel."""
    clean = warm.tool("verify")
    assert (clean.returncode, clean.stdout) == (0, "")
    content = bytearray(warm.entry(SCALE).read_bytes())
    content[100] ^= 1
    warm.entry(SCALE).write_bytes(content)
    warm.entry(FILL).rename(warm.cache / FILL / f"{ARCH}-{'0' * 32}.so")
    (warm.cache / FILL / "notes.txt").write_text("")
    (warm.cache / FILL).chmod(0o775)
    result = warm.check_tool(1, "verify")
    assert len(result.stdout.splitlines()) == 4
    for finding in (
        f"{warm.entry(SCALE)} is damaged",
        f"{'0' * 32}.so has the key {warm.key(FILL)}, which differs from its name",
        "notes.txt is not a file of qola",
        f"{warm.cache / FILL} is writable by others (mode 0775",
    ):
        assert finding in result.stdout
    warm.check_tool(1, "verify", "/nowhere.qpack")


def test_clean(warm: Toy) -> None:
    """Prevents: the cache only grows, or `clean` deletes valid kernels by mistake."""
    result = warm.tool("clean", "--stalled")
    assert (result.returncode, result.stdout) == (0, "0 removed\n")
    leftover = Path(f"{warm.entry(SCALE)}.tmp.1.0")
    leftover.mkdir()
    unknown = warm.cache / "toy_gone" / f"{ARCH}-{'1' * 32}.so"
    unknown.parent.mkdir()
    unknown.write_bytes(warm.entry(FILL).read_bytes())
    Path(f"{unknown}.lock").write_text("")
    result = warm.tool("clean", "--stalled")
    assert result.stdout == "1 removed\n"
    assert warm.entry(SCALE).exists()
    assert not leftover.exists()
    assert not unknown.parent.exists()
    result = warm.tool("clean", SCALE)
    assert result.stdout == "1 removed\n"
    assert not warm.entry(SCALE).parent.exists()
    result = warm.tool("clean", "--all")
    assert result.stdout == "1 removed\n"
    assert list(warm.cache.iterdir()) == []


def test_clean_stale_kernels(warm: Toy) -> None:
    """Prevents: kernels of an older library stay in the cache forever."""
    stale = warm.entry(FILL)
    warm.headers[FILL] = "#define VALUE 90\n"
    warm.write()
    assert warm.tool("cache", "--current", "--format", "list").stdout == f"{SCALE} {ARCH}\n"
    assert warm.tool("clean", "--stalled").stdout == "1 removed\n"
    assert not stale.exists()
    assert warm.entry(SCALE).exists()


def test_kernels_of_the_installed_compiler_are_current(warm: Toy) -> None:
    """Prevents: `clean --stalled` deletes kernels that the installed compiler built."""
    identity = warm.identity
    warm.identity = "some other compiler"
    warm.write()
    assert warm.tool("clean", "--stalled").stdout == "0 removed\n"
    assert f"{SCALE} {ARCH}  cache {warm.entry(SCALE, identity)}" in warm.tool("list").stdout
    assert warm.tool("clean", "--stalled", QOLA_COMPILER="false").stdout == "2 removed\n"


def test_cache(warm: Toy) -> None:
    """Prevents: another machine cannot build from the list that `cache` writes."""
    result = warm.check_tool(0, "cache")
    size = sum(path.stat().st_size for path in warm.entries())
    assert result.stdout.splitlines()[-1] == f"2 kernels, {size} bytes"
    listed = warm.tool("cache", "--format", "list", "--write-list", "list.txt")
    assert listed.stdout.splitlines() == [f"{FILL} {ARCH}", f"{SCALE} {ARCH}"]
    assert (warm.path / "list.txt").read_text() == listed.stdout
    warm.check_tool(0, "cache", "--write-blob-list", "old.txt")
    assert (warm.path / "old.txt").read_text() == listed.stdout
    selected = warm.tool("cache", "--format", "list", "--arch", "gfx000")
    assert (selected.returncode, selected.stdout) == (0, "")
    assert warm.tool("cache", "--format", "list", "--arch", ARCH).stdout == listed.stdout
    assert warm.tool("cache", "--format", "list", "--all").stdout == listed.stdout
    built = warm.tool("build", "--list", "list.txt")
    assert built.stdout.splitlines() == ["0 compiled, 2 cached, 0 failed"]


def test_root(toy: Toy) -> None:
    """Prevents: the tool reads the sources of another bundle, or finds no sources."""
    other = toy.path / "share/qola/others"
    (other / "libother").mkdir(parents=True)
    index = (toy.root / "kernels.index").read_text()
    (other / "libother/kernels.index").write_text(index)
    toy.check_tool(2, "list")
    toy.check_tool(0, "list", QOLA_ROOT=str(other))
    toy.check_tool(0, "--root", str(other), "list")
    (other / "libother/kernels.index").write_text(
        index.replace("qola-kernels\t1", "qola-kernels\t2")
    )
    result = toy.check_tool(1, "--root", str(other), "list")
    assert f'{other}/libother/kernels.index:1: expected "qola-kernels\t1"' in result.stderr


def test_root_without_a_namespace(toy: Toy) -> None:
    """Prevents: the tool does not find the sources of a bundle without a namespace."""
    toy.root.rename(toy.root.parent.parent / toy.root.name)
    toy.root.parent.rmdir()
    result = toy.tool("list", "--format", "list", SCALE)
    assert (result.returncode, result.stdout) == (0, f"{SCALE} {ARCH}\n")


def test_identity(toy: Toy) -> None:
    """Prevents: build and runtime compute different compiler identities and share no kernels."""
    errors = toy.ask(BROKEN).errors
    assert "this kernel is broken on purpose" in errors, "not compiled"
    assert "is not the one the library was built with" not in errors
