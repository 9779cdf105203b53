"""hip_object: one HIP source as an object file: a kernel instance, or a batch of them."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("//rules/private:providers.bzl", "KernelObjectInfo")
load(":hip_command.bzl", "HipCommandInfo")
load(":hip_compile.bzl", "compile_hip")

def _linking(ctx, command, object):
    context, _ = cc_common.create_linking_context_from_compilation_outputs(
        # By this name cc_shared_library knows whose object it is; any other one it leaves out.
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = command.cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(pic_objects = depset([object])),
        disallow_dynamic_library = True,
        feature_configuration = command.feature_configuration,
    )
    return CcInfo(linking_context = context)

def _hip_object_impl(ctx):
    command = ctx.attr.command[HipCommandInfo]
    object = compile_hip(
        ctx,
        command,
        ctx.file.src,
        ctx.actions.declare_file(ctx.attr.cuid + ".pic.o"),
        ctx.attr.cuid,
        kernels = ctx.files.kernels,
        compress = ctx.attr._compress[BuildSettingInfo].value,
    )
    return [
        _linking(ctx, command, object),
        DefaultInfo(files = depset([object])),
        KernelObjectInfo(
            commands = {arch: target[HipCommandInfo] for target, arch in ctx.attr.commands.items()},
            entry = ctx.file.entry,
            name = ctx.attr.cuid,
            package = ctx.label.package,
            src = ctx.file.src,
        ),
    ]

hip_object = rule(
    implementation = _hip_object_impl,
    attrs = {
        "command": attr.label(doc = "The hip_command.", mandatory = True, providers = [HipCommandInfo]),
        "commands": attr.label_keyed_string_dict(doc = "For kernel libraries, which are for one arch: the hip_command of each arch alone, with the arch.", providers = [HipCommandInfo]),
        "cuid": attr.string(doc = "Name of the object, and the compilation unit's id: unique within a library.", mandatory = True),
        "entry": attr.label(allow_single_file = [".cpp"], doc = "The source that makes a kernel library of the object; see kernel_libraries."),
        "kernels": attr.label_list(allow_files = [".cpp"], doc = "Of a batch: the sources of its kernel instances, which `src` includes."),
        "src": attr.label(allow_single_file = [".cpp"], doc = "The source.", mandatory = True),
        "_compile_batch": attr.label(allow_single_file = True, cfg = "exec", default = "//rules/private:compile_batch.sh", executable = True),
        "_compress": attr.label(default = "//:compress"),
    },
    doc = """One HIP source as one position-independent object.

It is linked as it is, through CcInfo: a cc_library around each of 21,800 would
double what Bazel's analysis costs (bench/scale.py).
""",
    fragments = ["cpp"],
    provides = [CcInfo, KernelObjectInfo],
)
