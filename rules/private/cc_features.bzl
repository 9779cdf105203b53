"""The C++ toolchain of a rule, with its features configured."""

load("@rules_cc//cc:defs.bzl", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cpp_toolchain")

def cc_features(ctx, requested = [], unsupported = []):
    """Returns struct(toolchain, features): the C++ toolchain, with further features asked for or left out."""
    toolchain = find_cpp_toolchain(ctx)
    return struct(
        features = cc_common.configure_features(
            ctx = ctx,
            cc_toolchain = toolchain,
            requested_features = ctx.features + requested,
            unsupported_features = ctx.disabled_features + unsupported,
        ),
        toolchain = toolchain,
    )
