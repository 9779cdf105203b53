"""The module extension that declares @qola_rocm_sdk."""

load("@qola//rules/rocm:repositories.bzl", "rocm_sdk_repository")

def _sdk_impl(mctx):
    (mirrors,) = [tag.file for module in mctx.modules for tag in module.tags.mirrors]
    rocm_sdk_repository(name = "qola_rocm_sdk", mirrors = mirrors)
    return mctx.extension_metadata(reproducible = True)

_mirrors = tag_class(
    attrs = {
        "file": attr.label(doc = "mirrors.json of @qola_rocm, which has the mirrors that qola.rocm names.", mandatory = True),
    },
    doc = "Mirrors to try first for the SDK's packages. Only qola's own MODULE.bazel has this tag.",
)

sdk = module_extension(
    implementation = _sdk_impl,
    doc = "Declares @qola_rocm_sdk, the pinned compiler. Only qola uses it, once in a build.",
    tag_classes = {"mirrors": _mirrors},
)
