"""compiled_objects: objects of single sources of a module, compiled as libraries' are."""

load("@rules_cc//cc:defs.bzl", "CcInfo")

# The very transition that libraries are built under.
load("//rules/private:transitions.bzl", "kernel_transition")  # buildifier: disable=bzl-visibility

def _compiled_objects_impl(ctx):
    objects = [
        object
        for source in ctx.attr.sources
        for linker_input in source[CcInfo].linking_context.linker_inputs.to_list()
        if linker_input.owner == source.label
        for library in linker_input.libraries
        for object in library.pic_objects
    ]
    return [DefaultInfo(files = depset(objects))]

compiled_objects = rule(
    implementation = _compiled_objects_impl,
    attrs = {
        "sources": attr.label_list(
            cfg = kernel_transition,
            doc = "Sources of modules: @qola_mine//:module_norm.norm_kernels.",
            mandatory = True,
            providers = [CcInfo],
        ),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    doc = "Objects of sources.",
)
