"""lazy_sources: the index of a lazy library's kernels, and all that compiling one of them later needs."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("//rules/private:cc_features.bzl", "cc_features")
load("//rules/private:providers.bzl", "KernelObjectInfo", "LazySourcesInfo")
load("//rules/rocm:flags.bzl", "ARCH_DEFINES", "COMPILE_LATER")
load(":link_flags.bzl", "KERNEL_LINK_FLAGS", "LARGE_CODE")

def _command(found, action_name):
    variables = cc_common.create_compile_variables(
        cc_toolchain = found.toolchain,
        feature_configuration = found.features,
    )
    return struct(
        argv = cc_common.get_memory_inefficient_command_line(
            action_name = action_name,
            feature_configuration = found.features,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            action_name = action_name,
            feature_configuration = found.features,
            variables = variables,
        ),
        tool = cc_common.get_tool_for_action(action_name = action_name, feature_configuration = found.features),
    )

def _identity(ctx, found):
    # What the compiler says of itself, in the way in which the runtime asks the
    # one it finds.
    output = ctx.actions.declare_file(ctx.label.name + ".identity.txt")
    command = _command(found, ACTION_NAMES.cpp_compile)
    args = ctx.actions.args()
    args.add_all(command.argv)
    args.add_all(["--offload-host-only", "-nogpulib", "-Wno-unused-command-line-argument", "-E", "-P"])
    args.add(ctx.file._identity)
    args.add("-o", output)
    ctx.actions.run(
        arguments = [args],
        env = command.env,
        executable = command.tool,
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset([ctx.file._identity], transitive = [found.toolchain.all_files]),
        mnemonic = "QolaCompilerIdentity",
        outputs = [output],
    )
    return output

def _run(ctx, outputs, inputs, arguments, message, transitive = []):
    ctx.actions.run(
        arguments = arguments,
        executable = ctx.executable._tool,
        inputs = depset(inputs, transitive = transitive),
        mnemonic = "QolaLazySources",
        outputs = outputs,
        progress_message = message,
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )

def _lazy_sources_impl(ctx):
    found = cc_features(ctx, requested = ["aiter"])
    identity = _identity(ctx, found)
    objects = [target[KernelObjectInfo] for target in ctx.attr.kernels]
    entries = {object.entry: None for object in objects if object.entry}.keys()
    headers = depset(transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.headers])
    settings = ctx.actions.declare_file(ctx.label.name + ".settings.json")
    index = ctx.actions.declare_file(ctx.label.name + "/kernels.index")
    table = ctx.actions.declare_file(ctx.label.name + "/table.cpp")
    root = ctx.actions.declare_directory(ctx.label.name + ".root")
    ctx.actions.write(settings, json.encode_indent({
        "abi_header": ctx.file._abi_header.path,
        "arch_flags": {arch: ["-D" + define for define in defines] for arch, defines in ARCH_DEFINES.items()},
        "entries": {file.basename.removesuffix(".cpp"): file.path for file in entries},
        "flags": _command(found, COMPILE_LATER).argv,
        "identity": identity.path,
        "link_flags": KERNEL_LINK_FLAGS,
        "link_script": ctx.file._link_script.path,
        "module": ctx.attr.module,
        "place": ctx.attr.place,
        "plan": ctx.file.plan.path,
        "sources": {"{}/{}".format(object.package, object.name): object.src.path for object in objects},
        "tree": ctx.file.tree.dirname,
    }) + "\n")
    common = [settings, ctx.file.plan, ctx.file._abi_header, ctx.file._link_script] + entries
    _run(
        ctx,
        [index, table],
        common + [identity],
        ["index", "--settings", settings.path, "--index", index.path, "--table", table.path],
        "Indexing %{label}",
        transitive = [headers],
    )
    _run(
        ctx,
        [root],
        common + [index] + [object.src for object in objects],
        ["root", "--settings", settings.path, "--index", index.path, "--output", root.path],
        "Laying out %{label}",
        transitive = [headers],
    )
    return [
        DefaultInfo(files = depset([table])),
        LazySourcesInfo(index = index, place = ctx.attr.place, root = root),
        OutputGroupInfo(index = depset([index]), root = depset([root])),
    ]

lazy_sources = rule(
    implementation = _lazy_sources_impl,
    attrs = {
        "headers": attr.label_list(
            doc = "header_set targets that have, together, all that the kernel instances include.",
            mandatory = True,
            providers = [CcInfo],
        ),
        "kernels": attr.label_list(
            doc = "The hip_object of each kernel instance, each with an entry source.",
            mandatory = True,
            providers = [KernelObjectInfo],
        ),
        "module": attr.string(doc = "The module, such as libmha_fwd.", mandatory = True),
        "place": attr.string(
            doc = "Where the sources are, relative to the directory above the library's.",
            mandatory = True,
        ),
        "plan": attr.label(allow_single_file = [".json"], doc = "plan.json of the manifest.", mandatory = True),
        "tree": attr.label(
            allow_single_file = True,
            doc = "Any file at the root of the AITER tree.",
            mandatory = True,
        ),
        "_abi_header": attr.label(allow_single_file = True, default = "//cc/runtime:qola_kernel.h"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_link_script": attr.label(allow_single_file = True, default = LARGE_CODE),
        "_identity": attr.label(allow_single_file = True, default = "//cc/runtime:identity.hip"),
        "_tool": attr.label(cfg = "exec", default = "//qola/lazy:lazy_sources", executable = True),
    },
    doc = """Index and sources of a lazy library's kernels (docs/guide/lazy.md).

The default output is the library's table, a C++ source. The output group
`index` is kernels.index, `root` the directory of all that a compile reads.
""",
    fragments = ["cpp"],
    provides = [LazySourcesInfo],
    toolchains = use_cc_toolchain(),
)
