"""qola_wheel: a bundle as a Python wheel."""

load(":bundle_tool.bzl", "PACK_ATTRS", "pack_bundle")

def _qola_wheel_impl(ctx):
    # The tool reads package, version and platform from it.
    wheel = ctx.actions.declare_file("{}-{}-py3-none-{}.whl".format(
        ctx.attr.package,
        ctx.attr.version,
        ctx.attr.platform,
    ))
    external = ["--external-library=" + name for name in ctx.attr.external_libraries]
    return pack_bundle(ctx, "wheel", wheel, external, "QolaWheel")

qola_wheel = rule(
    implementation = _qola_wheel_impl,
    attrs = PACK_ATTRS | {
        "external_libraries": attr.string_list(
            doc = "Libraries that are neither in the bundle nor promised by `platform`, and that whoever installs the wheel has: `libamdhip64.so.7` comes with ROCm.",
        ),
        "package": attr.string(
            doc = "Name of the Python package, and of the distribution: small letters, digits and _.",
            mandatory = True,
        ),
        "platform": attr.string(
            default = "linux_x86_64",
            doc = "Platform tag. `linux_x86_64` promises nothing of the system's libraries, `manylinux_2_28_x86_64` a glibc of 2.28 and what goes with it: each program and library of the bundle is compared with that, and one that needs more is an error that names the tag that fits.",
        ),
        "version": attr.string(
            doc = "Version of the distribution, as Python writes it, such as 1.2.3.",
            mandatory = True,
        ),
    },
    doc = """A bundle as a Python wheel, `<package>-<version>-py3-none-<platform>.whl`.

The package has the bundle's files; `python -m <package> --path` prints where
they are. The same bundle gives the same bytes.

Example:
    qola_wheel(
        name = "te_wheel",
        bundle = ":te",
        external_libraries = ["libamdhip64.so.7"],
        package = "qola_te",
        platform = "manylinux_2_28_x86_64",
        version = "0.1.0",
    )
""",
)
