"""qola_wheel: a bundle as a Python wheel."""

def _qola_wheel_impl(ctx):
    # The tool reads package and version from it.
    wheel = ctx.actions.declare_file("{}-{}-py3-none-linux_x86_64.whl".format(ctx.attr.package, ctx.attr.version))
    args = ctx.actions.args()
    args.add("wheel")
    args.add_all("--directory", [ctx.file.bundle], expand_directories = False)
    args.add("--output", wheel)
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._tool,
        inputs = [ctx.file.bundle],
        mnemonic = "QolaWheel",
        outputs = [wheel],
        progress_message = "Packing %{label}",
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([wheel]), runfiles = ctx.runfiles([wheel]))]

qola_wheel = rule(
    implementation = _qola_wheel_impl,
    attrs = {
        "bundle": attr.label(
            allow_single_file = True,
            doc = "A qola_bundle: the directory, not the tar file.",
            mandatory = True,
        ),
        "package": attr.string(
            doc = "Name of the Python package, and of the distribution: small letters, digits and _.",
            mandatory = True,
        ),
        "version": attr.string(
            doc = "Version of the distribution, as Python writes it, such as 1.2.3.",
            mandatory = True,
        ),
        "_tool": attr.label(cfg = "exec", default = "//qola/bundle", executable = True),
    },
    doc = """A bundle as a Python wheel, `<package>-<version>-py3-none-linux_x86_64.whl`.

The package has the bundle's files; `python -m <package> --path` prints where
they are. The same bundle gives the same bytes.

Example:
    qola_wheel(
        name = "te_lazy_wheel",
        bundle = ":te_lazy",
        package = "qola_te",
        version = "0.1.0",
    )
""",
)
