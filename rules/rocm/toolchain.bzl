"""rocm_cc_toolchain and rocm_toolchain: a C++ toolchain that compiles HIP, and its declaration."""

load("@rules_cc//cc:defs.bzl", "cc_toolchain")
load(":toolchain_config.bzl", "rocm_toolchain_config")

def rocm_cc_toolchain(name, tools, compiler_files = None, linker_files = None, tool_files = None, **kwargs):
    """Declares a config and a cc_toolchain.

    Args:
      name: name of the cc_toolchain.
      tools: dict from Bazel's tool name (gcc, ld, ar, ...) to its path:
        absolute, or relative to the calling package.
      compiler_files: label of all that a compile reads; None where it lies
        outside of what Bazel knows.
      linker_files: the same of a link.
      tool_files: the same of ar, nm, objcopy and strip.
      **kwargs: further attributes of rocm_toolchain_config.
    """
    scripts = name + "_scripts"
    native.filegroup(name = scripts, srcs = native.glob(["*.sh"], allow_empty = True))
    rocm_toolchain_config(name = name + "_config", tools = tools, **kwargs)
    cc_toolchain(
        name = name,
        # Read by rules of qola's own that compile, and by nothing that links.
        all_files = compiler_files or scripts,
        ar_files = tool_files or scripts,
        as_files = compiler_files or scripts,
        compiler_files = compiler_files or scripts,
        dwp_files = tool_files or scripts,
        linker_files = linker_files or scripts,
        objcopy_files = tool_files or scripts,
        strip_files = tool_files or scripts,
        # The linker reads thousands of objects from a file, not from argv.
        supports_param_files = True,
        toolchain_config = name + "_config",
        toolchain_identifier = "rocm",
        visibility = ["//visibility:public"],
    )

def rocm_toolchain(name, cc_toolchain):
    """Declares a cc_toolchain as the one for ROCm.

    It is in a repository of its own because Bazel loads every toolchain() it
    may choose, but only the chosen one's files.

    Args:
      name: name of the toolchain() target, for --@qola//rules/rocm:toolchain.
      cc_toolchain: label of a rocm_cc_toolchain.
    """

    # Labels of this module: who declares a toolchain need not know @platforms.
    system = [Label("@platforms//os:linux"), Label("@platforms//cpu:x86_64")]
    native.toolchain(
        name = name,
        exec_compatible_with = system,
        target_compatible_with = system + [Label("//rules/rocm:rocm")],
        toolchain = cc_toolchain,
        toolchain_type = "@bazel_tools//tools/cpp:toolchain_type",
        visibility = ["//visibility:public"],
    )
