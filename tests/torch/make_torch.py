"""Builds the parts of PyTorch for ROCm that AITER's attention needs, from PyTorch's sources.

Usage: make_torch.py DIRECTORY SDK FAKE_HIP

Run manually, on Debian (CONTRIBUTING.md). This script adds the HIP libraries to Debian's build of
PyTorch, in the same steps as PyTorch's CMake files: hipify writes the sources, torchgen registers
operators, and qola's pinned compiler (SDK) compiles all of c10/hip, and the files of ATen that
create, copy and fill tensors on a GPU. A call of a function that is left out prints its name and
ends the process. All other operators run on the CPU, on copies of tensors. DIRECTORY/python runs
the Python with this PyTorch, its C library and FAKE_HIP.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE, SDK, FAKE = (Path(argument).resolve() for argument in sys.argv[1:])
PINS = Path(__file__).resolve().parents[2] / "third_party/python/verify.txt"
ROOT, SOURCE = HERE / "root", HERE / "source"
USR, ATEN = ROOT / "usr", SOURCE / "aten/src/ATen"
LIB, TORCH = USR / "lib/x86_64-linux-gnu", USR / "lib/python3/dist-packages/torch"
VERSION, HIP = "2.6.0+dfsg-7", "7.2.53211"
#: Packages to install, with dependencies, from the Debian release of the sources.
PACKAGES = """
libtorch-dev pybind11-dev python3-einops python3-pytest python3-setuptools python3-torch
python3.13-dev
"""
#: Packages of ROCm's libraries, for their headers only.
HEADERS = """
libhipblas-common-dev libhipblas-dev libhipblaslt-dev libhipcub-dev libhipfft-dev libhiprand-dev
libhipsolver-dev libhipsparse-dev libmiopen-dev librocprim-dev librocrand-dev librocthrust-dev
"""
#: Operators to register for the GPU; other operators call these, or run on the CPU.
OPERATORS = """
aten::_local_scalar_dense aten::_reshape_alias aten::as_strided aten::empty.memory_format
aten::empty_strided aten::fill_.Scalar aten::record_stream aten::resize_ aten::set_.source_Tensor
aten::set_.source_Storage_storage_offset aten::view aten::zero_
"""
SOURCES = """
hip/impl/HIPCachingAllocatorMasqueradingAsCUDA.cpp hip/impl/HIPGuardImplMasqueradingAsCUDA.cpp
hip/CachingHostAllocator.cpp hip/EmptyTensor.cpp hip/Exceptions.cpp hip/HIPContext.cpp
hip/HIPGeneratorImpl.cpp hip/HIPGraph.cpp hip/PeerToPeerAccess.cpp hip/detail/HIPHooks.cpp
native/hip/Copy.hip native/hip/FillKernel.hip native/hip/HIPScalar.hip native/hip/RecordStream.hip
native/hip/Resize.cpp native/hip/TensorFactories.hip native/hip/TensorShapeHIP.cpp
"""
#: The CPU fallback, as PyTorch registers it for backends that lack operators.
FALLBACK = """#include <ATen/ATen.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>
static void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}
static at::Tensor copy_and_resize(const at::Tensor& from, const at::Tensor& to) {
  return at::Tensor(to).resize_(from.sizes()).copy_(from);
}
TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}
TORCH_LIBRARY_IMPL(aten, CUDA, m) { m.impl("_copy_from_and_resize", copy_and_resize); }
"""
CLANG = f"{SDK}/bin/clang++ -no-canonical-prefixes --sysroot={SDK}/sysroot"
FLAGS = f"""
-std=c++17 -O1 -fPIC -w -fvisibility=hidden -fvisibility-inlines-hidden -fclang-abi-compat=17
-resource-dir={SDK}/resource -DUSE_ROCM -D__HIP_PLATFORM_AMD__=1 -DCUDA_HAS_FP16=1 -DHIPBLAS_V2
-D__HIP_NO_HALF_CONVERSIONS__=1 -D__HIP_NO_HALF_OPERATORS__=1 -DHIP_NEW_TYPE_ENUMS
-DROCM_VERSION=70204 -DTORCH_HIP_VERSION=702 -DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_HIP
-DAT_PER_OPERATOR_HEADERS -I{TORCH}/include -I{SOURCE}/aten/src -isystem {SDK}/rocm/include
-isystem {HERE}/headers/usr/include
"""
LINK = f"""
-shared -fuse-ld=lld -Wl,-z,defs -Wl,--allow-shlib-undefined -Wl,--no-demangle -Wl,--error-limit=0
-L{TORCH}/lib -L{LIB} {SDK}/rocm/lib/libamdhip64.so
"""
APT = """
--quiet --yes -oAPT::Install-Recommends=false -oAPT::Sandbox::User=root -oDir::Cache::pkgcache=
-oDir::Cache::srcpkgcache= -oDir::Etc::SourceParts=/dev/null -oDir::Cache::archives={0}/archives
-oDir::Etc::SourceList={0}/sources -oDir::State::Lists={0}/lists -oDir::State::status={0}/status
"""
PYTHON = f"""#!/bin/sh
export FAKE_HIP_ARCH="${{FAKE_HIP_ARCH:-gfx950}}"
libraries={TORCH}/lib:$LD_LIBRARY_PATH:{LIB}:{LIB}/blas:{LIB}/lapack:{USR}/lib:{HERE}/hip
exec {LIB}/ld-linux-x86-64.so.2 --argv0 {USR}/bin/python3.13 --library-path "$libraries" \\
  {USR}/bin/python3.13 "$@"
"""


def run(*command: str | Path, cwd: Path = HERE) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, cwd=cwd, check=True)


def fetch(suite: str, directory: Path, *commands: str) -> Path:
    """Fetch packages of a suite by apt, independently of the machine's, and unpack them."""
    state = HERE / suite
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True)
    (state / "status").touch()
    indextargets = ["apt-get", "indextargets", "--format=$(SITE)"]
    sites = subprocess.check_output(indextargets, text=True).split()
    mirror = next(site for site in sites if not site.endswith("security"))
    sources = "".join(f"{kind} {mirror} {suite} main\n" for kind in ("deb", "deb-src"))
    (state / "sources").write_text(sources, encoding="utf-8")
    for command in ("update", *commands):
        run("apt-get", *APT.format(state).split(), *command.split(), cwd=state / "archives")
    directory.mkdir()
    for package in sorted((state / "archives").glob("*.deb")):
        unpacked = f"tar -x -C {directory} --keep-directory-symlink --no-same-owner".split()
        archive = subprocess.check_output(["dpkg-deb", "--fsys-tarfile", package])
        subprocess.run(unpacked, input=archive, check=True)
    return state / "archives"


def generate() -> None:
    """Write PyTorch's sources for HIP, and the registration of operators."""
    run(sys.executable, "tools/amd_build/build_amd.py", cwd=SOURCE)
    command = "-m torchgen.gen -s aten/src/ATen --rocm --per-operator-headers --generate sources"
    command += f" -d {HERE}/generated --backend-whitelist CUDA --op-registration-whitelist"
    run(HERE / "python", *command.split(), *OPERATORS.split(), cwd=SOURCE)
    # Remove the functions after the registrations: one per operator of PyTorch, calling kernels.
    file, end = HERE / "generated/RegisterCUDA.cpp", "} // anonymous namespace"
    head, begin, rest = file.read_text(encoding="utf-8").partition("TORCH_LIBRARY_IMPL(aten, CUDA")
    text = head + begin + rest.partition(end)[0] + end + "\n} // namespace at\n"
    file.write_text(text, encoding="utf-8")
    (HERE / "generated/Fallback.cpp").write_text(FALLBACK, encoding="utf-8")


def copy_headers() -> None:
    """Copy the headers that PyTorch's setup.py installs, and set ROCm's version."""
    include = TORCH / "include"
    shutil.move(include, TORCH / "include.debian")
    for name in ("ATen", "c10", "caffe2", "pybind11", "torch"):
        shutil.copytree(USR / "include" / name, include / name)
    others = shutil.ignore_patterns("*.cpp", "*.hip", "*.in", "*.txt")
    for name in ("aten/src/ATen/hip", "aten/src/ATen/native/hip", "c10/hip"):
        target = include / name.removeprefix("aten/src/")
        shutil.copytree(SOURCE / name, target, ignore=others, dirs_exist_ok=True)
    values = {"@AT_ROCM_ENABLED@": "1", "@AT_[A-Z]+_ENABLED@": "0", "@NVCC_FLAGS_EXTRA@": ""}
    macros = SOURCE / "c10/hip/impl/hip_cmake_macros.h.in"
    for template, folder, changes in (
        (macros, include / "c10/hip/impl", {"#cmakedefine": "#define"}),
        (ATEN / "hip/HIPConfig.h.in", include / "ATen/hip", values),
        (TORCH / "version.py", TORCH, {"(?m)^hip: .*": f"hip: Optional[str] = {HIP!r}"}),
    ):
        text = template.read_text(encoding="utf-8")
        for pattern, value in changes.items():
            text = re.sub(pattern, value, text)
        (folder / template.name.removesuffix(".in")).write_text(text, encoding="utf-8")


def compile_source(source: Path) -> str:
    """Compile a source, for the GPU too if it is a .hip file; return the path of the object."""
    output = HERE / "objects" / f"{source.stem}.o"
    hip = f"-x hip --offload-arch=gfx950 --rocm-path={SDK}/rocm -cuid={source.stem}"
    language = hip if source.suffix == ".hip" else "-x c++"
    run(*f"{CLANG} {language} {FLAGS} -c {source} -o {output}".split())
    print(source.name, flush=True)
    return str(output)


def link(name: str, objects: list[str], needed: str) -> None:
    """Link a library of PyTorch; calls of undefined functions end the process."""
    command = f"{CLANG} {LINK} -Wl,-soname,{name} -o {TORCH}/lib/{name} {needed}".split() + objects
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    missing = sorted(set(re.findall(r"undefined symbol: (\S+)", result.stderr)))
    if not result.returncode:
        return
    if not missing:
        raise SystemExit(result.stderr)
    stand_ins = HERE / f"left_out_of_{name}.cpp"
    stand_in = """extern "C" void left_out_{0}() __asm__("{1}");
void left_out_{0}() {{ std::puts("not in this PyTorch: {1}"); std::abort(); }}"""
    lines = [stand_in.format(number, symbol) for number, symbol in enumerate(missing)]
    text = "\n".join(["#include <cstdio>", "#include <cstdlib>", *lines, ""])
    stand_ins.write_text(text, encoding="utf-8")
    link(name, [*objects, compile_source(stand_ins)], needed)


def build() -> None:
    """Compile and link the libraries for HIP, and the libtorch.so that loads them."""
    c10 = [*SOURCE.glob("c10/hip/*.cpp"), *SOURCE.glob("c10/hip/impl/*.cpp")]
    sources = [ATEN / name for name in SOURCES.split()]
    sources += [HERE / "generated" / name for name in ("Fallback.cpp", "RegisterCUDA.cpp")]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        objects = list(workers.map(compile_source, [*c10, *sources]))
    link("libc10_hip.so", objects[: len(c10)], "-lc10")
    link("libtorch_hip.so", objects[len(c10) :], "-lc10_hip -ltorch_cpu -lc10")
    link("libcaffe2_nvrtc.so", [compile_source(ATEN / "hip/nvrtc_stub/ATenNVRTC.cpp")], "")
    # Debian's libtorch_python needs this name.
    (TORCH / "lib/libtorch.so").unlink()
    (TORCH / "lib/libtorch.so").symlink_to("libtorch.so.2.6")
    link("libtorch.so.2.6", [], "-Wl,--no-as-needed -ltorch_cpu -ltorch_hip -lc10_hip -lc10")


def main() -> None:
    """Build PyTorch in a new directory."""
    HERE.mkdir(parents=True)
    source = f"source --download-only pytorch={VERSION}"
    archives = fetch("trixie", ROOT, f"install --download-only {PACKAGES}", source)
    fetch("experimental", HERE / "headers", f"download {HEADERS}")
    for directory in ("hip", "objects", "source"):
        (HERE / directory).mkdir()
    run("tar", "-xf", *archives.glob("pytorch_*.orig.tar.*"), "-C", SOURCE, "--strip-components=1")
    shutil.copy(FAKE, HERE / "hip/libamdhip64.so.7")
    (HERE / "python").write_text(PYTHON, encoding="utf-8")
    (HERE / "python").chmod(0o755)
    generate()
    copy_headers()
    build()
    pip = f"-m pip install --no-deps --only-binary=:all: --python-version=3.13 -r {PINS}"
    run(sys.executable, *pip.split(), "--target", TORCH.parent)


if __name__ == "__main__":
    main()
