"""How a program links the shared library of a module."""

load("@rules_cc//cc:defs.bzl", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cpp_toolchain")

def linking_context(ctx, library):
    """How users of a shared library of a bundle link it.

    Args:
      ctx: the rule context, of a rule with a C++ toolchain.
      library: File: the shared library.

    Returns:
      A LinkingContext.
    """
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    return cc_common.create_linking_context(linker_inputs = depset([
        cc_common.create_linker_input(
            owner = ctx.label,
            libraries = depset([cc_common.create_library_to_link(
                actions = ctx.actions,
                cc_toolchain = toolchain,
                dynamic_library = library,
                feature_configuration = features,
            )]),
            # The public headers have inline functions that call HIP.
            user_link_flags = depset(["-lamdhip64"]),
        ),
    ]))
