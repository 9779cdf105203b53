"""restricted: a qola_library as --@qola//:archs=... makes it, beside the unrestricted one."""

load("//rules:defs.bzl", "QolaLibraryInfo")

_ARCHS = str(Label("//:archs"))

def _restrict_impl(_settings, attr):
    return {_ARCHS: attr.archs}

_restrict = transition(
    implementation = _restrict_impl,
    inputs = [],
    outputs = [_ARCHS],
)

def _restricted_impl(ctx):
    info = ctx.attr.library[0][QolaLibraryInfo]
    library = ctx.actions.declare_file("{}/{}".format(ctx.label.name, info.file_name))
    ctx.actions.symlink(output = library, target_file = info.library)
    return [
        DefaultInfo(files = depset([library]), runfiles = ctx.runfiles([library, info.library])),
        OutputGroupInfo(plan = depset([info.plan])),
    ]

restricted = rule(
    implementation = _restricted_impl,
    attrs = {
        "archs": attr.string_list(doc = "Archs to restrict to.", mandatory = True),
        "library": attr.label(cfg = _restrict, doc = "A qola_library.", mandatory = True, providers = [QolaLibraryInfo]),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    doc = "A library built with the build setting archs.",
)
