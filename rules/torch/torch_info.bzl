"""torch_info: what a PyTorch is, for rules that run it or name it."""

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
    doc = "What a PyTorch is.",
    provides = [TorchInfo],
)
