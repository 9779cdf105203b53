"""library_info: names a linked module and what its users compile against."""

load("@rules_cc//cc:defs.bzl", "CcInfo")
load(":providers.bzl", "QolaLibraryInfo")

def _library_info_impl(ctx):
    library = ctx.file.library
    return [
        DefaultInfo(files = depset([library])),
        OutputGroupInfo(plan = depset([ctx.file.plan])),
        QolaLibraryInfo(
            archs = ctx.attr.archs,
            file_name = library.basename,
            headers = ctx.attr.headers[CcInfo],
            library = library,
            plan = ctx.file.plan,
        ),
    ]

library_info = rule(
    implementation = _library_info_impl,
    attrs = {
        "archs": attr.string_list(
            doc = "Archs the library has code for.",
            mandatory = True,
        ),
        "headers": attr.label(
            doc = "Header target for users of the library.",
            mandatory = True,
            providers = [CcInfo],
        ),
        "library": attr.label(
            allow_single_file = True,
            doc = "The cc_shared_library.",
            mandatory = True,
        ),
        "plan": attr.label(
            allow_single_file = [".json"],
            doc = "plan.json of the manifest.",
            mandatory = True,
        ),
    },
    doc = "Carries a module's shared library and headers to qola_library.",
    provides = [QolaLibraryInfo],
)
