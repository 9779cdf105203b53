"""qola_kernel_pack: kernels for lazy libraries, compiled by Bazel, as one file."""

load("//rules/private:finding.bzl", "finding")
load("//rules/private:kernel_transition.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("//rules/private:providers.bzl", "KernelLibrariesInfo")

def _wanted(ctx):
    found = {}
    known = {}
    names = {name: None for name in ctx.attr.kernels}
    for target in ctx.attr.modules:
        info = target[KernelLibrariesInfo]
        for library in info.libraries:
            # By its name alone, and for one arch.
            called = [library.name, library.name + ":" + library.arch]
            known.update({name: None for name in called})
            if ctx.attr.archs and library.arch not in ctx.attr.archs:
                continue
            if not names or [name for name in called if name in names]:
                found.setdefault(info.index, []).append(library)
    modules = ", ".join([str(target.label) for target in ctx.attr.modules])
    unknown = [name for name in ctx.attr.kernels if name not in known]
    if unknown:
        fail(finding(
            "ManifestError: no such kernel instance",
            place = "{}: kernels".format(ctx.label),
            found = ", ".join(unknown),
            expected = "kernel instances of " + modules,
            fix = "qola list MANIFEST lists them; qola explain MANIFEST NAME says why one is left out",
        ))
    archs = [arch for target in ctx.attr.modules for arch in target[KernelLibrariesInfo].archs]
    unknown = [arch for arch in ctx.attr.archs if arch not in archs]
    if unknown:
        fail(finding(
            "ManifestError: no such arch",
            place = "{}: archs".format(ctx.label),
            found = ", ".join(unknown),
            expected = "archs of " + modules,
            fix = "add it to [build] architectures of the manifest",
        ))
    return found

def _qola_kernel_pack_impl(ctx):
    pack = ctx.actions.declare_file(ctx.label.name + ".qpack")
    rows = ctx.actions.args()
    rows.set_param_file_format("multiline")
    rows.use_param_file("@%s", use_always = True)
    inputs = []
    for index, libraries in _wanted(ctx).items():
        rows.add(index)
        inputs.append(index)
        for library in libraries:
            rows.add(library.file, format = "{}:{}=%s".format(library.name, library.arch))
            inputs.append(library.file)
    args = ctx.actions.args()
    args.add("pack")
    args.add("--output", pack)
    ctx.actions.run(
        arguments = [args, rows],
        executable = ctx.file._tool,
        inputs = inputs,
        mnemonic = "QolaPack",
        outputs = [pack],
        progress_message = "Packing %{label}",
    )
    return [DefaultInfo(files = depset([pack]), runfiles = ctx.runfiles([pack]))]

qola_kernel_pack = rule(
    implementation = _qola_kernel_pack_impl,
    attrs = TRANSITION_ATTRS | {
        "archs": attr.string_list(
            doc = "Archs to pack kernels for, such as those of one sort of machine; empty: all of the modules.",
        ),
        "kernels": attr.string_list(
            doc = "Names of the kernel instances to pack, for all archs, or <name>:<arch>; empty: all of the modules.",
        ),
        "modules": attr.label_list(
            allow_empty = False,
            cfg = kernel_transition,
            doc = "Modules in a manifest's repository: @qola_<manifest>//:<module>_kernels.",
            mandatory = True,
            providers = [KernelLibrariesInfo],
        ),
        "_tool": attr.label(
            allow_single_file = True,
            cfg = kernel_transition,
            default = "//cc/kernels_tool:qola-kernels",
        ),
    },
    doc = """Kernels for lazy libraries, `<name>.qpack`.

A kernel in a pack is compiled as one in a library is, from the same cache
entries of device code. Lazy libraries find packs by QOLA_PACKS, or in the
directory share/qola/<namespace>/packs of their bundle (docs/guide/lazy.md). The same
kernels give the same bytes.

Example:
    qola_kernel_pack(
        name = "te_pack",
        modules = [
            "@qola_te//:libmha_bwd_kernels",
            "@qola_te//:libmha_fwd_kernels",
        ],
    )
""",
)
