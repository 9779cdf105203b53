"""The action that compiles a kernel instance, or a batch of them."""

# Measured peaks (docs/internals/batches.md), in MB: Bazel starts no more compiles than fit into memory.
_ALONE_MEMORY = 1400
_BATCH_MEMORY = 2000
_LARGE_BATCH_MEMORY = 3000
_BATCH = 24

def _alone(_os, _inputs):
    return {"cpu": 1, "memory": _ALONE_MEMORY}

def _batch(_os, _inputs):
    return {"cpu": 1, "memory": _BATCH_MEMORY}

def _large_batch(_os, _inputs):
    return {"cpu": 1, "memory": _LARGE_BATCH_MEMORY}

def _resources(kernels):
    if kernels < 2:
        return _alone
    return _batch if kernels <= _BATCH else _large_batch

def _directories(headers):
    """Returns a function from the anchor of headers to the flags for their include directories.

    Of a File the path may be mapped (--experimental_output_paths=strip), of a text it is not.
    """
    return lambda anchor: [
        word
        for directory in headers.include_dirs
        # As system includes: what upstream headers warn of is upstream's to mend.
        for word in ["-isystem", "{}/{}".format(anchor.dirname, directory)]
    ]

def _directory(file):
    return ["-isystem", file.dirname]

def compile_hip(ctx, command, src, object, cuid, kernels = [], before = [], includes = [], compress = False):
    """Declares the compile of one source for the archs of a command.

    Args:
      ctx: context of the rule, which has the attribute _compile_batch if there are `kernels`.
      command: what hip_command returned.
      src: File, the source.
      object: File to write.
      cuid: the compilation unit's id, which HIP puts into the object: unique within a library.
      kernels: Files of the kernel instances that a batch includes.
      before: Files that the compiler includes before the source.
      includes: Files in directories of headers besides those of the command.
      compress: whether to compress the device code.

    Returns:
      `object`.
    """
    args = ctx.actions.args()
    if kernels:
        args.add(src)
        args.add_all(kernels)
        args.add("--")
        args.add(command.compiler)
    args.add_all(command.argv)
    if compress:
        args.add("--offload-compress")
    args.add_all([command.headers.anchor], allow_closure = True, map_each = _directories(command.headers))
    args.add_all(includes, map_each = _directory)
    for file in before:
        args.add("-include", file)

    # Without it the unit's id would be made of its path.
    args.add("-cuid=" + cuid)
    args.add("-o", object)
    args.add("-c")
    if not kernels:
        args.add(src)
    ctx.actions.run(
        arguments = [args],
        env = command.env,
        executable = ctx.executable._compile_batch if kernels else command.compiler,
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset([src] + kernels + before + includes, transitive = [command.headers.files, command.tools]),
        mnemonic = "QolaCompile",
        outputs = [object],
        progress_message = "Compiling " + cuid + (" ({} kernel instances)".format(len(kernels)) if kernels else ""),
        resource_set = _resources(len(kernels)),
    )
    return object
