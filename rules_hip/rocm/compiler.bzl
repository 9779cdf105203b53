"""rocm_compiler: the ROCm C++ toolchain as a dependency, for rules whose own toolchain is another."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")

# `compiler` of the pinned ROCm's toolchain; that of a local ROCm is hipcc.
PINNED_COMPILER = "clang"

RocmCompilerInfo = provider(
    doc = "The compiler of kernels.",
    fields = {"toolchain": "CcToolchainInfo: the ROCm C++ toolchain"},
)

def _rocm_compiler_impl(ctx):
    return [RocmCompilerInfo(toolchain = find_cc_toolchain(ctx))]

rocm_compiler = rule(
    implementation = _rocm_compiler_impl,
    attrs = {
    },
    doc = "The C++ toolchain of the configuration; depend on it under kernel_transition.",
    fragments = ["cpp"],
    provides = [RocmCompilerInfo],
    toolchains = use_cc_toolchain(),
)
