"""declare_settings: the flags that users give as --@qola//:<name>."""

load("@bazel_skylib//rules:common_settings.bzl", "bool_flag", "string_flag")
load(":archs.bzl", "archs_flag")

# Each has the name that users know.
# buildifier: disable=unnamed-macro
def declare_settings():
    """Declares the flags in the root package.

    --@qola//:archs=gfx942 restricts every manifest to these of its archs; by
    default each is built for all that it names.

    --@qola//:compress compresses the device code of kernel instances in
    libraries, and of kernels in Triton in packs.

    --@qola//:torch=cpu_check builds modules in mode pybind with a PyTorch that
    has no HIP: they can be imported, and run nothing.
    """
    archs_flag(name = "archs", build_setting_default = [])
    bool_flag(name = "compress", build_setting_default = False)
    string_flag(name = "torch", build_setting_default = "rocm", values = ["cpu_check", "rocm"])
