"""bundle_library: what a program gets from a bundle, and nothing besides."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")

def _bundle_library_impl(ctx):
    bundle = ctx.file.bundle
    linker_input = cc_common.create_linker_input(
        additional_inputs = depset([bundle]),
        owner = ctx.label,
        user_link_flags = depset(["-L{}/lib".format(bundle.path)] + [
            "-l:" + library
            for library in ctx.attr.libraries
        ]),
    )
    return [CcInfo(
        compilation_context = cc_common.create_compilation_context(
            headers = depset([bundle]),
            includes = depset([bundle.path + "/include"]),
        ),
        linking_context = cc_common.create_linking_context(
            linker_inputs = depset([linker_input]),
        ),
    )]

bundle_library = rule(
    implementation = _bundle_library_impl,
    attrs = {
        "bundle": attr.label(
            allow_single_file = True,
            doc = "A qola_bundle.",
            mandatory = True,
        ),
        "libraries": attr.string_list(
            doc = "File names in the bundle's lib/ to link.",
            mandatory = True,
        ),
    },
    doc = "A bundle as a dependency of cc_binary: -I<bundle>/include, -L<bundle>/lib and no other target's headers.",
    provides = [CcInfo],
)
