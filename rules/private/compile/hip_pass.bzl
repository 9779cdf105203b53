"""hip_pass: one pass of a HIP compile, for the host or for one arch, with its precompiled header."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("//rules/private:cc_features.bzl", "cc_features")
load("//rules/rocm:flags.bzl", "ARCH_DEFINES", "OFFLOAD_BUNDLE")

HipPassInfo = provider(
    doc = "How sources are compiled in one pass; every source that uses the pass shares these objects.",
    fields = {
        "argv": "list: arguments of the compiler for every source.",
        "arch": "the arch of a device pass, empty for the host pass.",
        "bundler": "path of clang-offload-bundler.",
        "compiler": "path of the compiler.",
        "cc_toolchain": "the C++ toolchain of the pass.",
        "env": "dict: environment of the actions.",
        "feature_configuration": "its features for the pass.",
        "inputs": "depset of File: what a compile reads besides the source: headers, the precompiled one, and the one this is based on.",
        "pch": "File, the precompiled header; None without one.",
        "warm": "whether the precompiled header has templates, which a compile then needs no memory for.",
        "tools": "depset of File: the compiler, as far as it is among the inputs.",
    },
)

# Absolute paths in a precompiled header begin with the working directory. By
# this name of it they are the same, and lead to the same files, on every
# machine; Bazel gives its own C++ compiles the same.
_PWD = "/proc/self/cwd"

# So that Bazel runs no more compiles at a time than fit into memory: measured
# peaks (docs/internals/split-compilation.md), in MB.
_PCH_MEMORY = 1450

def _pch_resources(_os, _inputs):
    return {"cpu": 1, "memory": _PCH_MEMORY}

def _pass_flags(arch, archs, split):
    common = [
        # Some flags of a whole compile are for its other pass.
        "-Wno-unused-command-line-argument",
        # __FILE__ in a precompiled header.
        "-fmacro-prefix-map={}/=".format(_PWD),
    ]
    if arch:
        return ["--offload-arch=" + arch, "--cuda-device-only", "--no-gpu-bundle-output"] + common
    return ["--offload-arch=" + arch for arch in archs] + (["--cuda-host-only"] if split else []) + common

def _overlay(ctx):
    # One command for both passes has no precompiled header, and reads the tree's own headers.
    return ctx.files.overlay if ctx.attr._split[BuildSettingInfo].value else []

def _overlay_dirs(ctx):
    # Searched before the tree's directories.
    suffix = "/overlay/"
    return {file.path[:file.path.index(suffix) + len(suffix) - 1]: None for file in _overlay(ctx)}.keys()

def _argv(ctx, toolchain, features, context):
    archs = [ctx.attr.arch] if ctx.attr.arch else ctx.attr.archs
    defines = {d: None for arch in archs for d in ARCH_DEFINES.get(arch, [])}
    variables = cc_common.create_compile_variables(
        cc_toolchain = toolchain,
        feature_configuration = features,
        include_directories = context.includes,
        preprocessor_defines = depset(defines.keys()),
        system_include_directories = depset(_overlay_dirs(ctx), transitive = [context.system_includes], order = "preorder"),
        use_pic = True,
        user_compile_flags = _pass_flags(ctx.attr.arch, ctx.attr.archs, ctx.attr._split[BuildSettingInfo].value) + ctx.attr.copts,
    )
    return struct(
        env = cc_common.get_environment_variables(
            action_name = ACTION_NAMES.cpp_compile,
            feature_configuration = features,
            variables = variables,
        ) | {"PWD": _PWD},
        flags = cc_common.get_memory_inefficient_command_line(
            action_name = ACTION_NAMES.cpp_compile,
            feature_configuration = features,
            variables = variables,
        ),
    )

def include_pch(args, pch):
    """Adds the flags by which a compile reads a precompiled header.

    Args:
      args: Args of the compile.
      pch: File, or None for a compile without one.
    """
    if pch:
        args.add_all(["-Xclang", "-include-pch", "-Xclang", pch])

def _precompile(ctx, compiler, argv, env, base, inputs):
    pch = ctx.actions.declare_file(ctx.label.name + ".pch")
    args = ctx.actions.args()
    args.add_all(argv)
    include_pch(args, base)

    # -S: the driver's one step that makes one file, whose place the header takes.
    args.add_all(["-S", "-Xclang", "-emit-pch", "-Xclang", "-fno-pch-timestamp"])
    if ctx.attr.warm:
        args.add("-fpch-instantiate-templates")
    args.add(ctx.file.header)
    args.add("-o", pch)
    ctx.actions.run(
        arguments = [args],
        env = env,
        executable = compiler,
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset([ctx.file.header], transitive = inputs),
        mnemonic = "QolaPch",
        outputs = [pch],
        progress_message = "Precompiling %{{label}} for {}".format(ctx.attr.arch or "the host"),
        resource_set = _pch_resources,
    )
    return pch

def _hip_pass_impl(ctx):
    if bool(ctx.attr.arch) == bool(ctx.attr.archs):
        fail("{}: a pass is either for one `arch` or for the host of several `archs`".format(ctx.label))
    found = cc_features(ctx, requested = ["aiter"])
    toolchain, features = found.toolchain, found.features
    context = cc_common.merge_compilation_contexts(
        compilation_contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps],
    )
    compiler = cc_common.get_tool_for_action(action_name = ACTION_NAMES.cpp_compile, feature_configuration = features)
    command = _argv(ctx, toolchain, features, context)
    base = ctx.attr.base[HipPassInfo] if ctx.attr.base else None
    if base and base.arch != ctx.attr.arch:
        fail("{}: its base {} is not a pass for {}".format(ctx.label, ctx.attr.base.label, ctx.attr.arch))
    headers = depset(_overlay(ctx), transitive = [context.headers] + ([base.inputs] if base else []))
    pch = None
    if ctx.file.header and (ctx.attr.arch or ctx.attr._split[BuildSettingInfo].value):
        pch = _precompile(ctx, compiler, command.flags, command.env, base.pch if base else None, [headers, toolchain.all_files])

    return [
        DefaultInfo(files = depset([pch] if pch else [])),
        HipPassInfo(
            arch = ctx.attr.arch,
            argv = command.flags,
            cc_toolchain = toolchain,
            feature_configuration = features,
            bundler = cc_common.get_tool_for_action(action_name = OFFLOAD_BUNDLE, feature_configuration = features),
            compiler = compiler,
            env = command.env,
            # Also with a precompiled header: the compiler looks at its files.
            inputs = depset([ctx.file.header, pch] if pch else [], transitive = [headers]),
            pch = pch,
            tools = toolchain.all_files,
            warm = bool(pch) and ctx.attr.warm,
        ),
    ]

hip_pass = rule(
    implementation = _hip_pass_impl,
    attrs = {
        "arch": attr.string(doc = "The arch of a device pass."),
        "archs": attr.string_list(doc = "For the host pass: the archs that sources are compiled for."),
        "base": attr.label(
            doc = "The hip_pass of the same arch whose precompiled header `header` is compiled upon: what that has is neither compiled nor stored again.",
            providers = [HipPassInfo],
        ),
        "copts": attr.string_list(doc = "Compiler flags of the sources."),
        "deps": attr.label_list(doc = "header_set targets.", providers = [CcInfo]),
        "header": attr.label(allow_single_file = True, doc = "The header to precompile; without one, every source reads its headers."),
        "overlay": attr.label_list(allow_files = True, doc = "Headers below a directory overlay/, read in place of those of `deps`."),
        "warm": attr.bool(doc = "Also keep the templates that `header` instantiates."),
        "_split": attr.label(default = "//:split_compile"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    doc = """One pass of the compile of HIP sources: for the host, or for one arch.

The flags of a pass and its precompiled header belong together, so they are one
target, and the sources of a package share it.
""",
    fragments = ["cpp"],
    provides = [HipPassInfo],
    toolchains = use_cc_toolchain(),
)
