"""unusable_repository: the repository of a wrong tag in MODULE.bazel."""

def _unusable_repository_impl(rctx):
    # Bazel prints the message of a rule that fails three times, and that of a BUILD file once.
    rctx.file("BUILD.bazel", "MESSAGE = {}\n\nfail(MESSAGE)\n".format(repr(rctx.attr.message)), executable = False)

unusable_repository = repository_rule(
    implementation = _unusable_repository_impl,
    attrs = {"message": attr.string(doc = "The error.", mandatory = True)},
    doc = "Fails when a target of it is requested, so that a wrong tag does not fail the targets of others.",
)
