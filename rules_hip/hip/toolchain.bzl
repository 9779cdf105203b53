"""hip_toolchain: the compiler of HIP sources, and the machines that run it."""

load("//lib:transitions.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("//rocm:compiler.bzl", "RocmCompilerInfo")

HIP_TOOLCHAIN_TYPE = Label("//hip:toolchain_type")

def use_hip_toolchain():
    """Returns the value of a rule's `toolchains` with the HIP toolchain, by which Bazel chooses where actions run."""
    return [config_common.toolchain_type(HIP_TOOLCHAIN_TYPE, mandatory = True)]

def _hip_toolchain_impl(ctx):
    return [platform_common.ToolchainInfo(compiler = ctx.attr._compiler[0][RocmCompilerInfo].toolchain)]

hip_toolchain = rule(
    implementation = _hip_toolchain_impl,
    attrs = TRANSITION_ATTRS | {
        "_compiler": attr.label(cfg = kernel_transition, default = "//rocm:compiler", providers = [RocmCompilerInfo]),
    },
    doc = """The compiler of HIP sources: that of --@rules_hip//rocm:toolchain.

A toolchain() of the type @rules_hip//hip:toolchain_type names it, and the platforms of machines that can run the compiler
(`exec_compatible_with`). rules_hip registers one for Linux on x86-64.

Example:
    hip_toolchain(name = "hip")

    toolchain(
        name = "hip_on_my_workers",
        exec_compatible_with = ["@platforms//os:linux", "//platforms:rocm_worker"],
        toolchain = ":hip",
        toolchain_type = "@rules_hip//hip:toolchain_type",
    )
""",
    provides = [platform_common.ToolchainInfo],
)
