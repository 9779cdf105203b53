"""hip_object: one HIP source as an object file, by a device pass for each arch and a host pass."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load(":hip_pass.bzl", "HipPassInfo", "include_pch")

# Measured peaks (docs/split-compilation.md), in MB.
_WARM_MEMORY = 1000
_COLD_MEMORY = 1400
_HOST_MEMORY = 300

def _warm_resources(_os, _inputs):
    return {"cpu": 1, "memory": _WARM_MEMORY}

def _cold_resources(_os, _inputs):
    return {"cpu": 1, "memory": _COLD_MEMORY}

def _host_resources(_os, _inputs):
    return {"cpu": 1, "memory": _HOST_MEMORY}

def _command(ctx, info):
    args = ctx.actions.args()
    args.add_all(info.argv)
    include_pch(args, info.pch)

    # Without it the unit's id would be made of its path.
    args.add("-cuid=" + ctx.attr.cuid)
    args.add("-c", ctx.file.src)
    return args

def _run(ctx, info, output, mnemonic, progress_message, arguments, executable = None, inputs = [], resource_set = _cold_resources):
    ctx.actions.run(
        arguments = arguments,
        env = info.env,
        executable = executable or info.compiler,
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset([ctx.file.src] + inputs, transitive = [info.inputs, info.tools]),
        mnemonic = mnemonic,
        outputs = [output],
        progress_message = progress_message,
        resource_set = resource_set,
    )
    return output

def _device(ctx, info):
    code_object = ctx.actions.declare_file("{}.{}.co".format(ctx.attr.cuid, info.arch))
    args = _command(ctx, info)
    args.add("-o", code_object)
    return _run(
        ctx,
        info,
        code_object,
        "QolaDevice",
        "Compiling {} for {}".format(ctx.attr.cuid, info.arch),
        [args],
        resource_set = _warm_resources if info.warm else _cold_resources,
    )

def _host(ctx, info, code_objects):
    object = ctx.actions.declare_file(ctx.attr.cuid + ".pic.o")
    bundle = ctx.actions.args()
    bundle.add(info.bundler)
    bundle.add(object)
    bundle.add_joined(
        ["host-x86_64-unknown-linux-gnu"] + ["hipv4-amdgcn-amd-amdhsa--" + arch for arch in code_objects],
        format_joined = "-targets=%s",
        join_with = ",",
    )
    if ctx.attr._compress[BuildSettingInfo].value:
        bundle.add("-compress")
    bundle.add_all(code_objects.values(), format_each = "-input=%s")
    compile = ctx.actions.args()
    compile.add("--")
    compile.add(info.compiler)
    return _run(
        ctx,
        info,
        object,
        "QolaHost",
        "Compiling {} for the host".format(ctx.attr.cuid),
        [bundle, compile, _command(ctx, info)],
        executable = ctx.executable._host_pass,
        inputs = code_objects.values(),
        resource_set = _host_resources,
    )

def _whole(ctx, info):
    object = ctx.actions.declare_file(ctx.attr.cuid + ".pic.o")
    args = _command(ctx, info)
    if ctx.attr._compress[BuildSettingInfo].value:
        args.add("--offload-compress")
    args.add("-o", object)
    return _run(ctx, info, object, "QolaCompile", "Compiling " + ctx.attr.cuid, [args])

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
    code_objects = {}
    for target in ctx.attr.device if split else []:
        info = target[HipPassInfo]
        if not info.arch or info.arch in code_objects:
            fail("{}: {} is no device pass of another arch than {}".format(ctx.label, target.label, code_objects.keys()))
        code_objects[info.arch] = _device(ctx, info)
    host = ctx.attr.host[HipPassInfo]
    if host.arch:
        fail("{}: {} is a device pass, not one for the host".format(ctx.label, ctx.attr.host.label))
    object = _host(ctx, host, code_objects) if split else _whole(ctx, host)
    return [
        _linking(ctx, host, object),
        DefaultInfo(files = depset([object])),
        OutputGroupInfo(code_objects = depset(code_objects.values())),
    ]

hip_object = rule(
    implementation = _hip_object_impl,
    attrs = {
        "cuid": attr.string(doc = "Name of the object, and the compilation unit's id: unique within a library.", mandatory = True),
        "device": attr.label_list(doc = "The hip_pass of each arch.", mandatory = True, providers = [HipPassInfo]),
        "host": attr.label(doc = "The hip_pass for the host.", mandatory = True, providers = [HipPassInfo]),
        "src": attr.label(allow_single_file = [".cpp"], doc = "The source.", mandatory = True),
        "_compress": attr.label(default = "//:compress"),
        "_split": attr.label(default = "//:split_compile"),
        "_host_pass": attr.label(allow_single_file = True, cfg = "exec", default = ":host_pass.sh", executable = True),
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
    provides = [CcInfo],
)
