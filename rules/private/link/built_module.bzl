"""built_module: a linked module with what its users compile against, as qola_library takes it."""

load("@rules_cc//cc:defs.bzl", "CcInfo")
load("//rules/private:providers.bzl", "LazySourcesInfo", "QolaBundleFilesInfo", "QolaLibraryInfo")

def _library_info_impl(ctx):
    library = ctx.file.library
    return [
        DefaultInfo(files = depset([library])),
        OutputGroupInfo(plan = depset([ctx.file.plan])),
        QolaLibraryInfo(
            archs = ctx.attr.archs,
            bundle_files = ctx.attr.bundle_files[QolaBundleFilesInfo],
            file_name = library.basename,
            headers = ctx.attr.headers[CcInfo],
            lazy = ctx.attr.lazy[LazySourcesInfo] if ctx.attr.lazy else None,
            library = library,
            plan = ctx.file.plan,
        ),
    ]

built_module = rule(
    implementation = _library_info_impl,
    attrs = {
        "archs": attr.string_list(
            doc = "Archs the library has code for.",
            mandatory = True,
        ),
        "bundle_files": attr.label(
            doc = "What a bundle of the library holds besides.",
            mandatory = True,
            providers = [QolaBundleFilesInfo],
        ),
        "headers": attr.label(
            doc = "Header target for users of the library.",
            mandatory = True,
            providers = [CcInfo],
        ),
        "lazy": attr.label(
            doc = "The lazy_sources of a lazy library.",
            providers = [LazySourcesInfo],
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
