"""Code objects embedded by embedded_code_objects, read from the built library."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gfxemu.fake_hip import RUNTIME
from tests.library.offload import code_objects
from tests.support.running import output_of

LLVM = Path(os.environ["QOLA_TEST_LLVM"]).absolute().parent
FULL = Path(os.environ["QOLA_TEST_LIBRARY"]).resolve()
EMPTY = Path(os.environ["QOLA_TEST_LIBRARY_EMPTY"]).resolve()
FILES = {
    "hsa/" + path.partition("/hsa/")[2]: Path(path)
    for path in os.environ["QOLA_TEST_FILES"].split()
}
#: Arch and content by key.
CONTENT = {key: [(key.split("/")[1], path.read_bytes())] for key, path in FILES.items()}

# Programs run in separate processes, because the HIP runtime must be found when a process starts.
_START = """
import ctypes, json, os, sys
library, keys = ctypes.CDLL(sys.argv[1]), sys.argv[2:]
size, message = ctypes.c_size_t(), ctypes.create_string_buffer(400)
length = ctypes.c_size_t(len(message))

def find(function, key):
    function.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)]
    function.restype = ctypes.c_void_p
    data = function(key.encode(), ctypes.byref(size))
    return data and [data % 8, ctypes.string_at(data, size.value).hex()]

"""
_READ = """
library.probe_count.restype = ctypes.c_size_t
library.probe_key.argtypes = [ctypes.c_size_t]
library.probe_key.restype = ctypes.c_char_p

def call(function, *arguments):
    number = function(*arguments, message, length)
    return [number, message.value.decode()]

print(json.dumps({
    "keys": [library.probe_key(i).decode() for i in range(library.probe_count())],
    "found": {key: find(library.probe_find, key) for key in keys},
    "cu_count": call(library.probe_cu_count),
    "loaded": {key: call(library.probe_load, key.encode()) for key in keys},
    "hip_call": call(library.probe_hip_call),
    "serves": [
        bool(getattr(library, "probe_serves_" + direction)(dtype.encode(), q, v, flags))
        for direction, dtype, q, v, flags in json.loads(os.environ.get("PROBLEMS", "[]"))
    ],
}))
"""
_LATER = """
library.later_count.restype = ctypes.c_size_t
print(json.dumps({
    "count": library.later_count(),
    "found": {key: find(library.later_find, key) for key in keys},
    "variables": library.later_variables(),
    "ends": [library.later_end(way) for way in range(5)],
    "unload": library.later_unload(),
}))
"""


def read(library: Path, *keys: str, **variables: str) -> dict[str, Any]:
    """Return the table of a library, and its answers for some keys."""
    answer: dict[str, Any] = _answer(_READ, library, keys, variables)
    return answer


def unpacked(found: Mapping[str, Any]) -> dict[str, list[tuple[str, bytes]]]:
    """Return the code objects of each bundle, after a check of the alignment."""
    assert {offset for offset, _ in found.values()} == {0}
    return {key: list(code_objects(bytes.fromhex(data))) for key, (_, data) in found.items()}


def _answer(program: str, library: Path, keys: Sequence[str], variables: Mapping[str, str]) -> Any:
    command = [sys.executable, "-c", _START + program, str(library), *keys]
    return json.loads(output_of(command, env={**os.environ, **variables}))


@pytest.mark.parametrize("variables", [{}, {"AITER_ASM_DIR": "/nonsense/"}])
def test_every_key_returns_its_file(variables: dict[str, str]) -> None:
    """Prevents: a kernel is truncated, misaligned, another key's, or read from AITER_ASM_DIR."""
    assert len(FILES) == 5
    answer = read(FULL, *FILES, **variables)
    assert answer["keys"] == sorted(FILES)
    assert unpacked(answer["found"]) == CONTENT


def test_later_sources_see_the_same_table() -> None:
    """Prevents: later AITER sources find no kernel, another key's kernel, or a kernel on disk."""
    variables = {"AITER_ASM_DIR": "/nonsense/", "QOLA_TEST_OTHER": "1"}
    answer = _answer(_LATER, FULL, [*FILES, "hsa/none.co"], variables)
    assert answer["count"] == len(FILES)
    assert answer["found"].pop("hsa/none.co") is None
    assert unpacked(answer["found"]) == CONTENT
    assert answer["variables"] == 2  # all but AITER_ASM_DIR
    assert _answer(_LATER, EMPTY, [*FILES], {})["found"] == dict.fromkeys(FILES)


def test_later_sources_do_not_end_the_process() -> None:
    """Prevents: a failed HIP call ends a training run with exit code 0."""
    answer = _answer(_LATER, FULL, [], {})
    assert answer["ends"] == [1, 1, 1, 1, 1]
    assert answer["unload"] == 1


_FILES = """
def load(file):
    failed = library.asm_file_load(file.encode(), message, length)
    return message.value.decode() if failed else ""

library.asm_file_size.restype = ctypes.c_size_t
sizes = {file: library.asm_file_size(file.encode()) > 0 for file in keys}
print(json.dumps([{file: load(file) for file in keys}, sizes]))
"""


@pytest.mark.parametrize("directory", ["", "/no/such/hsa/gfx942/"])
def test_files_are_loaded_from_the_library(tmp_path: Path, directory: str) -> None:
    """Prevents: a module needs hsa/ on disk, or loads the code of another arch."""
    (tmp_path / RUNTIME).symlink_to(Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve())
    variables = {"LD_LIBRARY_PATH": str(tmp_path), "AITER_ASM_DIR": directory}
    present, absent = "fmha_v3_bwd/bwd_hd64_fp16_a16.co", "fmha_v3_bwd/bwd_hd128_dq_shuffle.co"
    files = [present, f"/{present}", absent]
    loaded, found = _answer(_FILES, FULL, files, {**variables, "FAKE_HIP_ARCH": "gfx942"})
    missing = f"hsa/gfx942/{absent}: no such code object in this library"
    assert loaded == {present: "", f"/{present}": "", absent: missing}
    assert found == {present: True, f"/{present}": True, absent: False}


_TABLES = """
value = library.asm_table_value(message, length)
print(json.dumps([value, message.value.decode()]))
"""


@pytest.mark.parametrize(
    ("arch", "answer"),
    [
        ("gfx942", [128, ""]),
        ("gfx950", [256, ""]),
        ("gfx1250", [0, "no assembly kernels of this kind for gfx1250"]),
    ],
)
def test_the_table_of_the_device(tmp_path: Path, arch: str, answer: list[object]) -> None:
    """Prevents: a module for several archs uses the kernel names of another arch."""
    (tmp_path / RUNTIME).symlink_to(Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve())
    variables = {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_HIP_ARCH": arch}
    assert _answer(_TABLES, FULL, [], variables) == answer


def test_an_unknown_key_returns_null() -> None:
    """Prevents: an unknown key returns the code of a similar key."""
    last = max(FILES)
    keys = ["", "hsa", last + "x", last[:-1], min(FILES)[:-1], "zzz"]
    assert read(FULL, *keys)["found"] == dict.fromkeys(keys)


def test_a_library_without_code_objects_links() -> None:
    """Prevents: a module without v3 kernels does not link, or returns random data."""
    answer = read(EMPTY, *FILES)
    assert answer["keys"] == []
    assert answer["found"] == dict.fromkeys(FILES)


def test_failures_are_exceptions() -> None:
    """Prevents: AITER's exit(0) ends the process after a failed HIP call."""
    key = min(FILES)
    answer = read(FULL, key, "hsa/none.co")
    kind, message = answer["hip_call"]
    assert kind == 2
    assert message.startswith("hipModuleUnload: ")
    kind, message = answer["loaded"]["hsa/none.co"]
    assert (kind, message) == (1, "hsa/none.co: no such code object in this library")
    if answer["cu_count"][0] > 0:
        return  # a machine with a GPU
    kind, message = answer["loaded"][key]
    assert kind == 2
    assert message.startswith(f"hipModuleLoadData of {key}: ")
    assert answer["cu_count"][1].startswith("hipGetDevice: ")


def test_the_table_is_not_exported() -> None:
    """Prevents: two libraries in a process search each other's table."""
    command = [f"{LLVM}/llvm-nm", "--dynamic", "--defined-only", "--demangle"]
    listing = output_of([*command, FULL])
    names = [line.split(maxsplit=2)[2] for line in listing.splitlines()]
    assert "probe_find" in names
    assert [name for name in names if "qola_asm" in name] == []


#: Bits of the flags of a problem.
GROUP, MASK, BIAS = 1, 2, 4
LSE, FWD_DROPOUT = 8, 16
DROPOUT, DBIAS, DETERMINISTIC = 8, 16, 32


PROBLEMS: list[tuple[str, str, tuple[int, int], int, bool]] = [
    # tests/golden/asm/domain_fwd.h: bf16 128, [192, 128], 64 with lse; or group and mask.
    ("fwd", "bf16", (128, 128), LSE, True),
    ("fwd", "bf16", (128, 128), LSE | MASK, True),
    ("fwd", "bf16", (192, 128), LSE | GROUP, True),
    ("fwd", "bf16", (128, 128), 0, False),
    ("fwd", "fp16", (128, 128), LSE, False),
    ("fwd", "bf16", (96, 96), LSE, False),
    ("fwd", "bf16", (128, 128), LSE | BIAS, False),
    ("fwd", "bf16", (128, 128), LSE | FWD_DROPOUT, False),
    ("fwd", "fp16", (32, 32), GROUP | MASK, True),
    ("fwd", "fp16", (32, 32), GROUP, False),
    # tests/golden/asm/domain_bwd.h: bf16 64, 96, [192, 128] in batch mode; 192 without mask.
    ("bwd", "bf16", (64, 64), MASK, True),
    ("bwd", "bf16", (56, 56), MASK, False),
    ("bwd", "bf16", (72, 72), MASK, True),
    ("bwd", "bf16", (96, 96), MASK, True),
    ("bwd", "bf16", (104, 104), MASK, False),
    ("bwd", "bf16", (96, 64), MASK, False),
    ("bwd", "bf16", (192, 128), MASK, True),
    ("bwd", "bf16", (64, 64), MASK | GROUP, False),
    ("bwd", "fp16", (64, 64), 0, False),
    ("bwd", "fp16", (32, 32), 0, False),
    ("bwd", "fp16", (136, 136), GROUP, True),
    ("bwd", "fp16", (136, 136), GROUP | MASK, False),
    ("bwd", "fp16", (128, 128), 0, False),
    ("bwd", "fp16", (192, 192), BIAS, False),
    ("bwd", "fp16", (192, 192), DROPOUT, False),
    ("bwd", "fp16", (192, 192), DBIAS, False),
    ("bwd", "fp16", (192, 192), DETERMINISTIC, False),
]


def test_problems_of_the_manifest() -> None:
    """Prevents: v3 accepts a problem whose code object is not embedded."""
    problems = json.dumps([[d, dtype, *hdim, flags] for d, dtype, hdim, flags, _ in PROBLEMS])
    answers = read(EMPTY, PROBLEMS=problems)["serves"]
    wrong = [row for row, answer in zip(PROBLEMS, answers, strict=True) if row[4] != answer]
    assert wrong == []
