"""prebuilt_library: a library of a prebuilt bundle, with the bundle's headers."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load(":linking_context.bzl", "linking_context")

def _prebuilt_library_impl(ctx):
    root = "/".join([part for part in [ctx.label.workspace_root, ctx.label.package, ctx.attr.include] if part])
    return [
        CcInfo(
            compilation_context = cc_common.create_compilation_context(
                headers = depset(ctx.files.headers),
                system_includes = depset([root]),
            ),
            # A hit fetches the bundle alone, no ROCm.
            linking_context = linking_context(ctx, dynamic_library = ctx.file.library),
        ),
        DefaultInfo(
            files = depset([ctx.file.library]),
            runfiles = ctx.runfiles([ctx.file.library]),
        ),
    ]

prebuilt_library = rule(
    implementation = _prebuilt_library_impl,
    attrs = {
        "headers": attr.label_list(
            allow_files = True,
            doc = "The bundle's headers.",
        ),
        "include": attr.string(
            doc = "Directory of the headers, relative to the package.",
            mandatory = True,
        ),
        "library": attr.label(
            allow_single_file = [".so"],
            doc = "The shared library.",
            mandatory = True,
        ),
    },
    doc = """A library that was built elsewhere.

As a dependency of cc_binary or cc_library it does what qola_library does:
brings the public headers, and links the library dynamically.
""",
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)
