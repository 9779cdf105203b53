"""for_rocm: a target built as libraries are, under the kernel transition."""

# The very transition that libraries are built under.
load("@rules_hip//lib:transitions.bzl", "kernel_transition")

def _for_rocm_impl(ctx):
    (file,) = ctx.files.target
    link = ctx.actions.declare_file(ctx.label.name + "." + file.extension)
    ctx.actions.symlink(output = link, target_file = file)
    return [DefaultInfo(files = depset([link]), runfiles = ctx.runfiles([link]))]

for_rocm = rule(
    implementation = _for_rocm_impl,
    attrs = {
        "target": attr.label(cfg = kernel_transition, doc = "A target of one file.", mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    doc = "The file of a target, built under the kernel transition.",
)
