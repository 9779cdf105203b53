"""hip_command: how the kernel instances of a package are compiled for some archs."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("//rules/private:cc_features.bzl", "cc_features")
load("//rules/rocm:flags.bzl", "ARCH_DEFINES")

HipCommandInfo = provider(
    doc = "How sources are compiled; every source that uses the command shares these objects.",
    fields = {
        "argv": "list: arguments of the compiler for every source.",
        "archs": "list of strings: the archs that sources are compiled for.",
        "cc_toolchain": "the C++ toolchain.",
        "compiler": "path of the compiler.",
        "env": "dict: environment of the actions.",
        "feature_configuration": "features of the toolchain.",
        "inputs": "depset of File: the headers.",
        "tools": "depset of File: the compiler, as far as it is among the inputs.",
    },
)

# Paths that the compiler makes absolute begin with the working directory. By
# this name of it they are the same on every machine; Bazel gives its own C++
# compiles the same.
_PWD = "/proc/self/cwd"

def _hip_command_impl(ctx):
    found = cc_features(ctx, requested = ["aiter"])
    context = cc_common.merge_compilation_contexts(
        compilation_contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps],
    )
    defines = {define: None for arch in ctx.attr.archs for define in ARCH_DEFINES.get(arch, [])}
    variables = cc_common.create_compile_variables(
        cc_toolchain = found.toolchain,
        feature_configuration = found.features,
        include_directories = context.includes,
        preprocessor_defines = depset(defines.keys()),
        system_include_directories = context.system_includes,
        use_pic = True,
        user_compile_flags = ["--offload-arch=" + arch for arch in ctx.attr.archs] + ctx.attr.copts,
    )
    return [
        HipCommandInfo(
            archs = ctx.attr.archs,
            argv = cc_common.get_memory_inefficient_command_line(
                action_name = ACTION_NAMES.cpp_compile,
                feature_configuration = found.features,
                variables = variables,
            ),
            cc_toolchain = found.toolchain,
            compiler = cc_common.get_tool_for_action(
                action_name = ACTION_NAMES.cpp_compile,
                feature_configuration = found.features,
            ),
            env = cc_common.get_environment_variables(
                action_name = ACTION_NAMES.cpp_compile,
                feature_configuration = found.features,
                variables = variables,
            ) | {"PWD": _PWD},
            feature_configuration = found.features,
            inputs = context.headers,
            tools = found.toolchain.all_files,
        ),
    ]

hip_command = rule(
    implementation = _hip_command_impl,
    attrs = {
        "archs": attr.string_list(doc = "The archs that sources are compiled for.", mandatory = True),
        "copts": attr.string_list(doc = "Compiler flags of the sources."),
        "deps": attr.label_list(doc = "header_set targets.", providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    doc = """The command by which HIP sources are compiled: one target for all sources of a package and set of archs.""",
    fragments = ["cpp"],
    provides = [HipCommandInfo],
    toolchains = use_cc_toolchain(),
)
