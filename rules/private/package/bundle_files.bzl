"""bundle_files: what bundles of a manifest hold of the AITER tree, beside libraries and headers."""

load("//rules/private:providers.bzl", "QolaBundleFilesInfo")

def _bundle_files_impl(ctx):
    return [
        DefaultInfo(files = depset(ctx.files.configs + ctx.files.license_files)),
        QolaBundleFilesInfo(
            configs = ctx.files.configs,
            license_files = ctx.files.license_files,
            tree = ctx.file.tree,
        ),
    ]

bundle_files = rule(
    implementation = _bundle_files_impl,
    attrs = {
        "configs": attr.label_list(
            allow_files = True,
            doc = "Tuning data: files below aiter/configs.",
        ),
        "license_files": attr.label_list(
            allow_files = True,
            doc = "License texts of AITER and Composable Kernel.",
        ),
        "tree": attr.label(
            allow_single_file = True,
            doc = "AITER.json of the tree: which one it is, and where.",
            mandatory = True,
        ),
    },
    doc = "Files of an AITER tree that a bundle holds beside libraries and headers.",
    provides = [QolaBundleFilesInfo],
)
