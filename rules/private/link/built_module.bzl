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
        "archs": attr.string_list(mandatory = True),
        "bundle_files": attr.label(mandatory = True, providers = [QolaBundleFilesInfo]),
        "headers": attr.label(mandatory = True, providers = [CcInfo]),
        "lazy": attr.label(providers = [LazySourcesInfo]),
        "library": attr.label(allow_single_file = True, mandatory = True),
        "plan": attr.label(allow_single_file = [".json"], mandatory = True),
    },
    doc = "Carries a module's shared library and headers to qola_library; attributes as the fields of QolaLibraryInfo.",
    provides = [QolaLibraryInfo],
)
