"""Lays out the pinned ROCm packages as one SDK directory that runs from wherever it lies.

Run by repositories.bzl:

    lay_out_sdk.py PACKAGES OUT

PACKAGES, which is emptied in part, has `compiler/` (clang, its libraries, HIP) and `sysroot/` (C
and C++ of an older system). OUT gets

    bin/        a wrapper per program, and hipcc for builds outside Bazel
    libexec/    the programs
    lib/        their loader, and the libraries of compiler and linker
    lib-tools/  further libraries, of the llvm-* programs alone
    resource/   clang's own headers
    rocm/       HIP headers, device libraries, libamdhip64.so
    sysroot/    headers and libraries that host code is compiled and linked with

Standard library only: it runs before anything of qola's is installed. Files are moved, never
written to: they share their bytes with the cache of unpacked packages.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

LIBRARY_DIR = "usr/lib/x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"

PROGRAMS = (
    "clang",
    "clang-offload-bundler",
    "lld",
    "llvm-ar",
    "llvm-cxxfilt",
    "llvm-nm",
    "llvm-objcopy",
    "llvm-objdump",
    "llvm-readobj",
)

# What a program is called by: clang and lld behave by the name they are started under.
ALIASES = {
    "clang++": "clang",
    "ld.lld": "lld",
    "llvm-readelf": "llvm-readobj",
    "llvm-strip": "llvm-objcopy",
}

# Everything ldd names for clang, lld and the bundler; libLLVM and libclang-cpp, of the {llvm} that
# the packages have, are the compiler. libjemalloc: clang's allocator, below.
LIBRARIES = (
    LOADER,
    "libLLVM.so.{llvm}.1",
    "libbsd.so.0",
    "libc.so.6",
    "libclang-cpp.so.{llvm}.1",
    "libedit.so.2",
    "libffi.so.8",
    "libgcc_s.so.1",
    "libjemalloc.so.2",
    "libm.so.6",
    "libmd.so.0",
    "libstdc++.so.6",
    "libtinfo.so.6",
    "libxml2.so.16",
    "libz.so.1",
    "libz3.so.4",
    "libzstd.so.1",
)

# Headers of clang for other processors and languages: 13 of its 16 MB.
FOREIGN_RESOURCES = (
    "altivec",
    "amo",
    "arm",
    "fuzzer",
    "hlsl",
    "hvx",
    "hexagon",
    "llvm_libc_wrappers",
    "loongson",
    "lasx",
    "lsx",
    "msa",
    "opencl",
    "openmp_wrappers",
    "orc",
    "ppc_wrappers",
    "profile",
    "riscv",
    "s390",
    "sanitizer",
    "sifive",
    "spirv",
    "vecintrin",
    "velintrin",
    "wasm",
    "xray",
    "zos_wrappers",
)

# Headers nobody includes by chance: hundreds of files for data structures and modes that moved on.
FOREIGN_HEADERS = (
    "c++/{gcc}/ext/pb_ds",
    "c++/{gcc}/parallel",
    "c++/{gcc}/tr2",
    "x86_64-linux-gnu/c++/{gcc}/32",
    "x86_64-linux-gnu/c++/{gcc}/x32",
)

# Interfaces of the Linux kernel: of these, what the other headers include is kept.
KERNEL_HEADERS = (
    "asm-generic/",
    "drm/",
    "linux/",
    "misc/",
    "mtd/",
    "rdma/",
    "scsi/",
    "sound/",
    "video/",
    "x86_64-linux-gnu/asm/",
    "xen/",
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)

# What linking needs of the sysroot: start files, libraries and the scripts that stand for them.
SYSROOT_LIBRARIES = (
    "crt1.o",
    "crti.o",
    "crtn.o",
    "Scrt1.o",
    "libc.so",
    "libc.so.6",
    "libc_nonshared.a",
    "libdl.a",
    "libm.so",
    "libm.so.6",
    "libmvec.so.1",
    "libpthread.a",
    "librt.a",
    "libstdc++.so.6",
    "libgcc_s.so.1",
)
GCC_FILES = (
    "crtbegin.o",
    "crtbeginS.o",
    "crtend.o",
    "crtendS.o",
    "libgcc.a",
    "libgcc_eh.a",
    "libgcc_s.so",
    "libstdc++.so",
)

# The program is started through the loader that lies beside it, so the machine's own libc plays
# no part. --argv0: with -no-canonical-prefixes the driver starts itself, and finds lld, by the
# name it was called by, which leads back here. PATH: the bundler looks for llvm-objcopy there.
WRAPPER = """#!/bin/sh
d=${{0%/*}}/..
PATH=$d/bin
{compiler}exec "$d/lib/{loader}" --inhibit-cache --library-path "$d/lib:$d/lib-tools" \\
  {preload}--argv0 "$0" "$d/libexec/{program}" "$@"
"""

# A compile allocates and frees small objects by the million: jemalloc with huge pages and without
# giving memory back is 13% faster than libc's allocator (docs/internals/batches.md).
#
# Paths that the compiler makes absolute begin with the working directory as PWD names it: by this
# name they are the same on every machine. The actions have it in their environment, but what runs
# them on a worker may set its own: bubblewrap does.
COMPILER = """MALLOC_CONF=thp:always,metadata_thp:always,narenas:1,dirty_decay_ms:-1
PWD=/proc/self/cwd
export MALLOC_CONF PWD
"""
PRELOAD = """--preload "$d/lib/libjemalloc.so.2" """

# The compiler with the flags that lead to the SDK's parts, for CMake, make and shells (docs/guide/
# cmake.md). Bazel's actions get theirs from toolchain.bzl. Plain C++ ignores half of them.
HIPCC = """#!/bin/sh
d=${0%/*}/..
exec "$d/bin/clang++" -no-canonical-prefixes "--sysroot=$d/sysroot" "-resource-dir=$d/resource" \\
  --start-no-unused-arguments "--rocm-path=$d/rocm" "-L$d/rocm/lib" -fuse-ld=lld \\
  -D__HIP_PLATFORM_AMD__=1 -idirafter "$d/rocm/include" --end-no-unused-arguments "$@"
"""


class LayoutError(Exception):
    """A file that the pinned packages ought to have is not there."""


def wrapper(program: str, *, libc_allocator: bool = False) -> str:
    """The script that starts a program of libexec/.

    Args:
        libc_allocator: start the compiler with libc's allocator, as distributions do.
    """
    compiler = program == "clang" and not libc_allocator
    return WRAPPER.format(
        compiler=COMPILER if compiler else "",
        loader=LOADER,
        preload=PRELOAD if compiler else "",
        program=program,
    )


def is_foreign(name: str) -> bool:
    """Whether a header of clang's is for another processor or language than HIP on x86-64.

    Args:
        name: its path in the resource directory's include/.
    """
    return PurePosixPath(name).parts[0].startswith(FOREIGN_RESOURCES)


def unused_kernel_headers(texts: Mapping[str, str]) -> list[str]:
    """The headers of KERNEL_HEADERS that no other header includes, directly or not.

    Args:
        texts: contents by path below usr/include.
    """
    used = {name for name in texts if not name.startswith(KERNEL_HEADERS)}
    todo = sorted(used)
    while todo:
        name = todo.pop()
        for include in INCLUDE.findall(texts[name]):
            beside = PurePosixPath(name).parent / include
            for found in (include, f"x86_64-linux-gnu/{include}", beside.as_posix()):
                if found in texts and found not in used:
                    used.add(found)
                    todo.append(found)
    return sorted(texts.keys() - used)


def move(source: Path, target: Path) -> None:
    """Move a file, a link's target, or a directory.

    Raises:
        LayoutError: the source does not exist.
    """
    real = source.resolve()
    if not real.exists():
        raise LayoutError(f"{source} is in none of the pinned packages")
    target.parent.mkdir(parents=True, exist_ok=True)
    if real.is_dir() or not source.is_symlink():
        shutil.move(str(real), str(target))
    else:
        # Two names of one file share it.
        try:
            os.link(real, target)
        except OSError:
            shutil.copy2(real, target)


def prune(root: Path, drop: Callable[[str], bool]) -> None:
    """Remove the entries of a directory for which `drop` holds, given their paths below it."""
    for path in sorted(root.iterdir()):
        if drop(path.relative_to(root).as_posix()):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def lay_out_compiler(packages: Path, out: Path) -> None:
    """Programs, libraries, resource headers and ROCm."""
    llvms = sorted((packages / "usr/lib").glob("llvm-*"))
    if len(llvms) != 1:
        raise LayoutError(f"one LLVM is expected in the pinned packages, found {len(llvms)}")
    (llvm,) = llvms
    major = llvm.name.removeprefix("llvm-")
    libraries = tuple(name.format(llvm=major) for name in LIBRARIES)
    for program in PROGRAMS:
        move(llvm / "bin" / program, out / "libexec" / program)
    (out / "bin").mkdir()
    wrappers = {name: wrapper(ALIASES.get(name, name)) for name in (*PROGRAMS, *ALIASES)}
    for name, text in {**wrappers, "hipcc": HIPCC}.items():
        script = out / "bin" / name
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)
    for library in libraries:
        move(packages / LIBRARY_DIR / library, out / "lib" / library)
    others = sorted((packages / LIBRARY_DIR).glob("lib*.so.*"))
    targets = {path.resolve() for path in others if path.is_symlink()}
    for path in others:
        # Under the one name that programs ask for.
        known = path.name.startswith((*libraries, "libLLVM", "libamdhip64"))
        if not known and path not in targets:
            move(path, out / "lib-tools" / path.name)
    resource = llvm / "lib/clang" / major
    move(resource / "include", out / "resource/include")
    prune(out / "resource/include", is_foreign)
    move(resource / "amdgcn/bitcode", out / "rocm/amdgcn/bitcode")
    move(packages / "usr/include/hip", out / "rocm/include/hip")
    # By its version clang decides which of its HIP headers it includes by itself.
    move(packages / "usr/share/hip/version", out / "rocm/share/hip/version")
    move(packages / LIBRARY_DIR / "libamdhip64.so", out / "rocm/lib/libamdhip64.so")


def lay_out_sysroot(packages: Path, out: Path) -> None:
    """Headers and libraries for host code, in the places where clang looks for them."""
    gcc = max(
        (packages / "usr/lib/gcc/x86_64-linux-gnu").iterdir(), key=lambda path: int(path.name)
    )
    below = gcc.relative_to(packages)
    for name in GCC_FILES:
        move(gcc / name, out / below / name)
    for name in SYSROOT_LIBRARIES:
        for place in (LIBRARY_DIR, "lib/x86_64-linux-gnu"):
            if (packages / place / name).exists():
                # libc.so, a linker script, names libc.so.6 in /lib.
                move(packages / place / name, out / place / name)
                break
        else:
            raise LayoutError(f"{name} is in none of the pinned packages of the sysroot")
    move(packages / "lib/x86_64-linux-gnu" / LOADER, out / "lib64" / LOADER)
    headers = out / "usr/include"
    move(packages / "usr/include", headers)
    for foreign in FOREIGN_HEADERS:
        shutil.rmtree(headers / foreign.format(gcc=gcc.name), ignore_errors=True)
    texts = {
        path.relative_to(headers).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in headers.rglob("*")
        if path.is_file()
    }
    for name in unused_kernel_headers(texts):
        (headers / name).unlink()


def main(argv: list[str]) -> int:
    """Lay out the SDK; 1 and a message where a package lacks a file."""
    packages, out = (Path(arg).resolve() for arg in argv)
    try:
        lay_out_compiler(packages / "compiler", out)
        lay_out_sysroot(packages / "sysroot", out / "sysroot")
    except LayoutError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
