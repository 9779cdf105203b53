"""hip_object: one HIP source as an object file, by a device pass for each arch and a host pass."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("//rules/private:providers.bzl", "KernelObjectInfo")
load(":hip_compile.bzl", "compile_device", "compile_host", "compile_whole", "hip_unit")
load(":hip_pass.bzl", "HipPassInfo")

def _linking(ctx, info, object):
    context, _ = cc_common.create_linking_context_from_compilation_outputs(
        # By this name cc_shared_library knows whose object it is; any other one it leaves out.
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = info.cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(pic_objects = depset([object])),
        disallow_dynamic_library = True,
        feature_configuration = info.feature_configuration,
    )
    return CcInfo(linking_context = context)

def _hip_object_impl(ctx):
    split = ctx.attr._split[BuildSettingInfo].value
    compress = ctx.attr._compress[BuildSettingInfo].value
    unit = hip_unit(ctx.attr.cuid, ctx.file.src)
    code_objects = {}
    for target in ctx.attr.device if split else []:
        info = target[HipPassInfo]
        if not info.arch or info.arch in code_objects:
            fail("{}: {} is not a device pass of another arch than {}".format(ctx.label, target.label, code_objects.keys()))
        code_objects[info.arch] = compile_device(ctx, info, unit)
    host = ctx.attr.host[HipPassInfo]
    if host.arch:
        fail("{}: {} is a device pass, not one for the host".format(ctx.label, ctx.attr.host.label))
    object = ctx.actions.declare_file(ctx.attr.cuid + ".pic.o")
    if split:
        compile_host(ctx, host, unit, object, code_objects, ctx.executable._host_pass, compress)
    else:
        compile_whole(ctx, host, unit, object, compress)
    return [
        _linking(ctx, host, object),
        DefaultInfo(files = depset([object])),
        KernelObjectInfo(
            code_objects = code_objects,
            entry = ctx.file.entry,
            hosts = {arch: target[HipPassInfo] for target, arch in ctx.attr.hosts.items()},
            name = ctx.attr.cuid,
            package = ctx.label.package,
            src = ctx.file.src,
        ),
        OutputGroupInfo(code_objects = depset(code_objects.values())),
    ]

hip_object = rule(
    implementation = _hip_object_impl,
    attrs = {
        "cuid": attr.string(doc = "Name of the object, and the compilation unit's id: unique within a library.", mandatory = True),
        "device": attr.label_list(doc = "The hip_pass of each arch.", mandatory = True, providers = [HipPassInfo]),
        "entry": attr.label(allow_single_file = [".cpp"], doc = "The source that makes a kernel library of the object; see kernel_libraries."),
        "host": attr.label(doc = "The hip_pass for the host.", mandatory = True, providers = [HipPassInfo]),
        "hosts": attr.label_keyed_string_dict(doc = "For kernel libraries, which are for one arch: the hip_pass of the host for each arch alone, with the arch.", providers = [HipPassInfo]),
        "src": attr.label(allow_single_file = [".cpp"], doc = "The source.", mandatory = True),
        "_compress": attr.label(default = "//:compress"),
        "_split": attr.label(default = "//:split_compile"),
        "_host_pass": attr.label(allow_single_file = True, cfg = "exec", default = "//rules/private:host_pass.sh", executable = True),
    },
    doc = """One HIP source as one position-independent object, compiled in passes.

What the compiler's driver does in one command is here an action for each arch,
which makes a code object, and one for the host, which bundles the code objects
and embeds them: each pass has its own precompiled header, and its own cache
entry. The output group `code_objects` has the former.

It is linked as it is, through CcInfo: a cc_library around each of 21,800 would
double what Bazel's analysis costs (bench/scale.py).
""",
    fragments = ["cpp"],
    provides = [CcInfo, KernelObjectInfo],
)
