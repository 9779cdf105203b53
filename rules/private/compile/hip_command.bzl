"""hip_command: how the kernel instances of a package are compiled for some archs."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:defs.bzl", "cc_common")
load("//rules/private:cc_features.bzl", "cc_features")
load("//rules/rocm:flags.bzl", "ARCH_DEFINES")

# Paths that the compiler makes absolute begin with the working directory. By
# this name of it they are the same on every machine; Bazel gives its own C++
# compiles the same.
_PWD = "/proc/self/cwd"

def hip_command(ctx, archs, copts, headers):
    """Returns how sources are compiled for some archs, for compile_hip.

    Args:
      ctx: context of a rule with the C++ toolchain.
      archs: list of strings, the archs.
      copts: list of strings, compiler flags of the sources.
      headers: struct(anchor (File in the directory that `include_dirs` are
        relative to), files (depset of File), include_dirs (list of strings)).

    Returns:
      struct(archs, argv (arguments of the compiler for every source),
      cc_toolchain, compiler (its path), env (dict: environment of the actions),
      feature_configuration, headers, tools (depset of File: the compiler, as
      far as it is among the inputs)).
    """
    found = cc_features(ctx, requested = ["aiter"])
    defines = {define: None for arch in archs for define in ARCH_DEFINES.get(arch, [])}
    variables = cc_common.create_compile_variables(
        cc_toolchain = found.toolchain,
        feature_configuration = found.features,
        preprocessor_defines = depset(defines.keys()),
        use_pic = True,
        user_compile_flags = ["--offload-arch=" + arch for arch in archs] + copts,
    )
    return struct(
        archs = archs,
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
        headers = headers,
        tools = found.toolchain.all_files,
    )
