"""How the runtime and what shares its code are compiled."""

# As HIP: for what includes HIP's headers.
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
