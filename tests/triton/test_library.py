"""A qola_triton_library on a HIP runtime without a GPU: launches, and rejected calls."""

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

from gfxemu.hip import Hip
from gfxemu.launch import Options
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

#: Problems that the library serves: causal (bottom right), with and without varlen.
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
    """Return the device, and the library loaded on this device."""
    hip = Hip(RUNTIME, ARCH, Options(strict=True))
    return hip, Library(FILES[LIBRARY], NAMESPACE)


@cache
def built_kernels() -> dict[str, Built]:
    """Return the kernels of the library by name."""
    codes = [path for path in KERNELS if path.suffix == ".hsaco"]
    kernels = [read_built(path.name.partition("-")[0], path) for path in codes]
    return {kernel.metadata["name"]: kernel for kernel in kernels}


def place_in_memory(problem: TritonCase) -> tuple[Memory, dict[str, Any]]:
    """Return a problem's tensors in device memory, and all values with addresses."""
    hip, _ = device()
    memory = Memory(problem)
    addresses = {}
    for name, array in memory.arrays.items():
        allocation = hip.allocate(array)
        memory.arrays[name], addresses[name] = allocation.array, allocation.address
    return memory, memory.values() | addresses


def make_arguments(problem: TritonCase, values: dict[str, Any]) -> Attention:
    """Return the structure for a problem."""
    fields = {name: values[name] for name, _ in Attention._fields_ if name in values}
    fields |= {"dtype": 1, "hdim": problem.hdim, "causal": problem.causal, "d_o": values["do"]}
    fields |= {"batch": len(problem.lengths), "heads": problem.heads, "heads_k": problem.heads_k}
    fields |= {"dropout": problem.dropout, "size": ctypes.sizeof(Attention)}
    fields |= dict(zip(("rows", "columns"), np.max(problem.lengths, axis=0).tolist(), strict=True))
    if not problem.varlen:
        fields |= {"starts_q": None, "starts_k": None}
    return Attention(**fields | {"bias": None, "dbias": None})


@pytest.mark.parametrize("name", PROBLEMS)
def test_attention(name: str) -> None:
    """Prevents: a launch has a wrong kernel, grid, LDS size or argument, or wrong results."""
    problem = PROBLEMS[name]
    hip, library = device()
    memory, values = place_in_memory(problem)
    fields = make_arguments(problem, values)
    hip.launches.clear()
    assert library.attention("attention_forward", fields) == 0, library.error()
    hip.raise_error()
    check_forward(memory)
    assert library.attention("attention_backward", fields) == 0, library.error()
    hip.raise_error()
    check_backward(memory)
    # Omitted pointers are null.
    values |= {
        "bias": 0,
        "dbias": 0,
        "rows": fields.rows,
        "columns": fields.columns,
    }
    values |= {} if problem.varlen else {"starts_q": 0, "starts_k": 0}
    symbols = ["forward", "backward_delta", "backward_dkdv", "backward_dq"]
    assert [launch.kernel for launch in hip.launches] == [
        f"attention_{symbol}" for symbol in symbols
    ]
    by_code = {kernel.in_pack.key: kernel for kernel in built_kernels().values()}
    for launch in hip.launches:
        metadata = by_code[launch.code].metadata
        by_column = launch.kernel.endswith("dkdv")
        block = metadata["constants"]["BLOCK_N" if by_column else "BLOCK_M"]
        tiles = -(-(fields.columns if by_column else fields.rows) // block)
        heads = problem.heads_k if by_column else problem.heads
        assert launch.grid == (tiles, heads, len(problem.lengths))
        assert launch.block == (metadata["num_warps"] * metadata["warp_size"], 1, 1)
        assert launch.dynamic_lds == metadata["shared"]
        assert metadata["constants"]["VARLEN"] == problem.varlen
        arguments = [Argument(**argument) for argument in metadata["arguments"]]
        assert launch.arguments == pack_arguments(arguments, values)


def test_any_kernel_by_its_constexprs() -> None:
    """Prevents: users cannot launch a kernel of their library."""
    hip, library = device()
    problem = PROBLEMS["plain"]
    memory, values = place_in_memory(problem)
    values["starts_q"] = 0
    name, choices = "attention_backward_delta", {"dtype": "fp16", "HDIM": "32", "VARLEN": "0"}
    found = Found()
    assert library.find(name, choices, found) == 0
    assert built_kernels()[found.name.decode()].metadata["arch"] == found.arch.decode() == ARCH
    assert library.constant(found.name.decode(), "BLOCK_M") == 64
    scalars = {n: v for n, v in values.items() if isinstance(v, (int, float))}
    assert library.launch(name, choices, scalars, (2, problem.heads, 1)) == 0, library.error()
    hip.raise_error()
    memory.arrays["delta"][...] = 1
    hip.launches.clear()
    assert library.launch(name, choices, scalars, (0, 1, 1)) == 0
    assert hip.launches == []
    assert library.find(name, {"HDIM": "31"}, found) == -1
    assert library.error() == "tests_triton has no attention_backward_delta HDIM=31"
    del scalars["rows"]
    assert library.launch(name, choices, scalars, (1, 1, 1)) == -6
    assert library.error() == "attention_backward_delta: nothing for rows"


@pytest.mark.parametrize(
    ("changes", "status", "expected"),
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
        # A program compiled with an older header, whose structure ends before the backward fields.
        ({"size": Attention.d_o.offset}, 0, ""),
        ({"batch": 0}, 0, ""),
    ],
)
def test_invalid_calls(changes: dict[str, Any], status: int, expected: str) -> None:
    """Prevents: a launch with values that the kernel does not support, or a crash."""
    hip, library = device()
    _, values = place_in_memory(PROBLEMS["plain"])
    fields = make_arguments(PROBLEMS["plain"], values)
    for name, value in changes.items():
        setattr(fields, name, value)
    hip.launches.clear()
    assert library.attention("attention_forward", fields) == status
    assert expected in library.error()
    assert len(hip.launches) == (status == 0 and "batch" not in changes)


def test_backward_launches_all_or_nothing() -> None:
    """Prevents: a part of the backward runs although an argument of a later kernel is missing."""
    hip, library = device()
    _, values = place_in_memory(PROBLEMS["plain"])
    fields = make_arguments(PROBLEMS["plain"], values)
    fields.dv = None
    hip.launches.clear()
    assert library.attention("attention_backward", fields) == -6
    assert (library.error(), hip.launches) == ("attention_backward_dkdv: nothing for dv", [])


def test_find_attention() -> None:
    """Prevents: find reports a kernel that launch does not use, or requires tensors."""
    hip, library = device()
    _, values = place_in_memory(PROBLEMS["varlen"])
    fields = make_arguments(PROBLEMS["varlen"], values)
    for name in ("q", "k", "v", "o", "lse", "d_o", "delta", "dq", "dk", "dv"):
        setattr(fields, name, None)
    hip.launches.clear()
    found = Found(size=ctypes.sizeof(Found))
    for direction, kernel in (("forward", "forward"), ("backward", "backward_dkdv")):
        assert library.find_attention(direction, fields, found) == 0, library.error()
        choices = "CAUSAL_2-HDIM_32-VARLEN_1-dtype_fp16-gfx942"
        assert found.name.decode() == f"attention_{kernel}-{choices}"
    fields.dq_row = 12
    assert library.find_attention("forward", fields, found) == 0
    assert library.find_attention("backward", fields, found) == -1
    assert library.error() == "attention_backward_dq: dq_row is 12, no multiple of 8"
    fields.heads_k = 3
    assert library.find_attention("forward", fields, found) == -6
    fields.heads_k = 1
    fields.hdim = 48
    assert library.find_attention("forward", fields, found) == -1
    found.size = 4
    fields.hdim = HDIM
    assert library.find_attention("forward", fields, found) == -6
    assert hip.launches == []


def call_forward(files: Sequence[Path], arch: str = ARCH, packs: str = "") -> list[tuple[int, str]]:
    """Return status and error of each library's forward, called in a separate process."""
    environ = {"PYTHONPATH": os.pathsep.join(sys.path), "FAKE_HIP_ARCH": arch, "QOLA_PACKS": packs}
    program = [sys.executable, "-m", "tests.triton.c_library", str(RUNTIME), NAMESPACE, str(HDIM)]
    result = subprocess.run(
        [*program, *map(str, files)], env=environ, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    pairs = [line.partition(" ") for line in result.stdout.splitlines()]
    return [(int(status), error) for status, _, error in pairs]


def copy_with_pack(directory: Path, content: bytes | None) -> Path:
    """Return a copy of the library next to a pack with this content; None for no pack."""
    directory.mkdir()
    shutil.copy(FILES[LIBRARY], directory / LIBRARY)
    if content is not None:
        (directory / PACK).write_bytes(content)
    return directory / LIBRARY


def test_wrong_packs(tmp_path: Path) -> None:
    """Prevents: a library runs code of another arch or build, or ignores a missing pack."""
    kernels = list(built_kernels().values())
    other_build = [replace(kernel, code=kernel.code + b"\0" * 16) for kernel in kernels]
    contents: dict[str, tuple[bytes | None, str]] = {
        "none": (None, f"no pack of kernels for gfx942: {tmp_path / 'none' / PACK}"),
        "empty": (b"", "it does not begin with QOLAPCK1"),
        "another version": (
            FILES[PACK].read_bytes().replace(b"QOLAPCK1", b"QOLAPCK2"),
            "it does not begin with QOLAPCK1",
        ),
        "another build": (pack_built(other_build), "of this build of tests_triton"),
        "no kernel": (pack_built([]), "of this build of tests_triton"),
    }
    files = [copy_with_pack(tmp_path / name, content) for name, (content, _) in contents.items()]
    for (status, error), (name, (_, expected)) in zip(
        call_forward(files), contents.items(), strict=True
    ):
        assert status == -4, name
        assert expected in error
    (right_pack,) = call_forward([copy_with_pack(tmp_path / "right", FILES[PACK].read_bytes())])
    assert right_pack == (0, "")
    (other_arch,) = call_forward([FILES[LIBRARY]], "gfx950")
    assert other_arch[0] == -2
    assert other_arch[1].endswith("is not for gfx950")


def test_an_uncompressed_pack() -> None:
    """Prevents: a library does not load its packs, or compression has no effect."""
    assert FILES[PACK].stat().st_size < UNCOMPRESSED[PACK].stat().st_size / 2
    assert call_forward([UNCOMPRESSED[LIBRARY]]) == [(0, "")]
    assert call_forward([UNCOMPRESSED[LIBRARY]], packs=str(FILES[PACK].parent)) == [(0, "")]


def forge(data: bytes, change: Callable[[bytearray], None], *, update_digests: bool) -> bytes:
    """Change all code objects of a pack; update the digests or not."""
    result = bytearray(data)
    (count,) = struct.unpack_from("<I", data, 8)
    for row in range(count):
        start, size = struct.unpack_from("<QQ", data, 16 + 48 * row + 32)
        entry = result[start : start + size]
        change(entry)
        if update_digests:
            entry[-32:] = hashlib.sha256(entry[:-32]).digest()
        result[start : start + size] = entry
    return bytes(result)


def test_altered_packs(tmp_path: Path) -> None:
    """Prevents: a library runs modified code although digests in the pack match; a crash."""

    def flip(at: int) -> Callable[[bytearray], None]:
        def change(entry: bytearray) -> None:
            entry[at] ^= 1

        return change

    content = FILES[PACK].read_bytes()
    rng = random.Random(21)
    contents = {
        "digest": (
            forge(content, flip(-1), update_digests=False),
            "is damaged: its bytes have the digest",
        ),
        "key": (forge(content, flip(-40), update_digests=True), "has the key "),
        "ABI": (forge(content, flip(-72), update_digests=True), "has kernel ABI 0, expected 1"),
        "trailer": (forge(content, flip(-80), update_digests=True), "does not end with a trailer"),
    }
    for number in range(20):
        data = forge(content, flip(rng.randrange(64)), update_digests=True)
        contents[f"code {number}"] = data, "is other code than tests_triton was built with"
    files = [copy_with_pack(tmp_path / name, data) for name, (data, _) in contents.items()]
    for (status, error), (name, (_, expected)) in zip(
        call_forward(files), contents.items(), strict=True
    ):
        assert status == -4, name
        assert expected in error
        assert error.startswith(f"{tmp_path / name / PACK}: attention_forward-")


def test_packs_in_another_directory(tmp_path: Path) -> None:
    """Prevents: a library does not find packs in another directory, or ignores QOLA_PACKS."""
    content = FILES[PACK].read_bytes()
    for name in ("apart", "renamed"):
        (tmp_path / name).mkdir()
    (tmp_path / "apart" / PACK).write_bytes(content)
    (tmp_path / "renamed/other.qpack").write_bytes(content)
    library = copy_with_pack(tmp_path / "alone", None)
    for packs in (tmp_path / "apart", tmp_path / "apart" / PACK, f"/gone:{tmp_path / 'apart'}"):
        assert call_forward([library], packs=str(packs)) == [(0, "")]
    (found,) = call_forward([library], packs=str(tmp_path / "renamed/other.qpack"))
    assert found[0] == -4
    # A pack of another build does not hide the right pack; without the latter, it is reported.
    (tmp_path / "apart" / PACK).write_bytes(pack_built([]))
    assert call_forward([FILES[LIBRARY]], packs=str(tmp_path / "apart")) == [(0, "")]
    (found,) = call_forward([library], packs=str(tmp_path / "apart"))
    assert found[0] == -4
    assert found[1].startswith(f"{tmp_path / 'apart' / PACK} has no attention_forward")
    # A damaged pack in QOLA_PACKS is an error, even with a right pack next to the library.
    (tmp_path / "apart" / PACK).write_bytes(b"QOLAPCK1")
    (found,) = call_forward([FILES[LIBRARY]], packs=str(tmp_path / "apart"))
    assert found[0] == -4
    assert str(tmp_path / "apart" / PACK) in found[1]


def test_damaged_packs(tmp_path: Path) -> None:
    """Prevents: a damaged pack crashes a library, or runs modified code."""
    rng = random.Random(21)
    content = FILES[PACK].read_bytes()
    files = []
    for number in range(60):
        data = bytearray(content)
        if number % 3 == 0:
            del data[rng.randrange(len(data)) :]
        elif number % 3 == 1:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:
            # Change a number of the table at the beginning.
            at = rng.randrange(0, 400)
            data[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 2**31, 2**32 - 1)))
        files.append(copy_with_pack(tmp_path / str(number), bytes(data)))
    found = call_forward(files)
    assert {status for status, _ in found} <= {0, -4}
    # Status 0: the damage is in another kernel or between kernels.
    assert sum(status == -4 for status, _ in found) > 30


def test_pack_depends_only_on_the_kernels() -> None:
    """Prevents: the bytes of a pack depend on anything else than its kernels."""
    kernels = list(built_kernels().values())
    assert pack_built(kernels) == pack_built(kernels[::-1]) == UNCOMPRESSED[PACK].read_bytes()
    names = {json.loads(path.read_text())["name"] for path in KERNELS if path.suffix == ".json"}
    assert names == set(built_kernels())
    assert {hashlib.sha256(kernel.code).hexdigest() for kernel in kernels} == {
        kernel.in_pack.key for kernel in kernels
    }
