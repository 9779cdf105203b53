"""Programs of users of bundles in C, CMake and Python, run as `qola emulate` runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gfxemu.tests.emulated import run_emulated
from gfxemu.tests.sdk import compiler_of
from tests.bundle.project import Project, bundle, succeeds

ROOT = Path(__file__).resolve().parents[3]
#: Batches of fp16 and head dimension 32, and groups of bf16 and head dimension 128.
BUNDLE, ASSEMBLY = bundle("QOLA_TEST_BUNDLE"), bundle("QOLA_TEST_ASM")
RUNTIME = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
HIPCC = Path(os.environ["QOLA_TEST_HIPCC"]).absolute()
SDK = HIPCC.parent.parent


def test_a_program_in_c(tmp_path: Path) -> None:
    """Prevents: examples/c, which needs a GPU's runtime, cannot run on a machine without one."""
    (library,) = ASSEMBLY.glob("lib/*_libmha_fwd.so")
    program = tmp_path / "attention"
    command = [*compiler_of(SDK), "-xc", "-std=c99", "-D__HIP_PLATFORM_AMD__=1"]
    command += ["-isystem", f"{SDK}/rocm/include", f"-I{ASSEMBLY}/include"]
    command += [str(ROOT / "examples/c/attention.c"), "-xnone", str(library)]
    command += ["-fuse-ld=lld", "-lamdhip64", f"-Wl,-rpath,{library.parent}", "-o", str(program)]
    subprocess.run(command, check=True)
    ran = run_emulated(RUNTIME, "gfx950", program)
    assert (ran.returncode, ran.stdout.splitlines()[-1:]) == (0, ["success"]), ran.stderr


def test_a_program_of_cmake(tmp_path: Path) -> None:
    """Prevents: the program of docs/guide/cmake.md does not run on the emulator."""
    options = (f"-DCMAKE_CXX_COMPILER={HIPCC}", f"-DCMAKE_PREFIX_PATH={BUNDLE}")
    project = Project(ROOT / "examples/cmake", tmp_path / "build", options)
    succeeds(project.configure())
    project.make()
    ran = run_emulated(RUNTIME, "gfx950", project.build / "consumer", "fp16", "32")
    assert (ran.returncode, ran.stdout) == (0, "forward 0\nbackward 0\n"), ran.stderr


#: Attention with Q = 0 has equal weights: each row of O is the mean of V.
PROGRAM = """\
import ctypes, sys
from pathlib import Path
import numpy as np
from tests.library.header import structures, values

bundle = Path(sys.argv[1])
header = bundle / "include/qola_c.h"
hip = ctypes.CDLL("libamdhip64.so.7")
library = ctypes.CDLL(str(bundle / "lib/ci_libmha_fwd.so"))
rows, hdim = 100, 32

def on_device(array):
    pointer = ctypes.c_void_p()
    assert hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(array.nbytes)) == 0
    copy(pointer, array.ctypes.data_as(ctypes.c_void_p), array.nbytes, 1)
    return pointer

def copy(target, source, size, kind):
    assert hip.hipMemcpy(target, source, ctypes.c_size_t(size), kind) == 0

v = np.random.default_rng(1).normal(size=(rows, hdim)).astype(np.float16)
o, lse = np.zeros_like(v), np.zeros(rows, np.float32)
args = structures(header)["qola_mha_args"](dtype=values(header)["QOLA_FP16"])
args.struct_size = ctypes.sizeof(args)
args.batch = args.nhead_q = args.nhead_k = 1
args.seqlen_q = args.seqlen_k = args.max_seqlen_q = rows
args.hdim_q = args.hdim_v = hdim
for name, array in {"q": np.zeros_like(v), "k": v, "v": v, "o": o}.items():
    tensor = getattr(args, name)
    tensor.data, tensor.stride_row = on_device(array), hdim
args.lse.data = on_device(lse)
status = library.qola_ci_mha_fwd(ctypes.byref(args), None)
assert status == 0, status
copy(o.ctypes.data_as(ctypes.c_void_p), ctypes.c_void_p(args.o.data), o.nbytes, 2)
print(float(np.abs(o - v.astype(np.float64).mean(axis=0)).max()) < 1e-3)
"""


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_program_in_python(arch: str, tmp_path: Path) -> None:
    """Prevents: a Python program that calls a library gets no results, or wrong ones."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = run_emulated(RUNTIME, arch, program, str(BUNDLE))
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr
