"""kernel_libraries: each kernel instance of a module as a library of its own, for packs."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("//rules/private:providers.bzl", "KernelLibrariesInfo", "KernelObjectInfo", "LazySourcesInfo")
load("//rules/private/compile:hip_compile.bzl", "compile_hip")
load(":link_flags.bzl", "KERNEL_LINK_FLAGS", "LARGE_CODE", "OLDER_SYSTEMS_NAMES")

def _library(ctx, kernel, arch):
    command = kernel.commands[arch]
    stem = "{}/{}.{}".format(ctx.label.name, kernel.name, arch)
    object = compile_hip(
        ctx,
        command,
        kernel.entry,
        ctx.actions.declare_file(stem + ".pic.o"),
        kernel.name,
        before = [kernel.src],
        includes = [ctx.file._abi_header],
    )
    linked = cc_common.link(
        name = stem,
        actions = ctx.actions,
        cc_toolchain = command.cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(pic_objects = depset([object])),
        feature_configuration = command.feature_configuration,
        link_deps_statically = False,
        linking_contexts = [ctx.attr._older_systems[CcInfo].linking_context],
        output_type = "dynamic_library",
        # No soname: the loader would take two libraries of one name for one.
        additional_inputs = [ctx.file._link_script],
        user_link_flags = KERNEL_LINK_FLAGS + ["-Wl,-T," + ctx.file._link_script.path, "-lamdhip64"],
    )
    return struct(arch = arch, file = linked.library_to_link.dynamic_library, name = kernel.name)

def _kernel_libraries_impl(ctx):
    kernels = [target[KernelObjectInfo] for target in ctx.attr.kernels]
    libraries = [
        _library(ctx, kernel, arch)
        for kernel in kernels
        for arch in kernel.commands
        if arch in ctx.attr.archs
    ]
    return [
        DefaultInfo(files = depset([library.file for library in libraries])),
        KernelLibrariesInfo(
            archs = {arch: None for kernel in kernels for arch in kernel.commands}.keys(),
            index = ctx.attr.sources[LazySourcesInfo].index,
            libraries = libraries,
        ),
    ]

kernel_libraries = rule(
    implementation = _kernel_libraries_impl,
    attrs = {
        "archs": attr.string_list(doc = "Archs to make kernel libraries for.", mandatory = True),
        "kernels": attr.label_list(
            doc = "The hip_object of each kernel instance, each with an entry source.",
            mandatory = True,
            providers = [KernelObjectInfo],
        ),
        "sources": attr.label(doc = "The lazy_sources of the same module.", mandatory = True, providers = [LazySourcesInfo]),
        "_abi_header": attr.label(allow_single_file = True, default = "//cc/runtime:qola_kernel.h"),
        "_link_script": attr.label(allow_single_file = True, default = LARGE_CODE),
        "_older_systems": attr.label(default = OLDER_SYSTEMS_NAMES, providers = [CcInfo]),
    },
    doc = """Kernel instances as kernel libraries (cc/runtime/qola_kernel.h).

Each is compiled alone, where the full library has batches. Building the target
makes all; qola_kernel_pack takes what it wants.
""",
    fragments = ["cpp"],
    provides = [KernelLibrariesInfo],
)
