"""The C ABI: exported functions, a C99 program, and refused fields."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gfxemu.fake_hip import FakeHip, read_log
from gfxemu.tests.sdk import compiler_of
from qola_lab.tests.verify.run_consumer import BUNDLE, FAKE, PLAN
from qola_lab.tests.verify.table import GFX950, Device
from tests.library.header import functions
from tests.library.run_calls import HEADER, HERE, LAZY, NAMESPACE, python
from tests.support.running import output_of

SDK = Path(os.environ["QOLA_TEST_CLANG"]).absolute().parent.parent
EXAMPLE = HERE.parents[1] / "examples/c/attention.c"
OK, NO_ARCH, FAILED, UNSUPPORTED, INVALID = 0, -2, -3, -5, -6


def symbols(library: Path, which: str) -> list[str]:
    """Return the dynamic symbols of a library, without versions."""
    command = [str(SDK / "bin/llvm-nm"), "-D", which, "--just-symbol-name", str(library)]
    return [name.partition("@")[0] for name in output_of(command).split()]


def test_libraries_export_the_declared_functions() -> None:
    """Prevents: a declared C function is missing, or has another namespace."""
    for module in PLAN["modules"]:
        declared = {
            f"qola_{NAMESPACE}_{entry['name']}" + (f"_{function}" if function else "")
            for entry in module["entries"]
            for function in functions(HEADER)
        }
        for bundle in (BUNDLE, LAZY):
            names = symbols(bundle / "lib" / module["library"], "--defined-only")
            assert {name for name in names if not name.startswith("_Z")} == declared


def test_all_device_functions_are_wrapped() -> None:
    """Prevents: `_find` launches through a function that runtime/api/qola_launches.cpp omits."""
    wrapped = r"hip(LaunchKernel|ModuleLaunchKernel|MemcpyAsync|MemsetAsync|LaunchHostFunc)"
    queries = r"hip(Get|Peek)\w+|hipKernelNameRef\w*|hipDeviceGetAttribute"
    loads = r"__hip\w+|hipModule(LoadData|GetFunction|Unload)"
    # Functions for time measurements, which `_find` does not run.
    measures = r"hipEvent\w+|hipStreamSynchronize"
    for library in (*(BUNDLE / "lib").glob("*.so"), *(LAZY / "lib").glob("*.so")):
        undefined = symbols(library, "--undefined-only")
        hip_names = [name for name in undefined if name.startswith(("hip", "__hip"))]
        # A lazy library launches the functions that its kernel libraries registered.
        assert ("hipLaunchKernel" in hip_names) == (BUNDLE in library.parents)
        known = re.compile("|".join((wrapped, queries, loads, measures)))
        assert [name for name in hip_names if not known.fullmatch(name)] == []


def compile_c99(source: Path, output: Path, library: Path, include: Sequence[Path]) -> Path:
    """Compile a strict C99 program and link a library."""
    command = [
        *compiler_of(SDK),
        *("-xc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"),
        "-D__HIP_PLATFORM_AMD__=1",
        *("-isystem", f"{SDK}/rocm/include"),
        *(f"-I{directory}" for directory in include),
        str(source),
        *("-xnone", str(library)),
        # A static library needs the C++ runtime.
        *("-lstdc++", "-lm", "-fuse-ld=lld", "-lamdhip64", "-o", str(output)),
    ]
    output_of(command)
    return output


@pytest.mark.parametrize("library", ["*_libmha_fwd.so", "libqola_*.a"])
def test_a_c99_program_runs(library: str, tmp_path: Path) -> None:
    """Prevents: a C compiler rejects the header."""
    (linked,) = BUNDLE.glob(f"lib/{library}")
    program = tmp_path / "attention"
    compile_c99(EXAMPLE, program, linked, [BUNDLE / "include"])
    hip = FakeHip(FAKE, "gfx950", (BUNDLE / "lib",))
    result = hip.run([program], tmp_path / "log")
    assert result.returncode == 0, result.stdout + result.stderr
    (launch,) = read_log(tmp_path / "log")
    assert launch.kernel in result.stdout
    assert result.stdout.splitlines()[-1] == "success"


#: Calls `_find` by ctypes with the fake runtime; each case changes fields of a valid problem.
_PROGRAM = """
import ctypes, json, sys
from pathlib import Path
from tests.library.header import structures
library, prefix, header, cases = sys.argv[1:5]
library = ctypes.CDLL(library)
made = structures(Path(header))
args_of, found_of = made["qola_mha_args"], made["qola_found"]
find, launch, error = (getattr(library, prefix + name) for name in ("_find", "", "_last_error"))
error.restype = ctypes.c_char_p
find.argtypes = launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
for case in json.loads(cases):
    memory = ctypes.create_string_buffer(ctypes.sizeof(args_of) + 64)
    args = args_of.from_buffer(memory)
    args.struct_size = ctypes.sizeof(args_of)
    found = found_of(struct_size=case.get("found_size", ctypes.sizeof(found_of)))
    for name, value in case.get("bytes", {}).items():
        memory[int(name)] = value
    for name, value in {**json.loads(sys.argv[5]), **case.get("fields", {})}.items():
        of, _, part = name.rpartition(".")
        setattr(getattr(args, of) if of else args, part, value)
    if case.get("launch"):
        status = launch(ctypes.byref(args), None)
    else:
        null = case.get("null")
        pointers = {"args": ctypes.byref(args), "found": ctypes.byref(found)}
        status = find(*(None if name == null else pointers[name] for name in pointers))
    stage = found.stages[0]
    print("\\n" + json.dumps([status, error().decode(), found.stage_count, stage.assembly]))
"""
#: A problem that the library serves.
GOOD: dict[str, Any] = {
    **{"dtype": 2, "hdim_q": 128, "hdim_v": 128, "group": 1, "max_seqlen_q": 64},
    **{"batch": 2, "nhead_q": 4, "nhead_k": 2, "seqlen_q": 128, "seqlen_k": 128, "lse.data": 256},
}


def answers(
    cases: Sequence[dict[str, Any]],
    tmp_path: Path,
    device: Device = GFX950,
    entry: str = "mha_fwd",
    **env: str,
) -> list[list[Any]]:
    """Return status, error text, number of stages, and whether the first is assembly."""
    library = next(BUNDLE.glob(f"lib/*_lib{entry}.so"))
    target: list[str | Path] = [library, f"qola_{NAMESPACE}_{entry}", HEADER]
    arguments = [*target, json.dumps(cases), json.dumps(GOOD)]
    result = python(["-c", _PROGRAM, *arguments], device, tmp_path / "log", **env)
    assert result.returncode == 0, result.stderr
    assert read_log(tmp_path / "log") == []
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("[")]


SIZE = 968
WIDE = {"group": 0, "seqlen_q": 225304, "seqlen_k": 225304}
#: Fields to change in GOOD, and the text of the error.
INVALID_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"struct_size": 8}, "struct_size: 8"),
    # Uninitialized memory, not the size of a later header.
    ({"struct_size": 0xCDCDCDCD}, "struct_size: 3452816845"),
    ({"dtype": 0}, "dtype: 0"),
    ({"dtype": 99}, "dtype: 99"),
    ({"mask": 9}, "mask: 9"),
    ({"window_left": 5}, "window_left"),
    ({"batch": 0}, "batch: 0"),
    ({"nhead_k": 3}, "nhead_k: 3"),
    ({"group": 1, "max_seqlen_q": 0}, "max_seqlen_q"),
    ({"group": 2}, "group: 2"),
    ({"dropout": 1.0}, "dropout"),
    ({"drop_seed_ptr": 64}, "drop_seed_ptr"),
    ({"bias.data": 64}, "bias"),
    ({"bias_type": 5}, "bias_type: 5"),
    ({"bias_type": 2, "bias.stride_head": 2}, "bias.stride_head"),
    ({"kernels": 7}, "kernels: 7"),
    ({"rounding": 7}, "rounding: 7"),
    ({"q.stride_row": 1 << 40}, "q.stride_row: 1099511627776"),
    ({"lse.stride_row": 7}, "lse.stride_row: 7"),
    # Lengths that kernels in batch mode ignore, and two lengths of which kernels read only one.
    ({"group": 0, "seqstart_k": 64}, "seqstart_k: set, without group"),
    ({"group": 0, "seqlens_k": 64}, "seqlens_k: set, without group"),
    ({"seqlens_q": 64, "cu_seqlens_q": 64}, "cu_seqlens_q: set together"),
]
UNSUPPORTED_FIELDS: list[tuple[dict[str, Any], str]] = [
    # Of another entry point, and of later AITERs.
    ({"num_splits": 2}, "num_splits: set, and mha_fwd"),
    ({"dq.data": 64}, "dq: set"),
    ({"sink": 64}, "sink: set"),
    ({"q_descale.stride_head": 1}, "q_descale: set"),
    ({"quantization": 1}, "quantization: set"),
    # More than the 32 bits of a kernel's offsets.
    (WIDE | {"q.stride_row": 9728}, "q.stride_row: 9728, with 225304 rows"),
    (WIDE | {"k.stride_row": 9728}, "k.stride_row: 9728, with 225304 rows"),
    (WIDE | {"o.stride_row": 4864}, "o.stride_row: 4864"),
    (
        WIDE | {"bias_type": 1, "bias.data": 64, "bias.stride_row": 225304},
        "bias.stride_row: 225304",
    ),
    (
        WIDE | {"group": 1, "max_seqlen_q": 64, "v.stride_row": 9728},
        "v.stride_row: 9728, with 225304 rows",
    ),
]
REFUSED: list[tuple[dict[str, Any], int, str]] = [
    *(({"fields": fields}, INVALID, text) for fields, text in INVALID_FIELDS),
    *(({"fields": fields}, UNSUPPORTED, text) for fields, text in UNSUPPORTED_FIELDS),
    ({"null": "args"}, INVALID, "args: null"),
    ({"null": "found"}, INVALID, "found: null"),
    ({"found_size": 0xCDCDCDCD}, INVALID, "found: null, or struct_size"),
    ({"launch": True}, INVALID, "seqstart_q: null"),
    ({"launch": True, "fields": {"seqstart_q": 64}}, INVALID, "seqstart_k: null"),
    # A field of a later header.
    ({"fields": {"struct_size": SIZE + 16}, "bytes": {SIZE + 9: 1}}, UNSUPPORTED, "byte 977"),
]


def test_errors_name_the_wrong_field(tmp_path: Path) -> None:
    """Prevents: a field is silently ignored, or an error does not name the field."""
    for (case, status, text), answer in zip(
        REFUSED, answers([case for case, *_ in REFUSED], tmp_path), strict=True
    ):
        assert (answer[0], answer[2]) == (status, 0), (case, answer)
        assert text in answer[1], (case, answer)


#: A backward problem whose dQ has more elements than AITER's strides can address.
LARGE = {
    **{"dtype": 2, "hdim_q": 64, "hdim_v": 64, "group": 0, "max_seqlen_q": 0},
    **{"batch": 16, "nhead_q": 128, "nhead_k": 128, "seqlen_q": 16384, "seqlen_k": 16384},
}


def test_large_and_impossible_problems(tmp_path: Path) -> None:
    """Prevents: a problem with a single accumulator is refused, or a workspace is too small."""
    fields = [
        {},
        {"deterministic": 1},
        {"lse.stride_head": -16384},
        {"cu_seqlens_k": 64},
        {"batch": 1 << 30, "nhead_q": 1 << 30, "nhead_k": 1 << 30, "kernels": 1},
    ]
    cases = [{"fields": {**LARGE, **more}} for more in fields]
    single, deterministic, negative, lengths, overflow = answers(cases, tmp_path, entry="mha_bwd")
    assert (single[0], single[2] > 0) == (OK, True), single
    assert deterministic[0] == negative[0] == lengths[0] == overflow[0] == INVALID
    assert "seqlen_q: 2147483648 is out of AITER's range" in deterministic[1]
    assert "lse.stride_head" in negative[1]
    assert "cu_seqlens_k: set, without group" in lengths[1]
    assert "accumulators are beyond 64 bits" in overflow[1]


def test_members_of_later_trees(tmp_path: Path) -> None:
    """Prevents: lengths are ignored; freeing pinned memory deadlocks a stream with HIP."""
    program = tmp_path / "later_tree"
    command = [
        *compiler_of(SDK),
        *("-xc++", "-std=c++20", "-Wall", "-Wextra", "-Werror"),
        *("-D__HIP_PLATFORM_AMD__=1", "-DQOLA_ARCHS=gfx950", "-isystem", f"{SDK}/rocm/include"),
        *(f"-I{HERE.parents[1]}/runtime/api", f"-I{BUNDLE}/include", str(HERE / "later_tree.cpp")),
        *("-lstdc++", "-lm", "-fuse-ld=lld", "-lamdhip64", "-o", str(program)),
    ]
    output_of(command)
    result = FakeHip(FAKE, "gfx950").run([program], tmp_path / "log")
    assert result.returncode == 0, result.stdout + result.stderr
    # AITER frees pinned memory where HIP functions must not be called.
    assert "hipHostFree" not in symbols(program, "--undefined-only")


def test_a_newer_program_without_new_fields(tmp_path: Path) -> None:
    """Prevents: a newer program is refused although it uses no new field."""
    cases = [{}, {"fields": {"struct_size": SIZE + 16}}, {"fields": {"window_left": -1}}]
    for status, error, stages, _ in answers(cases, tmp_path):
        assert (status, error, stages) == (OK, "", 1)


def test_large_problems_within_the_offsets(tmp_path: Path) -> None:
    """Prevents: a problem is refused although each sequence is within the offsets of kernels."""
    strides = {f"{name}.stride_row": 9728 for name in "qkv"}
    group = WIDE | {"group": 1, "max_seqlen_q": 4096, "max_seqlen_k": 4096} | strides
    ((status, error, stages, _),) = answers([{"fields": group}], tmp_path)
    assert (status, error, stages) == (OK, "", 1)


def test_assembly_kernels_do_not_exceed_their_addresses(tmp_path: Path) -> None:
    """Prevents: assembly kernels, whose addresses of sequences have 32 bits, read elsewhere."""
    cases = [{"fields": {"q.stride_head": 1 << size}} for size in (20, 30)]
    assert answers(cases, tmp_path) == [[OK, "", 1, 1], [OK, "", 1, 0]]


def test_an_unsupported_device_and_a_hip_failure(tmp_path: Path) -> None:
    """Prevents: an unsupported device and a HIP failure return one status."""
    ((status, *_),) = answers([{}], tmp_path, Device("gfx1250", 64))
    assert status == NO_ARCH
    ((status, error, *_),) = answers([{}], tmp_path, FAKE_HIP_FAIL="hipGetDevice=101")
    assert status == FAILED
    assert error == "hipGetDevice: hipErrorInvalidDevice"
