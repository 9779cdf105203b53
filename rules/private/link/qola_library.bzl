"""qola_library: a module's shared library, built under the kernel transition."""

load("@rules_cc//cc:defs.bzl", "CcInfo")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("//rules/private:kernel_transition.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("//rules/private:providers.bzl", "QolaLibraryInfo")
load(":linking_context.bzl", "LINK_ATTRS", "linking_context")

def _named(ctx, info):
    """The library as a file of this package."""
    name = ("lazy/" if info.lazy else "") + info.file_name
    place = [ctx.bin_dir.path, ctx.label.workspace_root, ctx.label.package, name]
    if "/".join([part for part in place if part]) == info.library.path:
        # In a manifest's repository, under the transition of another qola_library.
        return info.library
    library = ctx.actions.declare_file(name)
    ctx.actions.symlink(output = library, target_file = info.library)
    return library

def _qola_library_impl(ctx):
    # An attribute with an outgoing transition is a list of one.
    info = ctx.attr.library[0][QolaLibraryInfo]
    library = _named(ctx, info)
    runfiles = [library]
    groups = {}
    if info.lazy:
        # Where the library looks for it.
        root = ctx.actions.declare_directory(info.lazy.place)
        ctx.actions.symlink(output = root, target_file = info.lazy.root)
        runfiles.append(root)
        groups = {"index": depset([info.lazy.index]), "root": depset([root])}
    return [
        CcInfo(
            compilation_context = info.headers.compilation_context,
            linking_context = linking_context(ctx, hip = ctx.attr._hip_runtime[CcInfo], dynamic_library = library),
        ),
        DefaultInfo(
            files = depset([library]),
            runfiles = ctx.runfiles(runfiles),
        ),
        OutputGroupInfo(plan = depset([info.plan]), **groups),
        QolaLibraryInfo(
            archs = info.archs,
            bundle_files = info.bundle_files,
            file_name = info.file_name,
            headers = info.headers,
            lazy = info.lazy,
            library = library,
            plan = info.plan,
        ),
    ]

qola_library = rule(
    implementation = _qola_library_impl,
    attrs = TRANSITION_ATTRS | LINK_ATTRS | {
        "library": attr.label(
            cfg = kernel_transition,
            doc = "The module in the manifest's repository: @qola_<manifest>//:<module>, or <module>_lazy.",
            mandatory = True,
            providers = [QolaLibraryInfo],
        ),
    },
    doc = """The shared library of one module of a manifest.

Builds `<namespace>_<module>.so` (of a Python module, `<module>.so`) under the kernel transition: optimised, for
ROCm, untouched by the --copt, --features or -c of the surrounding build. As a
dependency of cc_binary or cc_library it brings the public headers and links
the library dynamically. The output group `plan` is plan.json.

A lazy library, `<module>_lazy`, has the same name and the same functions, in
the directory lazy/; what compiling its kernels takes is among its runfiles, in
share/qola/. The output group `index` is kernels.index (docs/guide/lazy.md).

Example:
    qola_library(
        name = "te_libmha_fwd",
        library = "@qola_te//:libmha_fwd",
    )
    qola_library(
        name = "te_libmha_fwd_lazy",
        library = "@qola_te//:libmha_fwd_lazy",
    )
""",
    fragments = ["cpp"],
    provides = [CcInfo, QolaLibraryInfo],
    toolchains = use_cc_toolchain(),
)
