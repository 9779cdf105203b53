"""The fake HIP runtime: programs compiled by the real hipcc run on it."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from gfxemu.fake_hip import FakeHip, Launch, read_log
from gfxemu.fake_hip.make_exports import exports

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
PROBES = {Path(path).name: Path(path).resolve() for path in os.environ["QOLA_TEST_PROBES"].split()}
AITER = Path(os.environ["QOLA_TEST_AITER_TREE"]) / "aiter_meta"
LLVM = Path(os.environ["QOLA_TEST_LLVM"]).absolute().parent
REAL = Path(os.environ["QOLA_TEST_REAL_HIP"]).absolute()
ARCHS = ("gfx942", "gfx950")

INVALID_DEVICE_FUNCTION = 98
INVALID_DEVICE = 101
NO_BINARY_FOR_GPU = 209
SCALE = "_Z5scalePfid"
FILL = "_Z4fillILi4EEvPi"


def probe(
    name: str, hip: FakeHip, log: Path, *arguments: str | Path, **env: str
) -> tuple[list[str], list[Launch]]:
    """Run a probe that must succeed; return its output lines and its launches."""
    result = hip.run([PROBES[name], *arguments], log, **env)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines(), read_log(log)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["probe_both", "probe_compressed"])
def test_launches_are_logged(name: str, arch: str, tmp_path: Path) -> None:
    """Prevents: tests that accept a kernel, grid or argument that was not launched."""
    lines, launches = probe(name, FakeHip(FAKE, arch), tmp_path / "log", "launch")
    statuses = dict(line.rsplit(" ", 1) for line in lines)
    assert statuses.pop("fill too large") == "9"
    assert statuses.pop("hipStreamDestroy again") == "400"
    assert statuses.pop("elapsed") == "1"
    assert set(statuses.values()) == {"0"}

    first, second, third = launches
    assert [launch.kernel for launch in launches] == [SCALE, FILL, SCALE]
    assert {launch.arch for launch in launches} == {arch}
    assert {launch.source for launch in launches} == {"fatbin"}
    assert (first.grid, first.block) == ((3, 2, 1), (64, 1, 1))
    assert (first.lds_static, first.lds_dynamic, first.stream) == (256, 1024, 1)
    assert (second.grid, second.block, second.stream) == ((2, 1, 1), (128, 1, 1), 0)
    # float*, int, (4 bytes of padding), double: the layout of the kernarg segment.
    assert first.kernarg[:24] == struct.pack("<Qi4xd", 0x1122334455667788, 7, 0.5)
    assert third.kernarg[:24] == struct.pack("<Qi4xd", 0x1122334455667788, 8, 0.25)
    assert len(first.kernarg) == first.kernarg_bytes


@pytest.mark.parametrize("arch", ARCHS)
def test_launches_name_the_code_object_of_the_arch(arch: str, tmp_path: Path) -> None:
    """Prevents: a launch attributed to the code object of another arch."""
    _, launches = probe("probe_both", FakeHip(FAKE, arch), tmp_path / "log", "launch")
    link = tmp_path / "program"
    link.symlink_to(PROBES["probe_both"])
    # llvm-objdump writes each code object next to the program.
    objdump = [f"{LLVM}/llvm-objdump", "--offloading", link.name]
    subprocess.run(objdump, cwd=tmp_path, check=True, capture_output=True)
    (code_object,) = tmp_path.glob(f"program.*amdhsa--{arch}")
    digest = hashlib.sha256(code_object.read_bytes()).hexdigest()
    assert {launch.code_object_sha256 for launch in launches} == {digest}


def test_missing_arch(tmp_path: Path) -> None:
    """Prevents: a library without code for the device that loads without an error."""
    hip = FakeHip(FAKE, "gfx950")
    lines, launches = probe("probe_gfx942", hip, tmp_path / "log", "launch")
    assert f"scale {NO_BINARY_FOR_GPU}" in lines
    assert f"fill {NO_BINARY_FOR_GPU}" in lines
    assert launches == []
    # On gfx942, for which the program has code, kernels launch.
    _, launches = probe("probe_gfx942", FakeHip(FAKE, "gfx942"), tmp_path / "log", "launch")
    assert len(launches) == 3


@pytest.mark.parametrize(
    ("arch", "lds", "cu_count", "expected"),
    [
        ("gfx942", 64 << 10, None, 304),
        ("gfx942", 64 << 10, 80, 80),
        ("gfx950", 160 << 10, None, 256),
    ],
)
def test_device(arch: str, lds: int, cu_count: int | None, expected: int, tmp_path: Path) -> None:
    """Prevents: a dispatch by arch or cu_count that is tested on the wrong device."""
    hip = FakeHip(FAKE, arch, cu_count=cu_count)
    lines, _ = probe("probe_both", hip, tmp_path / "log", "attributes")
    assert f"gcnArchName {arch}:sramecc+:xnack-" in lines
    assert f"multiProcessorCount {expected}" in lines
    assert f"sharedMemPerBlock {lds}" in lines
    assert "hipSetDevice 1 101" in lines


def readelf(option: str, file: Path) -> str:
    """Return llvm-readelf's output for a file."""
    command = [f"{LLVM}/llvm-readelf", option, "--wide", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def assembly_kernel(arch: str) -> tuple[Path, str]:
    """Return file and name of a backward assembly kernel that AITER ships for an arch."""
    path = sorted((AITER / "hsa" / arch / "fmha_v3_bwd").glob("*.co"))[0]
    notes = readelf("--notes", path)
    return path, re.findall(r"^    \.name: +(\S+)", notes, re.MULTILINE)[0]


@pytest.mark.parametrize("arch", ARCHS)
def test_module(arch: str, tmp_path: Path) -> None:
    """Prevents: launches of assembly kernels that tests cannot see or identify."""
    path, name = assembly_kernel(arch)
    hip = FakeHip(FAKE, arch)
    lines, launches = probe("probe_both", hip, tmp_path / "log", "module", path, name)
    once = [
        "hipModuleGetFunction 0",
        "hipModuleGetFunction nobody 500",
        "hipModuleLaunchKernel null 400",
        "hipModuleGetFunction 0",
        "hipModuleLaunchKernel 0",
        "hipModuleUnload 0",
    ]
    assert lines == ["hipModuleLoad 0", *once, "hipModuleLoadData 0", *once]
    from_file, from_memory = launches
    assert from_file == from_memory
    assert (from_file.kernel, from_file.source) == (name, "module")
    assert (from_file.grid, from_file.block) == ((4, 5, 6), (256, 1, 1))
    assert from_file.kernarg == bytes(range(1, 9))
    assert from_file.code_object_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(("cu_count", "chip"), [(None, "74a1"), (80, "74a2")])
def test_launch_by_symbol(cu_count: int | None, chip: str, tmp_path: Path) -> None:
    """Prevents: AITER's later loader, which launches by symbol, fails on the fake runtime."""
    hip = FakeHip(FAKE, "gfx942", cu_count=cu_count)
    lines, (launch,) = probe("probe_both", hip, tmp_path / "log", "symbol")
    assert lines == [
        f"hipGetFuncBySymbol nobody {INVALID_DEVICE_FUNCTION}",
        "hipGetFuncBySymbol 0",
        "hipModuleLaunchKernel 0",
        "hipDeviceGetAttribute 0",
        f"chip {chip}",
    ]
    assert "scale" in launch.kernel
    assert (launch.grid, launch.block, launch.source) == ((2, 3, 1), (64, 1, 1), "fatbin")
    assert launch.kernarg == bytes([1, 2, 3, 4])


def test_module_of_another_arch(tmp_path: Path) -> None:
    """Prevents: a code object that loads on a device of another arch."""
    path, name = assembly_kernel("gfx942")
    hip = FakeHip(FAKE, "gfx950")
    lines, launches = probe("probe_both", hip, tmp_path / "log", "module", path, name)
    assert lines == [f"hipModuleLoad{data} {NO_BINARY_FOR_GPU}" for data in ("", "Data")]
    assert launches == []


#: Launches a module's kernel on the device that loaded the module, and on another device.
_TWO_DEVICES = """\
import ctypes, sys
hip = ctypes.CDLL("libamdhip64.so.7")
module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
assert hip.hipModuleLoad(ctypes.byref(module), sys.argv[1].encode()) == 0
assert hip.hipModuleGetFunction(ctypes.byref(kernel), module, sys.argv[2].encode()) == 0
buffer, size = ctypes.create_string_buffer(8), ctypes.c_size_t(8)
extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 3)
for device in (0, 1):
    assert hip.hipSetDevice(device) == 0
    print(hip.hipModuleLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, None, None, extra))
"""


def test_a_module_on_another_device(tmp_path: Path) -> None:
    """Prevents: success for a library that loads code only for the first of several devices."""
    hip = FakeHip(FAKE, "gfx942,gfx942")
    command: list[str | Path] = [sys.executable, "-c", _TWO_DEVICES, *assembly_kernel("gfx942")]
    result = hip.run(command, tmp_path / "log")
    assert result.stdout.split() == ["0", str(INVALID_DEVICE)], result.stderr
    assert len(read_log(tmp_path / "log")) == 1


#: Prints floats at the begin and the end of new memory that is used again, from each function.
_NEW_MEMORY = """\
import ctypes, math
hip = ctypes.CDLL("libamdhip64.so.7")
pointer = ctypes.c_void_p()
size = 1 << 20
for allocate, free in (("hipMalloc", "hipFree"), ("hipHostMalloc", "hipHostFree")):
    for _ in range(2):
        assert hip[allocate](ctypes.byref(pointer), ctypes.c_size_t(size), 0) == 0
        floats = (ctypes.c_float * (size // 4)).from_address(pointer.value)
        print(allocate, math.isnan(floats[0]), math.isnan(floats[-1]))
        ctypes.memset(pointer, 0, size)
        assert hip[free](pointer) == 0
"""


def test_new_memory_holds_nan(tmp_path: Path) -> None:
    """Prevents: a program that reads memory before it writes it, and finds zeros by chance."""
    result = FakeHip(FAKE, "gfx942").run([sys.executable, "-c", _NEW_MEMORY], tmp_path / "log")
    lines = [f"{name} True True" for name in ("hipMalloc", "hipHostMalloc") for _ in range(2)]
    assert result.stdout.splitlines() == lines, result.stderr


@pytest.mark.parametrize(
    ("fail", "statuses", "launched"),
    [
        ("hipModuleLoadData=2", {"hipModuleLoad": ["0"], "hipModuleLoadData": ["2"]}, 1),
        ("hipModuleLaunchKernel=719", {"hipModuleLaunchKernel": ["719", "719"]}, 0),
        ("hipModuleUnload=2*1", {"hipModuleUnload": ["2", "0"]}, 2),
    ],
    ids=["a call", "a launch", "the first call"],
)
def test_calls_fail(
    fail: str, statuses: dict[str, list[str]], launched: int, tmp_path: Path
) -> None:
    """Prevents: a test of an error path in which no call fails, or every call fails."""
    path, name = assembly_kernel("gfx942")
    module = ("module", path, name)
    hip = FakeHip(FAKE, "gfx942")
    lines, launches = probe("probe_both", hip, tmp_path / "log", *module, FAKE_HIP_FAIL=fail)
    assert len(launches) == launched
    pairs = [line.rsplit(" ", 1) for line in lines]
    for call, expected in statuses.items():
        assert [status for name, status in pairs if name == call] == expected


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            {"FAKE_HIP_ARCH": "gfx000"},
            'FAKE_HIP_ARCH: "gfx000" is none of gfx90a, gfx942, gfx950, gfx1100, gfx1201, gfx1250',
        ),
        ({"FAKE_HIP_FAIL": "hipMaloc=2"}, "FAKE_HIP_FAIL: no function hipMaloc"),
        (
            {"FAKE_HIP_FAIL": "hipMalloc"},
            'FAKE_HIP_FAIL: "hipMalloc" is not of the form hipFunction=code',
        ),
        ({"FAKE_HIP_CU_COUNT": "many"}, 'FAKE_HIP_CU_COUNT: "many" is not a number of 1 or more'),
        ({"FAKE_HIP_LOG": "/nowhere/log"}, "FAKE_HIP_LOG: cannot write to /nowhere/log"),
    ],
)
def test_wrong_settings(env: dict[str, str], message: str, tmp_path: Path) -> None:
    """Prevents: a misspelt setting that silently changes a test."""
    hip = FakeHip(FAKE, "gfx942")
    result = hip.run([PROBES["probe_both"], "launch"], tmp_path / "log", **env)
    assert result.returncode < 0
    assert f"fake_hip: {message}" in result.stderr


def test_unsupported_functions_are_refused(tmp_path: Path) -> None:
    """Prevents: an unsupported function that reports success."""
    hip = FakeHip(FAKE, "gfx942")
    result = hip.run([PROBES["probe_both"], "unsupported"], tmp_path / "log")
    assert result.returncode < 0
    assert result.stderr == "fake_hip: hipGraphCreate is not supported\n"
    assert result.stdout == ""


def test_memory(tmp_path: Path) -> None:
    """Prevents: host code that reads other bytes than it wrote."""
    lines, _ = probe("probe_both", FakeHip(FAKE, "gfx942"), tmp_path / "log", "memory")
    assert "bytes abxxxxx" in lines
    assert "bytes yyyxzzz" in lines
    assert "hipFree again 1" in lines
    assert "name hipErrorInvalidValue" in lines
    assert lines[-1] == "hipMalloc too much 2"


def test_calls_that_pytorch_needs(tmp_path: Path) -> None:
    """Prevents: PyTorch tensors that lack streams, copies, pinned memory or memory sizes."""
    lines, _ = probe("probe_both", FakeHip(FAKE, "gfx950"), tmp_path / "log", "pytorch")
    statuses = dict(line.rsplit(" ", 1) for line in lines)
    assert statuses.pop("capture 0") == "1"
    assert statuses.pop("used") == "8"
    assert statuses.pop("bytes") == "ab"
    assert statuses.pop("type") == "2"
    assert statuses.pop("hipPointerGetAttributes host") == "1"
    assert statuses.pop("type pinned") == "1"
    assert statuses.pop("used pinned") == "0"
    assert statuses.pop("hipFree pinned") == "1"
    assert statuses.pop("hipStreamQuery destroyed") == "400"
    assert set(statuses.values()) == {"0"}


def test_exports_match_the_real_runtime() -> None:
    """Prevents: a symbol or symbol version that only one of the two runtimes has."""
    found, real = (exports(readelf("--dyn-syms", library)) for library in (FAKE, REAL))
    assert ("hip_6.0", "hipGetDevicePropertiesR0600") in found
    assert found == real
