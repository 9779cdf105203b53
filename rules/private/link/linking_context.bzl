"""How a program links what a bundle has of a manifest."""

load("@rules_cc//cc:defs.bzl", "cc_common")
load("//rules/private:cc_features.bzl", "cc_features")

def linking_context(ctx, **library):
    """Returns the LinkingContext of a library: of one file, named as by create_library_to_link."""
    found = cc_features(ctx)
    return cc_common.create_linking_context(linker_inputs = depset([
        cc_common.create_linker_input(
            owner = ctx.label,
            libraries = depset([cc_common.create_library_to_link(
                actions = ctx.actions,
                cc_toolchain = found.toolchain,
                feature_configuration = found.features,
                **library
            )]),
            # The objects call it, and so do inline functions of the public headers.
            user_link_flags = depset(["-lamdhip64"]),
        ),
    ]))
