"""Compiler options of the runtime and of programs that share its code."""

# For sources that include HIP's headers.
HIP_COPTS = [
    "-std=c++17",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
    # Half of AITER's flags are for device code.
    "-Wno-unused-command-line-argument",
]

# The toolchain compiles everything as HIP.
COPTS = ["-xc++"] + HIP_COPTS
