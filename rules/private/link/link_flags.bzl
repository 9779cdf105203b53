"""How libraries of a module and of single kernels are linked."""

# What systems of manylinux_2_28 lack, brought along: of a library, and of objects that are linked
# elsewhere.
OLDER_SYSTEMS = Label("//cc/older_systems")
OLDER_SYSTEMS_NAMES = Label("//cc/older_systems:names")

# A linker script for -Wl,-T; without it each exception ends the process, as
# the file says.
LARGE_CODE = Label("//rules/private:large_code.ld")

# Of a kernel library, whether Bazel links it or later a user's machine. HIP's
# runtime comes last, and LARGE_CODE by -Wl,-T.
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
