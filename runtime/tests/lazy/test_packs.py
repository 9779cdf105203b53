"""Packs of both forms: found and loaded, or ignored if damaged."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.tests.lazy.lazy import (
    ARCH,
    BROKEN,
    FILL,
    FILLED,
    MODULE,
    SCALE,
    SCALED,
    UNAVAILABLE,
    Toy,
)


@pytest.fixture
def packed(warm: Toy) -> Toy:
    """A module without a cache, whose two kernels are in kernels.qpack and the directory pack."""
    for output in ("kernels.qpack", "pack"):
        warm.check_tool(0, "export", "--output", output)
    shutil.rmtree(warm.cache)
    return warm


@pytest.mark.parametrize("form", ["kernels.qpack", "pack"])
def test_kernels_of_a_pack(packed: Toy, form: str) -> None:
    """Prevents: a pack is not read, or reading it needs a compiler or a cache."""
    settings = {"QOLA_PACKS": str(packed.path / form), "QOLA_VERBOSE": "1", "QOLA_LAZY": "never"}
    answer = packed.ask(SCALE, FILL, BROKEN, threads="3", **settings)
    assert sorted(answer.values) == sorted([SCALED, FILLED, UNAVAILABLE] * 3)
    assert f"{SCALE} for {ARCH}: pack {packed.path / form}" in answer.errors
    assert packed.compiles() == 0
    assert not packed.cache.exists()


def test_packs_in_order(packed: Toy) -> None:
    """Prevents: a pack hides another pack, or a missing pack ends the search."""
    other = packed.path / "other"
    (other / FILL).mkdir(parents=True)
    shutil.move(packed.path / "pack" / FILL / packed.entry(FILL).name, other / FILL)
    packs = f"{packed.path}/nowhere.qpack:{packed.path}/pack:{other}"
    answer = packed.check_available(SCALE, FILL, QOLA_PACKS=packs, QOLA_LAZY="never")
    assert answer.errors == f"qola: QOLA_PACKS: no file {packed.path}/nowhere.qpack\n"


def test_same_bytes(packed: Toy) -> None:
    """Prevents: packs of the same kernels differ."""
    settings = {"QOLA_PACKS": str(packed.path / "pack")}
    for names, output in (((SCALE, FILL), "a.qpack"), ((FILL, SCALE), "b.qpack")):
        packed.check_tool(0, "export", *names, "--output", output, **settings)
    content = (packed.path / "kernels.qpack").read_bytes()
    assert (packed.path / "a.qpack").read_bytes() == content
    assert (packed.path / "b.qpack").read_bytes() == content


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut table": lambda content: content[:40],
    "cut entries": lambda content: content[:-20],
    "no pack": lambda content: b"PK" + content,
    "empty": lambda _: b"",
    "flipped table": lambda content: content[:20] + bytes([content[20] ^ 1]) + content[21:],
    "huge count": lambda content: content[:8] + b"\xff" * 8 + content[16:],
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_pack(packed: Toy, damage: str) -> None:
    """Prevents: a damaged pack crashes a process, or makes a kernel unavailable."""
    pack = packed.path / "kernels.qpack"
    pack.write_bytes(DAMAGES[damage](pack.read_bytes()))
    answer = packed.check_available(SCALE, FILL, QOLA_PACKS=str(pack))
    assert packed.compiles() == 2
    assert answer.errors.count(f"{pack} is not a whole pack: ") == 1
    verified = packed.check_tool(1, "verify", pack)
    assert f"{pack} is not a whole pack: " in verified.stdout


def test_tables_and_indexes_are_bounded(packed: Toy) -> None:
    """Prevents: all memory is used for a file that only claims its size."""
    pack, most = packed.path / "kernels.qpack", 16 << 20
    content = pack.read_bytes()
    pack.write_bytes(content[:8] + struct.pack("<II", 0, most))
    os.truncate(pack, 1 << 40)
    verified = packed.check_tool(1, "verify", pack)
    assert f"{pack} is not a whole pack: its table has {most + 16} bytes" in verified.stdout
    os.truncate(packed.root / "kernels.index", 1 << 40)
    listed = packed.tool("list")
    assert (listed.returncode, "File too large" in listed.stderr) == (1, True), listed


def test_damaged_entry_of_a_pack(packed: Toy) -> None:
    """Prevents: a damaged kernel of a pack is loaded."""
    pack = packed.path / "kernels.qpack"
    content = bytearray(pack.read_bytes())
    content[-2000] ^= 1
    pack.write_bytes(content)
    answer = packed.check_available(SCALE, FILL, QOLA_PACKS=str(pack))
    assert packed.compiles() == 1
    assert answer.errors.count(" is damaged: its bytes have the digest ") == 1


@pytest.mark.parametrize("form", ["kernels.qpack", "pack"])
def test_writable_pack(packed: Toy, form: str) -> None:
    """Prevents: kernels are loaded from a pack that others can write to."""
    path = packed.path / form
    path.chmod(0o777)
    settings = {"QOLA_PACKS": str(path)}
    never = packed.check_unavailable(SCALE, QOLA_LAZY="never", **settings)
    assert f"{path} is writable by others (mode 0777, owner " in never.errors
    packed.check_tool(1, "verify", path)


def test_pack_of_another_compiler(toy: Toy) -> None:
    """Prevents: a pack of another ROCm is ignored on a machine without compiler."""
    toy.identity = "some other compiler"
    toy.write()
    warning = "not of the libraries' compiler"
    for output in ("kernels.qpack", "pack"):
        result = toy.check_tool(0, "build", SCALE, "--output", output)
        assert (warning in result.stderr) == (output == "pack")
    shutil.rmtree(toy.cache)
    settings = {"QOLA_LAZY": "never", "QOLA_COMPILER": "/nowhere/clang++"}
    pack = str(toy.path / "kernels.qpack")
    answer = toy.ask(SCALE, FILL, QOLA_PACKS=pack, **settings)
    assert answer.values == [SCALED, UNAVAILABLE]
    toy.check_unavailable(SCALE, QOLA_PACKS=str(toy.path / "pack"), **settings)
    # An export of the pack names the same compiler.
    toy.check_tool(0, "export", SCALE, "--output", "x.qpack", QOLA_PACKS=pack, **settings)
    assert (toy.path / "x.qpack").read_bytes() == (toy.path / "kernels.qpack").read_bytes()
    # Changed sources make another kernel.
    toy.headers[SCALE] = "#define VALUE 70\n"
    toy.write()
    toy.check_unavailable(SCALE, QOLA_PACKS=pack, **settings)


@pytest.mark.parametrize("form", ["kernels.qpack", "pack"])
def test_installed_pack(packed: Toy, form: str) -> None:
    """Prevents: installed packs need a setting, or are ignored if another user installed them."""
    packs = packed.root.parent / "packs"
    if form == "pack":
        (packed.path / form).rename(packs)
    else:
        packs.mkdir()
        (packed.path / form).rename(packs / "any.qpack")
    installed = [packs, *packs.rglob("*")]
    settings = {"QOLA_LAZY": "never"}
    packed.check_available(SCALE, FILL, **settings)
    for path in installed:
        path.chmod(path.stat().st_mode | 0o020)
    packed.check_available(SCALE, FILL, **settings)
    try:
        for path in [*installed, packed.path / "lib/ask"]:
            os.chown(path, 4321, 4321)
    except OSError as error:
        pytest.skip(f"files cannot be given away here: {error}")
    packed.check_available(SCALE, FILL, **settings)
    # Only the owner of the library is trusted.
    os.chown(packed.path / "lib/ask", 4322, 4322)
    refused = packed.ask(SCALE, **settings)
    assert (refused.values, "is another user's" in refused.errors) == ([UNAVAILABLE], True)
    os.chown(packed.path / "lib/ask", 4321, 4321)
    for path in installed:
        path.chmod(path.stat().st_mode | 0o002)
    refused = packed.ask(SCALE, **settings)
    assert (refused.values, "is writable by" in refused.errors) == ([UNAVAILABLE], True)


def test_pack_of_a_build(packed: Toy, tmp_path: Path) -> None:
    """Prevents: the library does not find its kernels in a pack of a build system."""
    libraries: dict[str, Path] = {}
    for name in (SCALE, FILL):
        libraries[name] = tmp_path / f"{name}.so"
        (entry,) = (packed.path / "pack" / name).glob("*.so")
        libraries[name].write_bytes(entry.read_bytes()[:-80])
    index = str(packed.root / "kernels.index")
    operands = [index, *(f"{name}:{ARCH}={path}" for name, path in libraries.items())]
    (tmp_path / "named").write_text("".join(f"{operand}\n" for operand in operands))
    packed.check_tool(0, "pack", "--output", "x.qpack", *operands)
    packed.check_tool(0, "pack", "--output", "y", f"@{tmp_path}/named")
    expected = (packed.path / "kernels.qpack").read_bytes()
    assert (packed.path / "x.qpack").read_bytes() == expected
    files = {
        name: {path.relative_to(packed.path / name): path.read_bytes() for path in paths}
        for name in ("pack", "y")
        for paths in [list((packed.path / name).glob("*/*"))]
    }
    assert files["pack"] == files["y"]
    for wrong, message in (
        ([f"{SCALE}:gfx90a=x.so"], f"the index of {MODULE} has no {SCALE}:gfx90a"),
        ([operands[1], operands[1]], "is given twice"),
    ):
        result = packed.tool("pack", "--output", "z.qpack", index, *wrong)
        assert (result.returncode, message in result.stderr) == (2, True)
    missing = f"{SCALE}:{ARCH}=/nowhere.so"
    packed.check_tool(1, "pack", "--output", "z.qpack", index, missing)
    assert not (packed.path / "z.qpack").exists()
