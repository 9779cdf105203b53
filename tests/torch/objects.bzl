"""Objects of single sources, compiled as those of modules are."""

load("@rules_cc//cc:defs.bzl", "CcInfo")
load("@rules_hip//lib:transitions.bzl", "kernel_transition")
load("@rules_hip//rocm:flags.bzl", "SMALL_HOST_CODE")
load("//rules/private:torch_source.bzl", "TORCH_FLAGS", "torch_deps", "torch_source")  # buildifier: disable=bzl-visibility

# The very transition that libraries are built under.

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

def source_with_torch(name, src, precompiled):
    """Declares a source of a torch module for gfx942 and gfx950.

    Args:
      name: target name.
      src: the source.
      precompiled: whether it uses PyTorch's precompiled headers.
    """
    archs = ["gfx942", "gfx950"]
    torch_source(
        name = name,
        src = src,
        archs = archs,
        copts = TORCH_FLAGS + SMALL_HOST_CODE + ["-DTORCH_EXTENSION_NAME=qola_test"],
        sides = ["host"] + archs if precompiled else [],
        tags = ["manual"],
        torch = "@qola_torch",
        visibility = ["//tests/torch:__pkg__"],
        deps = torch_deps("@qola_torch"),
    )
