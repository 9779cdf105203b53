"""launch_test: proof that a library's entry points launch kernels, on a HIP runtime without a GPU."""

load("@rules_cc//cc:defs.bzl", "cc_binary")
load("//rules/private:kernel_transition.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("//rules/private:providers.bzl", "QolaLibraryInfo")
load("//rules/rocm:rocm_files.bzl", "rocm_files")

_ATTRS = TRANSITION_ATTRS | {
    "library": attr.label(cfg = kernel_transition, mandatory = True, providers = [QolaLibraryInfo]),
    "module": attr.string(mandatory = True),
}

def _launch_source_impl(ctx):
    info = ctx.attr.library[0][QolaLibraryInfo]
    args = ctx.actions.args()
    args.add("--plan", info.plan)
    args.add("--module", ctx.attr.module)
    args.add("--output", ctx.outputs.out)
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._tool,
        inputs = [info.plan],
        mnemonic = "QolaLaunchSource",
        outputs = [ctx.outputs.out],
        progress_message = "Writing the caller of %{label}",
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )

_launch_source = rule(
    implementation = _launch_source_impl,
    attrs = _ATTRS | {
        "out": attr.output(mandatory = True),
        "_tool": attr.label(cfg = "exec", default = "//qola/launch:tool", executable = True),
    },
    doc = "Writes the C++ of a library that calls a module's library.",
)

def _launch_test_impl(ctx):
    info = ctx.attr.library[0][QolaLibraryInfo]
    tool = ctx.attr._tool[DefaultInfo]
    runtime = ctx.attr._runtime[DefaultInfo].files.to_list()[0]
    files = {"library": info.library, "plan": info.plan, "runtime": runtime}
    test = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(
        test,
        # A test begins where its runfiles are.
        "\n".join(
            ["#!/bin/sh", "exec ./{} \\".format(tool.files_to_run.executable.short_path)] +
            ["  --{} '{}' \\".format(option, file.short_path) for option, file in files.items()] +
            ["  --module {} --archs {}".format(ctx.attr.module, " ".join(info.archs)), ""],
        ),
        is_executable = True,
    )
    runfiles = ctx.runfiles(files.values()).merge_all([
        tool.default_runfiles,
        ctx.attr.library[0][DefaultInfo].default_runfiles,
    ])
    return [DefaultInfo(executable = test, runfiles = runfiles)]

_launch_test = rule(
    implementation = _launch_test_impl,
    attrs = _ATTRS | {
        "_runtime": attr.label(default = "//cc/fake_hip"),
        "_tool": attr.label(cfg = "target", default = "//qola/verify:launches", executable = True),
    },
    doc = "Calls the library on a device of each arch; fails if an entry point launches nothing.",
    test = True,
)

# Of the host alone; the headers ask whether a tree's arguments have a member.
_HOST_COPTS = ["--offload-host-only", "-std=c++20"]

def library_caller(name, library, module):
    """Declares a library that calls another one's entry points with values by name, for qola/emulate.

    Args:
      name: target name; the file is <name>.so.
      library: label of the module's qola_library.
      module: the module, as plan.json names it.
    """
    common = dict(tags = ["manual"], visibility = ["//visibility:public"])
    _launch_source(
        name = name + ".source",
        out = name + ".cpp",
        library = library,
        module = module,
        **common
    )
    cc_binary(
        name = name + ".so",
        srcs = [name + ".cpp"],
        copts = _HOST_COPTS + ["-fPIC"],
        linkopts = ["-lamdhip64"],
        linkshared = True,
        target_compatible_with = [Label("//rules/rocm:rocm")],
        deps = [library, Label("//cc/launch")],
        **common
    )
    rocm_files(
        name = name,
        srcs = [name + ".so"],
        **common
    )

def launch_test(name, library, module):
    """Declares the launch test of a module's library.

    Args:
      name: target name.
      library: label of the module's qola_library.
      module: the module, as plan.json names it.
    """
    _launch_test(
        name = name,
        size = "small",
        library = library,
        module = module,
        tags = ["manual"],
        visibility = ["//visibility:public"],
    )
