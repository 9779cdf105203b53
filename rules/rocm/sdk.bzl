"""rocm_sdk: the targets of @qola_rocm_sdk, for each action just what it reads."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load(":flags.bzl", "llvm_tools")
load(":toolchain.bzl", "rocm_cc_toolchain")

_GCC = "sdk/sysroot/usr/lib/gcc/x86_64-linux-gnu"

def _program(name, real):
    return ["sdk/bin/" + name, "sdk/libexec/" + real]

def rocm_sdk(name, optional_flags):
    """Declares the SDK's file groups and its cc_toolchain.

    The groups name files: directories would be fewer inputs, but Bazel warns of
    each in each action, unless a consumer starts its server with a flag.

    Args:
      name: name of the cc_toolchain. NAME_compiler, NAME_linker and NAME_tools
        are the groups, NAME_hip_headers is a library of HIP's headers for C++
        that is not HIP.
      optional_flags: the flags of OPTIONAL_FLAGS that this compiler accepts, flat.
    """
    libraries = native.glob(["sdk/lib/*"])
    native.filegroup(
        name = name + "_compiler",
        srcs = _program("clang++", "clang") +
               _program("lld", "lld") +
               _program("clang-offload-bundler", "clang-offload-bundler") +
               # The bundler calls it.
               _program("llvm-objcopy", "llvm-objcopy") +
               libraries +
               native.glob([
                   "sdk/resource/**",
                   "sdk/rocm/amdgcn/**",
                   "sdk/rocm/include/**",
                   "sdk/rocm/share/**",
                   "sdk/sysroot/usr/include/**",
                   # By this file clang knows a directory for GCC's.
                   _GCC + "/*/crtbegin.o",
               ]),
    )
    native.filegroup(
        name = name + "_linker",
        srcs = _program("clang++", "clang") +
               _program("ld.lld", "lld") +
               libraries +
               native.glob(
                   ["sdk/rocm/lib/**", "sdk/sysroot/**"],
                   exclude = ["sdk/sysroot/usr/include/**"],
               ),
    )
    native.filegroup(
        name = name + "_tools",
        srcs = native.glob(["sdk/bin/llvm-*", "sdk/lib-tools/*", "sdk/libexec/llvm-*"]) + libraries,
    )
    cc_library(
        name = name + "_hip_headers",
        hdrs = native.glob(["sdk/rocm/include/**"]),
        includes = ["sdk/rocm/include"],
    )
    rocm_cc_toolchain(
        name = name,
        compiler_files = name + "_compiler",
        linker_files = name + "_linker",
        optional_flags = optional_flags,
        sdk = True,
        tool_files = name + "_tools",
        tools = llvm_tools("sdk/bin/clang++", "sdk/bin"),
    )
