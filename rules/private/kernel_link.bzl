"""How a kernel library is linked, by Bazel and later on a user's machine."""

load(":large_code.bzl", "LARGE_CODE")

# HIP's runtime comes last, and LINK_SCRIPT by -Wl,-T.
KERNEL_LINK_FLAGS = [
    "-shared",
    # The driver's own choice of HIP's runtime differs between hipcc and clang++.
    "-no-hip-rt",
    "-fuse-ld=lld",
    "-Wl,--gc-sections",
    "-Wl,-z,defs",
    # Of the kernels of another AITER in the process, none takes the place of
    # this library's own.
    "-Wl,-Bsymbolic",
]

# Without it each exception in a kernel library would end the process.
LINK_SCRIPT = LARGE_CODE
