"""A qola_triton_library on a HIP runtime without a GPU: what it launches, and what it refuses."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qola.emulate.hip import Hip
from qola.emulate.launch import Options
from qola.triton.kernel import Argument
from qola.triton.library import Built, pack_built, read_built
from tests.triton.c_library import Attention, Found, Library
from tests.triton.problem import Memory, TritonCase, check_backward, check_forward, pack_arguments

RUNTIME = Path(os.environ["QOLA_TEST_FAKE_HIP"]).absolute()
FILES = {Path(path).name: Path(path).absolute() for path in os.environ["QOLA_TEST_LIBRARY"].split()}
UNCOMPRESSED = {
    Path(path).name: Path(path).absolute() for path in os.environ["QOLA_TEST_UNCOMPRESSED"].split()
}
KERNELS = [Path(path).absolute() for path in os.environ["QOLA_TEST_KERNELS"].split()]
ARCH, NAMESPACE = "gfx942", "tests"
LIBRARY, PACK = "tests_triton.so", f"tests_triton-{ARCH}.qpack"
HDIM = 32

#: Served by the library: causal to the bottom right, varlen and not.
PROBLEMS = {
    "plain": TritonCase(((70, 50),), hdim=HDIM, causal=2),
    "one_row": TritonCase(((1, 65),), hdim=HDIM, causal=2),
    "batch": TritonCase(((33, 64),) * 2, heads=4, heads_k=2, hdim=HDIM, causal=2),
    "varlen": TritonCase(
        ((40, 20), (0, 7), (65, 90)), varlen=True, heads=2, heads_k=1, hdim=HDIM, causal=2
    ),
}


@cache
def device() -> tuple[Hip, Library]:
    """Return the device, and the library loaded on it."""
    hip = Hip(RUNTIME, ARCH, Options(strict=True))
    return hip, Library(FILES[LIBRARY], NAMESPACE)


@cache
def built() -> dict[str, Built]:
    """Return the kernels that the library is made of, by name."""
    codes = [path for path in KERNELS if path.suffix == ".hsaco"]
    found = [read_built(path.name.partition("-")[0], path) for path in codes]
    return {one.metadata["name"]: one for one in found}


def placed(problem: TritonCase) -> tuple[Memory, dict[str, Any]]:
    """Return a problem's tensors in memory of the device, and all values with addresses."""
    hip, _ = device()
    memory = Memory(problem)
    addresses = {}
    for name, array in memory.arrays.items():
        allocation = hip.allocate(array)
        memory.arrays[name], addresses[name] = allocation.array, allocation.address
    return memory, memory.values() | addresses


def attention(problem: TritonCase, values: dict[str, Any]) -> Attention:
    """Return the structure for a problem."""
    given = {name: values[name] for name, _ in Attention._fields_ if name in values}
    given |= {"dtype": 1, "hdim": problem.hdim, "causal": problem.causal, "d_o": values["do"]}
    given |= {"batch": len(problem.lengths), "heads": problem.heads, "heads_k": problem.heads_k}
    given |= {"dropout": problem.dropout, "size": ctypes.sizeof(Attention)}
    given |= dict(zip(("rows", "columns"), np.max(problem.lengths, axis=0).tolist(), strict=True))
    if not problem.varlen:
        given |= {"starts_q": None, "starts_k": None}
    return Attention(**given | {"bias": None, "dbias": None})


@pytest.mark.parametrize("name", PROBLEMS)
def test_attention(name: str) -> None:
    """Prevents: another kernel, grid, LDS or argument than the problem's; wrong results."""
    problem = PROBLEMS[name]
    hip, library = device()
    memory, values = placed(problem)
    given = attention(problem, values)
    hip.launches.clear()
    assert library.attention("attention_forward", given) == 0, library.error()
    hip.raise_error()
    check_forward(memory)
    assert library.attention("attention_backward", given) == 0, library.error()
    hip.raise_error()
    check_backward(memory)
    # What a caller leaves out is null.
    values |= {"bias": 0, "dbias": 0, "rows": given.rows, "columns": given.columns}
    values |= {} if problem.varlen else {"starts_q": 0, "starts_k": 0}
    symbols = ["forward", "backward_delta", "backward_dkdv", "backward_dq"]
    assert [one.kernel for one in hip.launches] == [f"attention_{symbol}" for symbol in symbols]
    by_code = {one.in_pack.key: one for one in built().values()}
    for asked in hip.launches:
        told = by_code[asked.code].metadata
        dq = asked.kernel.endswith("dkdv")
        block = told["constants"]["BLOCK_N" if dq else "BLOCK_M"]
        tiles = -(-(given.columns if dq else given.rows) // block)
        heads = problem.heads_k if dq else problem.heads
        assert asked.grid == (tiles, heads, len(problem.lengths))
        assert asked.block == (told["num_warps"] * told["warp_size"], 1, 1)
        assert asked.dynamic_lds == told["shared"]
        assert told["constants"]["VARLEN"] == problem.varlen
        arguments = [Argument(**one) for one in told["arguments"]]
        assert asked.arguments == pack_arguments(arguments, values)


def test_any_kernel_by_its_choices() -> None:
    """Prevents: kernels of users that are in the table and that nobody can launch."""
    hip, library = device()
    problem = PROBLEMS["plain"]
    memory, values = placed(problem)
    values["starts_q"] = 0
    name, choices = "attention_backward_delta", {"dtype": "fp16", "HDIM": "32", "VARLEN": "0"}
    found = Found()
    assert library.find(name, choices, found) == 0
    assert built()[found.name.decode()].metadata["arch"] == found.arch.decode() == ARCH
    assert library.constant(found.name.decode(), "BLOCK_M") == 64
    plain = {n: v for n, v in values.items() if isinstance(v, (int, float))}
    assert library.launch(name, choices, plain, (2, problem.heads, 1)) == 0, library.error()
    hip.raise_error()
    memory.arrays["delta"][...] = 1
    hip.launches.clear()
    assert library.launch(name, choices, plain, (0, 1, 1)) == 0
    assert hip.launches == []
    assert library.find(name, {"HDIM": "31"}, found) == -1
    assert library.error() == "tests_triton has no attention_backward_delta HDIM=31"
    del plain["rows"]
    assert library.launch(name, choices, plain, (1, 1, 1)) == -6
    assert library.error() == "attention_backward_delta: nothing for rows"


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"hdim": 48}, -1, "no attention_forward BIAS=0 CAUSAL=2 DROPOUT=0 HDIM=48"),
        ({"causal": 1}, -1, "CAUSAL=1"),
        ({"dropout": 0.5}, -1, "DROPOUT=1"),
        ({"dtype": 3}, -6, "dtype 3"),
        ({"q": None}, -6, "nothing for q"),
        ({"q_row": 12}, -6, "q_row is 12, no multiple of 8"),
        ({"k_row": 2**31}, -6, "k_row is 2147483648, which 32 bits do not hold"),
        ({"heads": 3, "heads_k": 2}, -6, "contradict each other"),
        ({"starts_q": 16}, -6, "contradict each other"),
        ({"size": 10**6}, -6, "a structure of 1000000 bytes"),
        ({"size": 4}, -6, "a structure of 4 bytes"),
        # A program that was compiled when the structure ended before what backward needs.
        ({"size": Attention.d_o.offset}, 0, ""),
        ({"batch": 0}, 0, ""),
    ],
)
def test_what_is_refused(changes: dict[str, Any], status: int, words: str) -> None:
    """Prevents: a launch with values that the kernel cannot take, or a crash for them."""
    hip, library = device()
    _, values = placed(PROBLEMS["plain"])
    given = attention(PROBLEMS["plain"], values)
    for name, value in changes.items():
        setattr(given, name, value)
    hip.launches.clear()
    assert library.attention("attention_forward", given) == status
    assert words in library.error()
    assert len(hip.launches) == (status == 0 and "batch" not in changes)


def test_backward_launches_all_or_nothing() -> None:
    """Prevents: half a backward, because a later kernel's argument is missing."""
    hip, library = device()
    _, values = placed(PROBLEMS["plain"])
    given = attention(PROBLEMS["plain"], values)
    given.dv = None
    hip.launches.clear()
    assert library.attention("attention_backward", given) == -6
    assert (library.error(), hip.launches) == ("attention_backward_dkdv: nothing for dv", [])


def test_what_attention_would_launch() -> None:
    """Prevents: a kernel that is told of and not launched; a problem refused without tensors."""
    hip, library = device()
    _, values = placed(PROBLEMS["varlen"])
    given = attention(PROBLEMS["varlen"], values)
    for name in ("q", "k", "v", "o", "lse", "d_o", "delta", "dq", "dk", "dv"):
        setattr(given, name, None)
    hip.launches.clear()
    found = Found(size=ctypes.sizeof(Found))
    for direction, kernel in (("forward", "forward"), ("backward", "backward_dkdv")):
        assert library.find_attention(direction, given, found) == 0, library.error()
        choices = "CAUSAL_2-HDIM_32-VARLEN_1-dtype_fp16-gfx942"
        assert found.name.decode() == f"attention_{kernel}-{choices}"
    given.dq_row = 12
    assert library.find_attention("forward", given, found) == 0
    assert library.find_attention("backward", given, found) == -1
    assert library.error() == "attention_backward_dq: dq_row is 12, no multiple of 8"
    given.heads_k = 3
    assert library.find_attention("forward", given, found) == -6
    given.heads_k = 1
    given.hdim = 48
    assert library.find_attention("forward", given, found) == -1
    found.size = 4
    given.hdim = HDIM
    assert library.find_attention("forward", given, found) == -6
    assert hip.launches == []


def ask(files: Sequence[Path], arch: str = ARCH, packs: str = "") -> list[tuple[int, str]]:
    """Return status and error of libraries' forward, in a process of their own."""
    environ = {"PYTHONPATH": os.pathsep.join(sys.path), "FAKE_HIP_ARCH": arch, "QOLA_PACKS": packs}
    program = [sys.executable, "-m", "tests.triton.c_library", str(RUNTIME), NAMESPACE, str(HDIM)]
    said = subprocess.run(
        [*program, *map(str, files)], env=environ, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    pairs = [line.partition(" ") for line in said.stdout.splitlines()]
    return [(int(status), error) for status, _, error in pairs]


def library_with(directory: Path, content: bytes | None) -> Path:
    """Return a copy of the library beside which a pack has this content, None for no pack."""
    directory.mkdir()
    shutil.copy(FILES[LIBRARY], directory / LIBRARY)
    if content is not None:
        (directory / PACK).write_bytes(content)
    return directory / LIBRARY


def test_packs_of_others(tmp_path: Path) -> None:
    """Prevents: code of another arch or build that is launched; a pack missing without a word."""
    every = list(built().values())
    other = [replace(one, code=one.code + b"\0" * 16) for one in every]
    contents: dict[str, tuple[bytes | None, str]] = {
        "none": (None, f"no pack of kernels for gfx942: {tmp_path / 'none' / PACK}"),
        "empty": (b"", "it does not begin with QOLAPCK1"),
        "another version": (
            FILES[PACK].read_bytes().replace(b"QOLAPCK1", b"QOLAPCK2"),
            "it does not begin with QOLAPCK1",
        ),
        "another build": (pack_built(other), "of this build of tests_triton"),
        "no kernel": (pack_built([]), "of this build of tests_triton"),
    }
    files = [library_with(tmp_path / name, content) for name, (content, _) in contents.items()]
    for (status, error), (name, (_, words)) in zip(ask(files), contents.items(), strict=True):
        assert status == -4, name
        assert words in error
    (there,) = ask([library_with(tmp_path / "right", FILES[PACK].read_bytes())])
    assert there == (0, "")
    (elsewhere,) = ask([FILES[LIBRARY]], "gfx950")
    assert elsewhere[0] == -2
    assert elsewhere[1].endswith("is not for gfx950")


def test_an_uncompressed_pack() -> None:
    """Prevents: a library that does not load its own packs; compression without effect."""
    assert FILES[PACK].stat().st_size < UNCOMPRESSED[PACK].stat().st_size / 2
    assert ask([UNCOMPRESSED[LIBRARY]]) == [(0, "")]
    assert ask([UNCOMPRESSED[LIBRARY]], packs=str(FILES[PACK].parent)) == [(0, "")]


def forged(data: bytes, change: Callable[[bytearray], None], *, right: bool) -> bytes:
    """Return a pack with all code objects changed, their own digests right again or not."""
    made = bytearray(data)
    (count,) = struct.unpack_from("<I", data, 8)
    for row in range(count):
        start, size = struct.unpack_from("<QQ", data, 16 + 48 * row + 32)
        entry = made[start : start + size]
        change(entry)
        if right:
            entry[-32:] = hashlib.sha256(entry[:-32]).digest()
        made[start : start + size] = entry
    return bytes(made)


def test_altered_packs(tmp_path: Path) -> None:
    """Prevents: code that somebody put into a pack, whatever its own digests say; a crash."""

    def flip(at: int) -> Callable[[bytearray], None]:
        def change(entry: bytearray) -> None:
            entry[at] ^= 1

        return change

    whole = FILES[PACK].read_bytes()
    rng = random.Random(21)
    contents = {
        "digest": (forged(whole, flip(-1), right=False), "is damaged: its bytes have the digest"),
        "key": (forged(whole, flip(-40), right=True), "has the key "),
        "ABI": (forged(whole, flip(-72), right=True), "has kernel ABI 0, expected 1"),
        "trailer": (forged(whole, flip(-80), right=True), "does not end with a trailer"),
    }
    for number in range(20):
        data = forged(whole, flip(rng.randrange(64)), right=True)
        contents[f"code {number}"] = data, "is other code than tests_triton was built with"
    files = [library_with(tmp_path / name, data) for name, (data, _) in contents.items()]
    for (status, error), (name, (_, words)) in zip(ask(files), contents.items(), strict=True):
        assert status == -4, name
        assert words in error
        assert error.startswith(f"{tmp_path / name / PACK}: attention_forward-")


def test_packs_elsewhere(tmp_path: Path) -> None:
    """Prevents: packs installed apart that are not found; one that is named passed over."""
    right = FILES[PACK].read_bytes()
    for name in ("apart", "renamed"):
        (tmp_path / name).mkdir()
    (tmp_path / "apart" / PACK).write_bytes(right)
    (tmp_path / "renamed/other.qpack").write_bytes(right)
    library = library_with(tmp_path / "alone", None)
    for packs in (tmp_path / "apart", tmp_path / "apart" / PACK, f"/gone:{tmp_path / 'apart'}"):
        assert ask([library], packs=str(packs)) == [(0, "")]
    (found,) = ask([library], packs=str(tmp_path / "renamed/other.qpack"))
    assert found[0] == -4
    # One of another build does not hide the right one; where that is missing, it is named.
    (tmp_path / "apart" / PACK).write_bytes(pack_built([]))
    assert ask([FILES[LIBRARY]], packs=str(tmp_path / "apart")) == [(0, "")]
    (found,) = ask([library], packs=str(tmp_path / "apart"))
    assert found[0] == -4
    assert found[1].startswith(f"{tmp_path / 'apart' / PACK} has no attention_forward")
    # A damaged one goes before the one beside the library, and is not made up for by that.
    (tmp_path / "apart" / PACK).write_bytes(b"QOLAPCK1")
    (found,) = ask([FILES[LIBRARY]], packs=str(tmp_path / "apart"))
    assert found[0] == -4
    assert str(tmp_path / "apart" / PACK) in found[1]


def test_damaged_packs(tmp_path: Path) -> None:
    """Prevents: a crash, or code that is not what was built, from a pack that is damaged."""
    rng = random.Random(21)
    whole = FILES[PACK].read_bytes()
    files = []
    for number in range(60):
        data = bytearray(whole)
        if number % 3 == 0:
            del data[rng.randrange(len(data)) :]
        elif number % 3 == 1:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:
            # In the table, numbers most of all.
            at = rng.randrange(0, 400)
            data[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 2**31, 2**32 - 1)))
        files.append(library_with(tmp_path / str(number), bytes(data)))
    found = ask(files)
    assert {status for status, _ in found} <= {0, -4}
    # What is there is damaged elsewhere, in another kernel or between them.
    assert sum(status == -4 for status, _ in found) > 30


def test_packs_are_those_of_the_kernels() -> None:
    """Prevents: a pack whose bytes depend on anything but the kernels in it."""
    every = list(built().values())
    assert pack_built(every) == pack_built(every[::-1]) == UNCOMPRESSED[PACK].read_bytes()
    names = {json.loads(path.read_text())["name"] for path in KERNELS if path.suffix == ".json"}
    assert names == set(built())
    assert {hashlib.sha256(one.code).hexdigest() for one in every} == {
        one.in_pack.key for one in every
    }
