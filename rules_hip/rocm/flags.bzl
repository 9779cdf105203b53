"""The compiler flags AITER builds its kernels with, as data.

Source: aiter/jit/core.py and aiter/jit/utils/cpp_extension.py of the AITER
trees qola serves. AITER gates the optional ones on the HIP version and then
probes each; the probe alone decides here, because it asks the compiler that
will run.
"""

# Given to every HIP compile, whoever asks: they decide code generation for a
# shared library and keep the machine out of the object file.
BASE_FLAGS = [
    "-x",
    "hip",
    "-std=c++20",
    "-fPIC",
    "-fno-gpu-rdc",
    "-ffunction-sections",
    "-fdata-sections",
    # A GPU SDK update must not change code through __DATE__, and no path of
    # the machine that compiled may reach the object.
    "-Werror=date-time",
    "-no-canonical-prefixes",
    "-ffile-compilation-dir=.",
]

# Given to assembly, which holds data for the host and is nothing HIP: with
# BASE_FLAGS it would be parsed as C++ once per arch.
ASSEMBLER_FLAGS = [
    "-fPIC",
    "-no-canonical-prefixes",
    "-ffile-compilation-dir=.",
    "-Wa,--fatal-warnings",
    # The compiler's identity is given to it as a define.
    "-Wno-unused-command-line-argument",
]

# The feature "aiter": what AITER's own sources and CK's kernels expect.
AITER_FLAGS = [
    "-O3",
    "-mcmodel=large",
    "-fno-unique-section-names",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-DWITH_HIP",
    "-D__HIP_PLATFORM_AMD__=1",
    "-D__HIP_PLATFORM_HCC__=1",
    "-DUSE_ROCM=1",
    "-DHIPBLAS_V2",
    "-DCUDA_HAS_FP16=1",
    "-DLEGACY_HIPBLAS_DIRECT",
    "-DUSE_PROF_API=1",
    "-U__HIP_NO_HALF_CONVERSIONS__",
    "-U__HIP_NO_HALF_OPERATORS__",
    "-Wno-unused-result",
    "-Wno-switch-bool",
    "-Wno-vla-cxx-extension",
    "-Wno-undefined-func-template",
    "-Wno-macro-redefined",
    "-Wno-missing-template-arg-list-after-template-kw",
]

# Each is offered to the compiler once, when the ROCm repository is fetched,
# and left out where refused. One entry is one option with its arguments.
OPTIONAL_FLAGS = [
    ["--offload-compression-level=19"],
    ["-fgpu-flush-denormals-to-zero"],
    ["-fno-offload-uniform-block"],
    ["-mllvm", "--amdgpu-kernarg-preload-count=16"],
    ["-mllvm", "--lsr-drop-solution=1"],
    ["-mllvm", "-enable-post-misched=0"],
    ["-mllvm", "-amdgpu-early-inline-all=true"],
    ["-mllvm", "-amdgpu-function-calls=false"],
    ["-mllvm", "-amdgpu-coerce-illegal-types=1"],
]

# Together with -amdgpu-early-inline-all=true this takes upstream clang from
# 20 s to over 10 minutes a kernel (measured with clang 22.1.8); AMD's own
# clang is built for the pair.
AMD_CLANG_ONLY = [["-mllvm", "-amdgpu-function-calls=false"]]

# Environment of compiles and compressions: clang 22 otherwise compresses device code in a format that needs the HIP
# runtime of ROCm 7.
BUNDLE_FORMAT = {"COMPRESSED_BUNDLE_FORMAT_VERSION": "2"}

# Host code of kernels launches them and composes names for logs: for size it has a third of the bytes, and a launch
# takes 40 ns more. AITER's -mcmodel=large is for libraries of more than 2 GB, which host code does not reach.
SMALL_HOST_CODE = ["-Xarch_host", "-Oz", "-Xarch_host", "-mcmodel=small"]

# Dispatch and entry points run in each call: with -Oz a call takes 0.2 us more, with -Os a library has 2 % more bytes
# (docs/internals/batches.md#size).
DISPATCH_HOST_CODE = ["-Xarch_host", "-Os", "-Xarch_host", "-mcmodel=small"]

# Given after all others to compiles of kernel instances, and of sources that generators of other modules write.
NO_GLOBALS_AA = [
    # GlobalsAA walks all functions whenever one is deleted, and a batch deletes 40,000 inlined ones. LLVM 16 and
    # later have the option, and gfx942 needs LLVM 17.
    "-Xarch_device",
    "-mllvm=-enable-global-analyses=false",
]

# Defines that depend on the arch a target is compiled for.
ARCH_DEFINES = {
    "gfx950": ["__Float4_e2m1fn_x2"],
}

def llvm_tools(gcc, llvm):
    """Returns the path of each tool that Bazel knows by name: the compiler `gcc`, and those in the directory `llvm`."""
    return {
        "ar": llvm + "/llvm-ar",
        "gcc": gcc,
        "ld": llvm + "/ld.lld",
        "nm": llvm + "/llvm-nm",
        "objcopy": llvm + "/llvm-objcopy",
        "objdump": llvm + "/llvm-objdump",
        "strip": llvm + "/llvm-strip",
    }

# Name of the action that compiles a kernel library on a user's machine. Its
# command line has the flags of a kernel's compile that say nothing of where the
# SDK is.
COMPILE_LATER = "qola-compile-later"

# For the linker: functions of HIP that each library calls through wrappers of //runtime/api:launches.
WRAPPED = [
    "--wrap=hipLaunchHostFunc",
    "--wrap=hipLaunchKernel",
    "--wrap=hipMemcpyAsync",
    "--wrap=hipMemsetAsync",
    "--wrap=hipModuleLaunchKernel",
]
