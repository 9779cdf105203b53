"""The actions of a HIP compile: a device pass for one arch, the host pass, or both in one command."""

load(":hip_pass.bzl", "include_pch")

# Measured peaks (docs/internals/split-compilation.md), in MB.
_WARM_MEMORY = 1000
_COLD_MEMORY = 1400
_HOST_MEMORY = 300

def _warm_resources(_os, _inputs):
    return {"cpu": 1, "memory": _WARM_MEMORY}

def _cold_resources(_os, _inputs):
    return {"cpu": 1, "memory": _COLD_MEMORY}

def _host_resources(_os, _inputs):
    return {"cpu": 1, "memory": _HOST_MEMORY}

def hip_unit(cuid, src, before = [], includes = []):
    """The unit that is compiled, whatever the pass.

    Args:
      cuid: name of the unit, which symbols of the device code are made of.
      src: File, the source.
      before: Files that the compiler includes before it.
      includes: directories of headers besides those of the pass, as Files in them.

    Returns:
      A struct for the functions below.
    """
    return struct(before = before, cuid = cuid, includes = includes, src = src)

def _command(ctx, info, unit):
    args = ctx.actions.args()
    args.add_all(info.argv)
    include_pch(args, info.pch)
    for file in unit.includes:
        args.add("-isystem", file.dirname)
    for file in unit.before:
        args.add("-include", file)

    # Without it the unit's id would be made of its path.
    args.add("-cuid=" + unit.cuid)
    args.add("-c", unit.src)
    return args

def _run(ctx, info, unit, output, mnemonic, progress_message, arguments, executable = None, inputs = [], resource_set = _cold_resources):
    ctx.actions.run(
        arguments = arguments,
        env = info.env,
        executable = executable or info.compiler,
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset([unit.src] + unit.before + unit.includes + inputs, transitive = [info.inputs, info.tools]),
        mnemonic = mnemonic,
        outputs = [output],
        progress_message = progress_message,
        resource_set = resource_set,
    )
    return output

def compile_device(ctx, info, unit):
    """The device pass.

    Args:
      ctx: context of the rule.
      info: HipPassInfo of the arch.
      unit: the hip_unit.

    Returns:
      File, the code object.
    """
    code_object = ctx.actions.declare_file("{}.{}.co".format(unit.cuid, info.arch))
    args = _command(ctx, info, unit)
    args.add("-o", code_object)
    return _run(
        ctx,
        info,
        unit,
        code_object,
        "QolaDevice",
        "Compiling {} for {}".format(unit.cuid, info.arch),
        [args],
        resource_set = _warm_resources if info.warm else _cold_resources,
    )

def compile_host(ctx, info, unit, object, code_objects, host_pass, compress = False):
    """The host pass, which embeds the code objects.

    Args:
      ctx: context of the rule.
      info: HipPassInfo of the host.
      unit: the hip_unit.
      object: File to write.
      code_objects: dict from arch to File.
      host_pass: executable File, host_pass.sh.
      compress: whether to compress the code objects.

    Returns:
      `object`.
    """
    bundle = ctx.actions.args()
    bundle.add(info.bundler)
    bundle.add(object)
    bundle.add_joined(
        ["host-x86_64-unknown-linux-gnu"] + ["hipv4-amdgcn-amd-amdhsa--" + arch for arch in code_objects],
        format_joined = "-targets=%s",
        join_with = ",",
    )
    if compress:
        bundle.add("-compress")
    bundle.add_all(code_objects.values(), format_each = "-input=%s")
    compile = ctx.actions.args()
    compile.add("--")
    compile.add(info.compiler)
    return _run(
        ctx,
        info,
        unit,
        object,
        "QolaHost",
        "Compiling {} for the host".format(unit.cuid),
        [bundle, compile, _command(ctx, info, unit)],
        executable = host_pass,
        inputs = code_objects.values(),
        resource_set = _host_resources,
    )

def compile_whole(ctx, info, unit, object, compress = False):
    """All passes in one command.

    Args:
      ctx: context of the rule.
      info: HipPassInfo of the host.
      unit: the hip_unit.
      object: File to write.
      compress: whether to compress the code objects.

    Returns:
      `object`.
    """
    args = _command(ctx, info, unit)
    if compress:
        args.add("--offload-compress")
    args.add("-o", object)
    return _run(ctx, info, unit, object, "QolaCompile", "Compiling " + unit.cuid, [args])
