"""qola_triton_library: compiled kernels in Triton, with the functions that find and launch them."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_shared_library")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_hip//lib:cc.bzl", "KERNEL_TARGET")
load("@rules_hip//lib:compile.bzl", "HOST_ONLY")
load("@rules_hip//lib:finding.bzl", "finding")
load("@rules_hip//lib:transitions.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("//rules/private:code_objects.bzl", "COMPRESS_ATTRS", "compress_code_objects")
load("//rules/private:link.bzl", "LARGE_CODE", "OLDER_SYSTEMS")
load("//rules/private:providers.bzl", "QolaBundleFilesInfo", "TritonLibraryInfo")
load(":triton_kernel.bzl", "QolaTritonInfo")

_KERNELS = attr.label_list(
    allow_empty = False,
    mandatory = True,
    providers = [QolaTritonInfo],
)
_TOOL = attr.label(cfg = "exec", default = "//qola/triton:library_tool", executable = True)

_PacksInfo = provider(
    doc = "Packs of kernels.",
    fields = {
        "packed": "dict from a code object's name to its compressed File, empty without compression",
        "packs": "dict from an arch to a File",
    },
)

def _compiled(ctx):
    found = []
    for target in ctx.attr.kernels:
        found += target[QolaTritonInfo].compiled.to_list()
    names = {}
    for one in found:
        if one.name in names:
            fail(finding(
                "ManifestError: one name for two kernels",
                place = "{}: kernels".format(ctx.label),
                found = one.name,
                expected = "every kernel once",
                fix = "give one of the targets another name",
            ))
        names[one.name] = None
    return found

def _run(ctx, compiled, arguments, output, mnemonic, message, more = [], packed = {}):
    packed = [packed[one.name] for one in compiled if one.name in packed]
    args = ctx.actions.args()
    args.use_param_file("@%s")
    args.set_param_file_format("multiline")
    args.add_all(arguments)
    for one in compiled:
        args.add("--kernel")
        args.add(one.code, format = one.kernel + "=%s")
    args.add_all(packed, before_each = "--packed")
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._tool,
        inputs = [one.code for one in compiled] + [one.metadata for one in compiled] + more + packed,
        mnemonic = mnemonic,
        outputs = [output],
        progress_message = message,
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )

def _triton_table_impl(ctx):
    words = ["--table", ctx.outputs.out, "--library", ctx.attr.library, "--namespace=" + ctx.attr.namespace]
    tuning = ctx.files.tuning
    words += ["--tuning", tuning[0]] if tuning else []
    packed = ctx.attr.packs[_PacksInfo].packed
    _run(ctx, _compiled(ctx), words, ctx.outputs.out, "QolaTritonTable", "Writing the table of %{label}", tuning, packed)
    prefix = "qola_{}_triton_".format(ctx.attr.namespace) if ctx.attr.namespace else "qola_triton_"
    ctx.actions.write(ctx.outputs.exports, "{{\n  global:\n    {}*;\n  local:\n    *;\n}};\n".format(prefix))

_triton_table = rule(
    implementation = _triton_table_impl,
    attrs = {
        "exports": attr.output(mandatory = True),
        "kernels": _KERNELS,
        "library": attr.string(mandatory = True),
        "namespace": attr.string(),
        "out": attr.output(mandatory = True),
        "packs": attr.label(mandatory = True, providers = [_PacksInfo]),
        "tuning": attr.label(allow_single_file = [".json"]),
        "_tool": _TOOL,
    },
    doc = "Writes the C++ of a library's table, and the list of its exports.",
)

def _triton_packs_impl(ctx):
    compiled = _compiled(ctx)
    files = {one.name: (one.code, one.arch) for one in compiled}
    compressed = compress_code_objects(ctx, find_cc_toolchain(ctx), files, "QolaTritonCompress")
    packs = {}
    for arch in sorted({one.arch: None for one in compiled}):
        pack = ctx.actions.declare_file("{}/{}-{}.qpack".format(ctx.label.name, ctx.attr.library, arch))
        some = [one for one in compiled if one.arch == arch]
        message = "Packing %{label} for " + arch
        _run(ctx, some, ["--pack", pack], pack, "QolaTritonPack", message, packed = compressed)
        packs[arch] = pack
    return [DefaultInfo(files = depset(packs.values())), _PacksInfo(packed = compressed, packs = packs)]

_triton_packs = rule(
    implementation = _triton_packs_impl,
    attrs = COMPRESS_ATTRS | {
        "kernels": _KERNELS,
        "library": attr.string(mandatory = True),
        "_tool": _TOOL,
    },
    doc = "A pack of kernels for each arch.",
    fragments = ["cpp"],
    toolchains = use_cc_toolchain(),
)

def _triton_files_impl(ctx):
    def named(source):
        # The library searches packs in its own directory.
        file = ctx.actions.declare_file("{}/{}".format(ctx.label.name, source.basename))
        ctx.actions.symlink(output = file, target_file = source)
        return file

    library = named(ctx.file.shared)
    packs = {arch: named(pack) for arch, pack in ctx.attr.packs[0][_PacksInfo].packs.items()}
    files = [library] + packs.values()
    return [
        DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files)),
        OutputGroupInfo(library = depset([library]), packs = depset(packs.values())),
        TritonLibraryInfo(
            archs = packs.keys(),
            bundle_files = ctx.attr.bundle_files[QolaBundleFilesInfo] if ctx.attr.bundle_files else None,
            headers = {file.basename: file for file in ctx.files.headers},
            library = library,
            packs = packs,
            plan = ctx.file.plan,
        ),
    ]

_triton_files = rule(
    implementation = _triton_files_impl,
    attrs = TRANSITION_ATTRS | {
        "bundle_files": attr.label(providers = [QolaBundleFilesInfo]),
        "headers": attr.label_list(allow_files = [".h"], mandatory = True),
        "packs": attr.label(cfg = kernel_transition, mandatory = True, providers = [_PacksInfo]),
        "plan": attr.label(allow_single_file = [".json"]),
        "shared": attr.label(allow_single_file = True, cfg = kernel_transition, mandatory = True),
    },
    doc = "A library and its packs, in one directory.",
    provides = [TritonLibraryInfo],
)

def qola_triton_library(name, kernels, namespace = "", tuning = None, manifest = None, tags = [], **kwargs):
    """Kernels in Triton as a shared library: its functions find, load and launch them.

    Makes `<name>/<namespace>_triton.so` (`qola_triton.so` without a namespace),
    and `<namespace>_triton-<arch>.qpack` for each arch in the same directory,
    where the library searches them at a launch: a machine needs only the packs
    of its own archs. The C functions are those of runtime/triton/qola_triton.h
    (docs/guide/triton.md). The library is compiled by the pinned ROCm, for its
    headers; it needs HIP's runtime. It does not depend on the packs: the output
    groups `library` and `packs` build one of them. Unless
    --@qola//:compress=false is set, code objects in packs are compressed. The library contains the digest of each
    code object in its packs, and loads no others.

    If several kernels serve a problem, the library takes the first: in the order
    of `tuning`, then of `kernels`, and of each kernel's values.

    Example:
        qola_triton_library(
            name = "mine",
            kernels = ["@qola_mine//:attention_forward"],
            namespace = "mine",
        )

    Args:
      name: target name.
      kernels: labels of qola_triton_kernel targets.
      namespace: prefix of the names of files and functions.
      tuning: label of a JSON file with a list of objects, the kernels to prefer:
        `kernel`, `arch` and choices, such as
        `[{"kernel": "attention_forward", "arch": "gfx942", "HDIM": 64, "BLOCK_M": 128}]`.
      manifest: in a manifest's repository, its labels by name: `plan`,
        `bundle_files` and `config`, qola_config.h. With them the library can be in
        a qola_bundle.
      tags: tags of all targets.
      **kwargs: further common attributes, such as visibility.
    """
    library = "{}_triton".format(namespace or "qola")
    private = dict(tags = tags + ["manual"], visibility = ["//visibility:private"])
    _triton_table(
        name = name + ".table",
        exports = name + ".exports",
        kernels = kernels,
        library = library,
        namespace = namespace,
        out = name + ".table.cpp",
        packs = name + ".packs",
        tuning = tuning,
        **private
    )
    cc_library(
        name = name + ".functions",
        srcs = [name + ".table.cpp"],
        # Nothing refers to them from inside.
        alwayslink = True,
        copts = HOST_ONLY + ["-std=c++17", "-fvisibility=hidden"],
        features = ["aiter"],
        linkstatic = True,
        deps = [Label("//runtime/triton")],
        **(KERNEL_TARGET | private)
    )
    cc_shared_library(
        name = name + ".shared",
        additional_linker_inputs = [name + ".exports", LARGE_CODE],
        deps = [name + ".functions", OLDER_SYSTEMS],
        features = ["-static_libgcc"],
        shared_lib_name = "{}.lib/{}.so".format(name, library),
        user_link_flags = [
            "-Wl,--version-script=$(location {}.exports)".format(name),
            "-Wl,-T,$(location {})".format(LARGE_CODE),
            "-Wl,-soname,{}.so".format(library),
            "-Wl,--strip-all",
            "-lamdhip64",
        ],
        **(KERNEL_TARGET | private)
    )
    _triton_packs(name = name + ".packs", kernels = kernels, library = library, **private)
    manifest = manifest or {}
    _triton_files(
        name = name,
        bundle_files = manifest.get("bundle_files"),
        headers = [Label("//runtime/triton:qola_triton.h")] + ([manifest["config"]] if manifest else []),
        packs = name + ".packs",
        plan = manifest.get("plan"),
        shared = name + ".shared",
        tags = tags,
        **kwargs
    )
