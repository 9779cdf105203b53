"""How a program links what a bundle has of a manifest."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("//rules/private:cc_features.bzl", "cc_features")

# Of rules that call linking_context.
LINK_ATTRS = {
    "_hip_runtime": attr.label(default = "@qola_rocm//:hip_runtime", providers = [CcInfo]),
}

def linking_context(ctx, hip = None, **library):
    """Returns the LinkingContext of a library: of one file, named as by create_library_to_link.

    Args:
      ctx: of the rule.
      hip: CcInfo of HIP's runtime, which the library and inline functions of the public headers
        call. None links the machine's libamdhip64, without fetching a ROCm.
      **library: as of create_library_to_link.
    """
    found = cc_features(ctx)
    own = cc_common.create_linking_context(linker_inputs = depset([
        cc_common.create_linker_input(
            owner = ctx.label,
            libraries = depset([cc_common.create_library_to_link(
                actions = ctx.actions,
                cc_toolchain = found.toolchain,
                feature_configuration = found.features,
                **library
            )]),
            user_link_flags = depset([] if hip else ["-lamdhip64"]),
        ),
    ]))
    return cc_common.merge_linking_contexts(linking_contexts = [own] + ([hip.linking_context] if hip else []))
