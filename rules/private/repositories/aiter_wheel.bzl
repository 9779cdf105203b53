"""aiter_wheel: the AITER source tree out of its wheel, fetched by pip."""

load(":host_python.bzl", "run_qola")
load(":tree_build_file.bzl", "write_tree_build_file")
load(":tree_patches.bzl", "PATCH_ATTRS", "apply_patches", "prepare_patches")

def _aiter_wheel_impl(rctx):
    patches = prepare_patches(rctx)
    run_qola(rctx, "qola.fetch.wheel", {
        "output": "aiter.zip",
        "package": rctx.attr.package,
        "place": rctx.attr.place,
        "sha256": rctx.attr.sha256,
        "version": rctx.attr.version,
    })
    rctx.extract("aiter.zip")
    rctx.delete("aiter.zip")
    write_tree_build_file(rctx, {
        "kind": "wheel",
        "package": rctx.attr.package,
        "patches": apply_patches(rctx, patches).pins,
        "sha256": rctx.attr.sha256,
        "version": rctx.attr.version,
    })
    run_qola(rctx, "qola.fetch.fetched", {"tree": "."})

aiter_wheel = repository_rule(
    implementation = _aiter_wheel_impl,
    attrs = PATCH_ATTRS | {
        "package": attr.string(doc = "Name on the package index.", mandatory = True),
        "sha256": attr.string(doc = "Digest of the wheel file.", mandatory = True),
        "version": attr.string(doc = "Exact version; pre-releases are allowed.", mandatory = True),
    },
    doc = """AITER's sources and generators from its wheel.

The machine's own pip configuration (index, mirrors, certificates) says where
the file comes from; the digest says which file it is, so none of pip's
settings is part of the result.
""",
)
