"""The tool that makes bundles, and what rules that pack one have in common."""

BUNDLE_TOOL_ATTRS = {
    "_tool": attr.label(cfg = "exec", default = "//qola/bundle:tool", executable = True),
}

PACK_ATTRS = BUNDLE_TOOL_ATTRS | {
    "bundle": attr.label(
        allow_single_file = True,
        doc = "A qola_bundle: the directory, not the tar file.",
        mandatory = True,
    ),
}

def pack_bundle(ctx, command, output, options, mnemonic):
    """Packs the directory of a bundle into one file.

    Args:
      ctx: context of a rule with PACK_ATTRS.
      command: the tool's.
      output: File to write.
      options: of the command, besides directory and output.
      mnemonic: of the action.

    Returns:
      The providers of the rule.
    """
    args = ctx.actions.args()
    args.add(command)
    args.add_all("--directory", [ctx.file.bundle], expand_directories = False)
    args.add("--output", output)
    args.add_all(options)
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._tool,
        inputs = [ctx.file.bundle],
        mnemonic = mnemonic,
        outputs = [output],
        progress_message = "Packing %{label}",
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([output]), runfiles = ctx.runfiles([output]))]
