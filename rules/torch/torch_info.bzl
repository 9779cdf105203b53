"""Targets of @qola_torch: torch_info describes a PyTorch, no_torch fails with the reason why there is none."""

load("@rules_cc//cc:defs.bzl", "CcInfo")

TorchInfo = provider(
    doc = "A PyTorch that modules are built for.",
    fields = {
        "interpreter": "File: a program that runs its Python",
        "python": "string: version of its Python, such as 3.11",
        "version": "string: its version",
    },
)

def _torch_info_impl(ctx):
    return [
        DefaultInfo(files = depset([ctx.file.interpreter])),
        TorchInfo(interpreter = ctx.file.interpreter, python = ctx.attr.python, version = ctx.attr.version),
    ]

torch_info = rule(
    implementation = _torch_info_impl,
    attrs = {
        "interpreter": attr.label(allow_single_file = True, doc = "A program that runs its Python.", mandatory = True),
        "python": attr.string(doc = "Version of its Python, such as 3.11.", mandatory = True),
        "version": attr.string(doc = "Its version.", mandatory = True),
    },
    doc = "Describes a PyTorch.",
    provides = [TorchInfo],
)

def _no_torch_impl(ctx):
    fail("\n" + ctx.attr.message)

no_torch = rule(
    implementation = _no_torch_impl,
    attrs = {"message": attr.string(doc = "The error message.", mandatory = True)},
    doc = "Fails with its message if a target depends on it.",
    provides = [CcInfo],
)
