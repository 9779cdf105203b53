"""uncompressed_files: files of a target as --@qola//:compress=false builds it."""

_COMPRESS = str(Label("//:compress"))

def _uncompress_impl(_settings, _attr):
    return {_COMPRESS: False}

_uncompress = transition(implementation = _uncompress_impl, inputs = [], outputs = [_COMPRESS])

def _uncompressed_files_impl(ctx):
    files = []
    for source in ctx.files.srcs:
        # Compressed files have the same place among the files of a test.
        file = ctx.actions.declare_file("{}/{}".format(ctx.label.name, source.basename))
        ctx.actions.symlink(output = file, target_file = source)
        files.append(file)
    return [DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files))]

uncompressed_files = rule(
    implementation = _uncompressed_files_impl,
    attrs = {
        "srcs": attr.label_list(cfg = _uncompress, doc = "Targets whose files are wanted.", mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    doc = "The files of other targets, with their device code uncompressed.",
)
