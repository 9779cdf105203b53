"""declare_settings: the flags that users give as --@qola//:<name>."""

load("@bazel_skylib//rules:common_settings.bzl", "bool_flag")
load(":archs.bzl", "archs_flag")

# Each has the name that users know.
# buildifier: disable=unnamed-macro
def declare_settings():
    """Declares the flags in the root package.

    --@qola//:archs=gfx942 restricts every manifest to these of its archs; by
    default each is built for all that it names.

    --@qola//:compress compresses the device code of kernel instances in
    libraries.
    """
    archs_flag(name = "archs", build_setting_default = [])
    bool_flag(name = "compress", build_setting_default = False)
