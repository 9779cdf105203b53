"""C operators and math builtins, compiled for each arch and emulated, compared with the host's."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gfxemu.arrays import Array
from gfxemu.faults import EmulationError
from gfxemu.launch import ARCHS, Device, Module, Options
from gfxemu.tests.sdk import compiler_of
from qola_base.code_object.reader import CodeObject

SDK = Path(os.environ["QOLA_TEST_CLANG"]).absolute().parent.parent
COUNT, BLOCK = 10_240, 256
#: NumPy's type by the name that the source has for it.
TYPES: dict[str, Any] = {
    **{"f16": np.float16, "f32": np.float32, "f64": np.float64},
    **{f"{sign}{bits}": f"{sign}{bits // 8}" for sign in "iu" for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class Function:
    """An expression in C of `a` and `b`, which becomes a kernel and a function of the host.

    Attributes:
        ulps: by how many of the result's last places the two may differ.
    """

    result: str
    a: str
    b: str
    body: str
    ulps: int = 0


#: Functions of floats; C's name of a builtin begins with "@".
_OF_FLOATS = {
    **{"div": "a / b", "rcp": "1 / a", "mul_add": "a * b + a", "less": "a < b ? a : b"},
    **{"fma": "@fma(a, b, -a)", "sqrt": "@sqrt(a)", "copysign": "@copysign(a, b)"},
    **{name: f"@{name}(a)" for name in ("floor", "ceil", "trunc", "rint", "round", "fabs")},
    **{name: f"@{name}(a, b)" for name in ("fmod", "fmin", "fmax")},
}


def _functions() -> dict[str, Function]:
    found = {}
    # The host has no library for f16: f32 has all exact results.
    suffixes = {"f16": "f", "f32": "f", "f64": ""}
    for kind, suffix in suffixes.items():
        for name, body in _OF_FLOATS.items():
            if kind == "f16" and name in ("fma", "fmod", "sqrt"):
                continue
            called = re.sub(r"@(\w+)", rf"__builtin_\1{suffix}", body)
            found[f"{name}_{kind}"] = Function(kind, kind, kind, called)
        found[f"class_{kind}"] = Function(
            *("i32", kind, kind),
            "__builtin_isnan(a) + 2 * __builtin_isinf(b) + 4 * __builtin_isnormal(a)"
            " + 8 * __builtin_signbit(a)",
        )
        for whole in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"):
            found[f"{whole}_to_{kind}"] = Function(kind, whole, whole, f"({kind})a")
            bits = int(whole[1:])
            low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if whole[0] == "i" else (-1, 2**bits)
            inside = f"a > {float(low)} && (double)a < {float(high)}"
            found[f"{kind}_to_{whole}"] = Function(whole, kind, kind, f"{inside} ? ({whole})a : 0")
        for other in suffixes:
            found[f"{kind}_to_{other}"] = Function(other, kind, kind, f"({other})a")
    for kind, suffix in (("f32", "f"), ("f64", "")):
        ldexp = f"__builtin_ldexp{suffix}(a, b % 1200)"
        found[f"ldexp_{kind}"] = Function(kind, kind, "i32", ldexp)
        found[f"frexp_{kind}"] = Function(
            *(kind, kind, kind),
            f"({{ int e; {kind} m = __builtin_frexp{suffix}(a, &e);"
            " __builtin_isfinite(a) ? m * 8 + e : m; })",
        )
    for name in ("exp", "exp2", "log", "log2", "log10"):
        # The device's limit is that of OpenCL's full profile.
        found[f"{name}_f32"] = Function("f32", "f32", "f32", f"__builtin_{name}f(a)", 4)
    for bits in (8, 16, 32, 64):
        signed, unsigned = f"i{bits}", f"u{bits}"
        unsafe = f"b == 0 || (b == -1 && a == ({signed})(1ull << {bits - 1}))"
        place = f"(b & {bits - 1})"
        both = {
            **{"shr": f"a >> {place}", "max": "a > b ? a : b"},
            "add_sat": "__builtin_elementwise_add_sat(a, b)",
            "sub_sat": "__builtin_elementwise_sub_sat(a, b)",
        }
        further = {
            signed: {
                **{"div": f"{unsafe} ? 0 : a / b", "rem": f"{unsafe} ? 0 : a % b"},
                "abs": "a < 0 ? -a : a",
            },
            unsigned: {
                **{"div": "b == 0 ? 0 : a / b", "rem": "b == 0 ? 0 : a % b"},
                **{"mul": "a * b", "sub": "a - b", "shl": f"a << {place}"},
                "reverse": f"__builtin_bitreverse{bits}(a)",
                "rotate": f"__builtin_rotateleft{bits}(a, b)",
                "funnel": f"a << {place} | b >> 1 >> ({bits - 1} & ~b)",
            },
        }
        for kind, own in further.items():
            for name, body in (both | own).items():
                found[f"{name}_{kind}"] = Function(kind, kind, kind, body)
    for bits, suffix in ((32, ""), (64, "ll")):
        kind = f"u{bits}"
        for name in ("popcount", "clz", "ctz"):
            body = f"__builtin_{name}{suffix}(a | {1 if name == 'clz' else f'1ull << {bits - 1}'})"
            found[f"{name}_{kind}"] = Function("i32", kind, kind, body)
        found[f"overflow_{kind}"] = Function(
            *(kind, kind, kind), f"({{ {kind} r; __builtin_mul_overflow(a, b, &r) ? ~r : r; }})"
        )
        found[f"overflow_i{bits}"] = Function(
            *(f"i{bits}",) * 3, f"({{ i{bits} r; __builtin_add_overflow(a, b, &r) ? ~r : r; }})"
        )
    for sign, full in (("i", "__int128"), ("u", "unsigned __int128")):
        kind = f"{sign}64"
        found[f"high_{kind}"] = Function(kind, kind, kind, f"(({full})a * b) >> 64")
        found[f"carry_{kind}"] = Function(kind, kind, kind, f"(({full})a + b) >> 1")
    return found


FUNCTIONS = _functions()


def source() -> str:
    """Return a C source with a kernel for each function, or a loop of the host."""
    names = {"i8": "signed char", "u8": "unsigned char", "i16": "short", "u16": "unsigned short"}
    names |= {"i32": "int", "u32": "unsigned", "i64": "long", "u64": "unsigned long"}
    names |= {"f16": "_Float16", "f32": "float", "f64": "double"}
    lines = [f"typedef {name} {kind};" for kind, name in names.items()]
    lines += [
        "#ifdef __AMDGPU__",
        "#define GLOBAL __attribute__((address_space(1)))",
        "#define FUNCTION(NAME, R, A, B, BODY) __attribute__((amdgpu_kernel)) void NAME( \\",
        "  GLOBAL R *r, GLOBAL const A *x, GLOBAL const B *y) { \\",
        f"  int n = __builtin_amdgcn_workgroup_id_x() * {BLOCK} + \\",
        "    __builtin_amdgcn_workitem_id_x(); A a = x[n]; B b = y[n]; r[n] = (BODY); (void)b; }",
        "#else",
        "#define FUNCTION(NAME, R, A, B, BODY) void NAME(R *r, const A *x, const B *y) { \\",
        f"  for (int n = 0; n < {COUNT}; n++) {{ \\",
        "    A a = x[n]; B b = y[n]; r[n] = (BODY); (void)b; } }",
        "#endif",
    ]
    for name, one in FUNCTIONS.items():
        lines.append(f"FUNCTION({name}, {one.result}, {one.a}, {one.b}, ({one.body}))")
    return "\n".join([*lines, ""])


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the source."""
    place = tmp_path_factory.mktemp("compiled")
    (place / "functions.c").write_text(source(), encoding="utf-8")
    return place


def compile_source(
    work: Path, output: str, *options: str, source_file: str = "functions.c"
) -> Path:
    """Compile a source with the pinned clang."""
    # No operation may be fused: the host would round once more.
    command = [
        *(*compiler_of(SDK), "-x", "c", "-O2", "-ffp-contract=off", "-fno-math-errno"),
        *options,
    ]
    command += [source_file, "-fuse-ld=lld", "-o", output]
    found = subprocess.run(command, cwd=work, text=True, capture_output=True, check=False)
    assert found.returncode == 0, found.stderr
    return work / output


@pytest.fixture(scope="module")
def host(work: Path) -> ctypes.CDLL:
    """Return the functions, compiled for this machine."""
    options = ["-shared", "-fPIC", "-march=x86-64-v3", "-Wl,--no-as-needed", "-lm"]
    options += ["-Xclang", "-ffloat16-excess-precision=none"]
    return ctypes.CDLL(str(compile_source(work, "host.so", *options)))


def device_options(arch: str) -> list[str]:
    """Return the options that compile for an arch."""
    return ["--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-nogpulib"]


def operands(rng: np.random.Generator, kind: str, count: int) -> Array:
    """Return random bits, numbers of usual sizes, and special numbers, of a type."""
    target = np.dtype(TYPES[kind])
    bits = rng.integers(0, 2 ** (8 * target.itemsize), count, np.uint64, endpoint=False)
    raw = bits.astype(f"u{target.itemsize}").view(target)
    pick = rng.random(count)
    with np.errstate(all="ignore"):
        if kind[0] == "f":
            info: Any = np.finfo(target)
            least = info.smallest_subnormal
            special = [0.0, 1, 1.5, 2, 3, 0.5, 2.5, 255, np.inf, np.nan, least, 3 * least]
            special += [
                info.tiny,
                info.tiny - least,
                info.max,
                info.max / 3,
                info.eps,
                1 - info.eps,
            ]
            special += [2.0**-14, 2.0**-126, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 1e-19]
            usual = rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)
        else:
            info = np.iinfo(target)
            special = [0, 1, 2, 3, 7, 10, info.max, info.max - 1, info.max // 2, info.max // 2 + 1]
            usual = rng.integers(-40 if kind[0] == "i" else 0, 40, count).astype(float)
        ends = np.array(special).astype(target)
        if kind[0] != "u":
            ends = np.concatenate([ends, -ends, np.array([info.min], target)])
        raw = np.where(pick < 0.4, usual.astype(target), raw)
    return np.where(pick > 0.7, ends[rng.integers(0, len(ends), count)], raw)


def ordered(values: Array) -> Array:
    """Return integers whose differences count the floats between values."""
    bits = values.view(f"i{values.itemsize}").astype(np.int64)
    least = np.int64(np.iinfo(f"i{values.itemsize}").min)
    return np.where(bits < 0, least - bits, bits)


ARCH = pytest.mark.parametrize(
    "arch",
    [
        pytest.param(arch, marks=() if arch in ("gfx950", "gfx1201") else pytest.mark.thorough)
        for arch in ARCHS
    ],
)


@ARCH
def test_results_are_those_of_the_host(arch: str, work: Path, host: ctypes.CDLL) -> None:
    """Prevents: a compiled operator with a wrong result for infinities, denormals or rounding."""
    code = compile_source(work, f"{arch}.co", *device_options(arch)).read_bytes()
    device = Device(Options(strict=True))
    module = Module(device, CodeObject.read(code))
    wrong: list[str] = []
    for name, one in FUNCTIONS.items():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        a, b = (np.ascontiguousarray(operands(rng, kind, COUNT)) for kind in (one.a, one.b))
        results = [np.zeros(COUNT, TYPES[one.result]) for _ in range(2)]
        addresses = [device.map.own(array) for array in (results[0], a, b)]
        arguments, grid = struct.pack("<3Q", *addresses), (COUNT // BLOCK, 1, 1)
        try:
            device.launch(module, name, grid, (BLOCK, 1, 1), arguments)
        except EmulationError as error:
            wrong.append(f"{name} {error.fault}")
            continue
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (results[1], a, b)]
        getattr(host, name)(*pointers)
        found, wanted = results
        differ = found.view(f"u{found.itemsize}") != wanted.view(f"u{found.itemsize}")
        if one.result[0] == "f":
            differ &= ~(np.isnan(found) & np.isnan(wanted))
            if name.startswith(("fmin", "fmax", "less")):
                # Zeros of both signs are equal.
                differ &= found != wanted
            if one.ulps:
                differ &= np.abs(ordered(found) - ordered(wanted)) > one.ulps
        if places := np.flatnonzero(differ).tolist():
            shown = [
                f"({a[n]!r}, {b[n]!r}): {found[n]!r}, expected {wanted[n]!r}" for n in places[:3]
            ]
            wrong.append(f"{name} {len(places)} of {COUNT}: {'; '.join(shown)}")
    assert not wrong, "\n".join(wrong)


#: Addresses of local arrays, and atomic operations on shared memory.
MEMORY = """
typedef unsigned u32;
typedef unsigned long long u64;
#define GLOBAL __attribute__((address_space(1)))
#define SHARED __attribute__((address_space(3)))
#define RELAXED __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP
#define INC_u32 __builtin_amdgcn_atomic_inc32
#define INC_u64 __builtin_amdgcn_atomic_inc64
#define DEC_u32 __builtin_amdgcn_atomic_dec32
#define DEC_u64 __builtin_amdgcn_atomic_dec64
#define KERNEL __attribute__((amdgpu_kernel)) void

__attribute__((noinline)) static void fill(u32 *to, u32 n) {
  for (u32 i = 0; i < 8; i++) to[i] = i * i + n;
}
KERNEL local_array(GLOBAL u32 *r) {
  u32 n = __builtin_amdgcn_workitem_id_x(), own[8];
  fill(own, n);
  r[n] = own[n % 8];
}
#define ATOMIC(NAME, TYPE, BODY)                                                    \\
  KERNEL NAME(GLOBAL u64 *r) {                                                      \\
    static SHARED TYPE cell[8] __attribute__((loader_uninitialized));               \\
    u32 n = __builtin_amdgcn_workitem_id_x();                                       \\
    SHARED TYPE *at = cell + n % 8;                                                 \\
    if (n < 8) cell[n] = 3;                                                         \\
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");                          \\
    __builtin_amdgcn_s_barrier();                                                   \\
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");                          \\
    TYPE old = BODY;                                                                \\
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");                          \\
    __builtin_amdgcn_s_barrier();                                                   \\
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");                          \\
    r[n] = *at;                                                                     \\
    r[64 + n] = old;                                                                \\
  }
#define BOTH(TYPE)                                                                  \\
  ATOMIC(increment_##TYPE, TYPE, INC_##TYPE(at, 5, __ATOMIC_RELAXED, "workgroup"))  \\
  ATOMIC(decrement_##TYPE, TYPE, DEC_##TYPE(at, 5, __ATOMIC_RELAXED, "workgroup"))  \\
  ATOMIC(exchange_##TYPE, TYPE, __scoped_atomic_exchange_n(at, n, RELAXED))         \\
  ATOMIC(add_##TYPE, TYPE, __scoped_atomic_fetch_add(at, n, RELAXED))               \\
  ATOMIC(min_##TYPE, TYPE, __scoped_atomic_fetch_min(at, (TYPE)n, RELAXED))         \\
  ATOMIC(swap_##TYPE, TYPE, ({ TYPE want = 3; __scoped_atomic_compare_exchange_n(   \\
      at, &want, n, 0, __ATOMIC_RELAXED, RELAXED); want; }))
BOTH(u32)
BOTH(u64)
"""


def expected_cells(name: str) -> list[int]:
    """Return the numbers that the lanes of a workgroup leave in shared memory, in their order."""
    cells = [3] * 8
    for n in range(64):
        old = cells[n % 8]
        cells[n % 8] = {
            "increment": 0 if old >= 5 else old + 1,
            "decrement": 5 if old == 0 or old > 5 else old - 1,
            "exchange": n,
            "add": old + n,
            "min": min(old, n),
            "swap": n if old == 3 else old,
        }[name]
    return [cells[n % 8] for n in range(64)]


@ARCH
def test_local_arrays_and_shared_atomics(arch: str, work: Path) -> None:
    """Prevents: ordinary HIP code refused: addresses of local arrays, atomics on __shared__."""
    (work / "memory.c").write_text(MEMORY, encoding="utf-8")
    options = device_options(arch)
    code = compile_source(work, f"memory_{arch}.co", *options, source_file="memory.c").read_bytes()
    device = Device(Options(strict=True))
    module = Module(device, CodeObject.read(code))
    found = np.zeros(128, np.uint64)
    address = struct.pack("<Q", device.map.own(found))
    device.launch(module, "local_array", (1, 1, 1), (64, 1, 1), address)
    lane = np.arange(64, dtype=np.uint32)
    assert (found.view(np.uint32)[:64] == (lane % 8) ** 2 + lane).all()
    for name in ("increment", "decrement", "exchange", "add", "min", "swap"):
        for kind in ("u32", "u64"):
            device.launch(module, f"{name}_{kind}", (1, 1, 1), (64, 1, 1), address)
            assert found[:64].tolist() == expected_cells(name), (name, kind)
