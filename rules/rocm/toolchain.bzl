"""rocm_toolchain: a C++ toolchain that compiles HIP with hipcc."""

load("@rules_cc//cc:defs.bzl", "cc_toolchain")
load(":toolchain_config.bzl", "rocm_toolchain_config")

def rocm_toolchain(name, tools, **kwargs):
    """Declares the ROCm C++ toolchain: a config, a cc_toolchain and a toolchain.

    Args:
      name: name of the toolchain() target, to be registered.
      tools: dict from Bazel's tool name (gcc, ld, ar, ...) to its path:
        absolute, or relative to the calling package.
      **kwargs: further attributes of rocm_toolchain_config.
    """
    native.filegroup(name = name + "_files", srcs = native.glob(["*.sh"], allow_empty = True))
    rocm_toolchain_config(name = name + "_config", tools = tools, **kwargs)
    cc_toolchain(
        name = name + "_cc",
        all_files = name + "_files",
        compiler_files = name + "_files",
        dwp_files = name + "_files",
        linker_files = name + "_files",
        objcopy_files = name + "_files",
        strip_files = name + "_files",
        # The linker reads thousands of objects from a file, not from argv.
        supports_param_files = True,
        toolchain_config = name + "_config",
        toolchain_identifier = "rocm",
    )
    native.toolchain(
        name = name,
        exec_compatible_with = ["@platforms//os:linux", "@platforms//cpu:x86_64"],
        target_compatible_with = [
            "@platforms//os:linux",
            "@platforms//cpu:x86_64",
            Label("//rules/rocm:rocm"),
        ],
        toolchain = name + "_cc",
        toolchain_type = "@bazel_tools//tools/cpp:toolchain_type",
        visibility = ["//visibility:public"],
    )
