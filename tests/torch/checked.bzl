"""checked: parts of torch modules as --@qola//:torch=cpu_check makes it."""

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
    files = []
    for target in ctx.attr.targets:
        if QolaLibraryInfo in target:
            # The file itself: two targets may link to it.
            info = target[QolaLibraryInfo]
            files += [info.library] + ([info.names] if info.names else [])
        else:
            files += target.files.to_list()
    return [DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files))]

checked = rule(
    implementation = _checked_impl,
    attrs = {
        "targets": attr.label_list(cfg = _check, doc = "Libraries, wheels or objects.", mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    doc = "Parts of torch modules as a PyTorch that has no HIP builds them.",
)
