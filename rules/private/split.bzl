"""The split form of libraries: a host part without device code, and a pack of device code per arch."""

load("@rules_cc//cc:defs.bzl", "cc_shared_library")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_hip//lib:cc.bzl", "KERNEL_TARGET", "llvm_program")
load("@rules_hip//lib:compile.bzl", "HOST_ONLY")
load("@rules_hip//rocm:flags.bzl", "BUNDLE_FORMAT")
load(":compile.bzl", "aiter_cc_library")
load(":settings.bzl", "by_archs")

# Of the files of the split form, below the package.
SPLIT_DIRECTORY = "split/"

# Reserves addresses for device code.
_SCRIPT = Label("//runtime/split:split.ld")

SplitPacksInfo = provider(
    doc = "The device code of a library.",
    fields = {"packs": "dict from an arch to a File, <library>-<arch>.qpack"},
)

def _split_packs_impl(ctx):
    toolchain = find_cc_toolchain(ctx)
    linked = ctx.file.linked
    library = linked.basename.removesuffix(".so")
    packs = {}
    rows = []
    for arch in ctx.attr.archs:
        pack = ctx.actions.declare_file("{}{}-{}.qpack".format(SPLIT_DIRECTORY, library, arch))
        found = ctx.actions.declare_file("{}/{}.json".format(ctx.label.name, arch))
        args = ctx.actions.args()
        args.add("pack")
        args.add("--linked", linked)
        args.add("--arch", arch)
        args.add("--bundler", llvm_program(toolchain, "clang-offload-bundler"))
        args.add("--pack", pack)
        args.add("--rows", found)
        ctx.actions.run(
            arguments = [args],
            env = BUNDLE_FORMAT,
            executable = ctx.executable._tool,
            inputs = depset([linked], transitive = [toolchain.all_files]),
            mnemonic = "QolaSplitPack",
            outputs = [pack, found],
            progress_message = "Packing %{label} for " + arch,
            # The tool finds Python on it; with strict_action_env it is Bazel's own.
            use_default_shell_env = True,
        )
        packs[arch] = pack
        rows.append(found)
    args = ctx.actions.args()
    args.add("table")
    args.add("--library", library)
    args.add("--table", ctx.outputs.table)
    args.add_all(rows)
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._tool,
        inputs = rows,
        mnemonic = "QolaSplitTable",
        outputs = [ctx.outputs.table],
        progress_message = "Writing the table of %{label}",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset(packs.values())), SplitPacksInfo(packs = packs)]

_split_packs = rule(
    implementation = _split_packs_impl,
    attrs = {
        "archs": attr.string_list(mandatory = True),
        "linked": attr.label(allow_single_file = True, doc = "The unsplit library with its symbols.", mandatory = True),
        "table": attr.output(doc = "C++ with the places and digests of all device code.", mandatory = True),
        "_tool": attr.label(cfg = "exec", default = "//qola/split:tool", executable = True),
    },
    doc = "A pack of a library's device code for each arch.",
    fragments = ["cpp"],
    provides = [SplitPacksInfo],
    toolchains = use_cc_toolchain(),
)

def split_form(name, file, archs, link):
    """Declares the host part of a library, and its packs.

    The host part is linked once more from the objects of the library: it has the
    same addresses for device code, but no bytes there.

    Args:
      name: the module; `<name>.shared` is the library with its symbols.
      file: file name of the library.
      archs: sorted archs of the manifest.
      link: attributes of the library's cc_shared_library, except its name.

    Returns:
      The attributes of _linked_module for both.
    """
    _split_packs(
        name = name + ".split_packs",
        archs = by_archs(archs, lambda selected: selected),
        linked = name + ".shared",
        table = name + ".split_table.cpp",
        tags = ["manual"],
        **KERNEL_TARGET
    )
    aiter_cc_library(
        name = name + ".split_table",
        srcs = [name + ".split_table.cpp"],
        copts = HOST_ONLY,
        deps = [Label("//runtime/split")],
    )
    cc_shared_library(
        name = name + ".split.shared",
        shared_lib_name = "{}linked/{}".format(SPLIT_DIRECTORY, file),
        **(KERNEL_TARGET | link | {
            "additional_linker_inputs": link["additional_linker_inputs"] + [_SCRIPT],
            "deps": link["deps"] + [name + ".split_table"],
            "user_link_flags": ["-Wl,-T,$(location {})".format(_SCRIPT)] + link["user_link_flags"],
        })
    )
    return {"split": name + ".split.shared", "split_packs": name + ".split_packs"}
