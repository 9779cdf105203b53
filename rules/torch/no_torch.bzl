"""no_torch: stands for what a PyTorch lacks, and says so where it is needed."""

load("@rules_cc//cc:defs.bzl", "CcInfo")

def _no_torch_impl(ctx):
    fail("\n" + ctx.attr.message)

no_torch = rule(
    implementation = _no_torch_impl,
    attrs = {"message": attr.string(doc = "What to say.", mandatory = True)},
    doc = "Fails where something depends on it, with its message.",
    provides = [CcInfo],
)
