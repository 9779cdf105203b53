"""checked: a qola_library as --@qola//:torch=cpu_check makes it."""

load("//rules:defs.bzl", "QolaLibraryInfo")

_TORCH = str(Label("//:torch"))

def _check_impl(_settings, _attr):
    return {_TORCH: "cpu_check"}

_check = transition(
    implementation = _check_impl,
    inputs = [],
    outputs = [_TORCH],
)

def _checked_impl(ctx):
    info = ctx.attr.library[0][QolaLibraryInfo]
    return [DefaultInfo(files = depset([info.library]), runfiles = ctx.runfiles([info.library]))]

checked = rule(
    implementation = _checked_impl,
    attrs = {
        "library": attr.label(cfg = _check, doc = "A qola_library.", mandatory = True, providers = [QolaLibraryInfo]),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    doc = "A torch module built with a PyTorch that has no HIP.",
)
