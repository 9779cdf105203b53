"""Compiles HIP sources: an action for a source, a kernel instance or a batch."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:defs.bzl", "cc_common")
load("//rocm:flags.bzl", "ARCH_DEFINES", "NO_GLOBALS_AA", "SMALL_HOST_CODE")
load(":cc.bzl", "cc_features")

PrecompiledHeaderInfo = provider(
    doc = "A header that was parsed for one side of a compile.",
    fields = {
        "header": "File: the header; without `precompiled` next to it, the compiler would parse it again",
        "precompiled": "File: clang's precompiled form",
        "side": "string: \"host\", or the arch whose device code it is for",
    },
)

# For sources without device code: halves the compile time.
HOST_ONLY = [
    "--offload-host-only",
    # Half of AITER's flags are for device code.
    "-Wno-unused-command-line-argument",
]

# Measured peaks (docs/internals/batches.md), in MB: Bazel starts no more compiles than fit into memory.
_KERNEL_MEMORY = 1400

_BATCH_MEMORY = 2000

_LARGE_BATCH_MEMORY = 3000

_BATCH = 24

# Paths that the compiler makes absolute begin with the working directory. This
# name of it is the same on every machine; Bazel's own C++ compiles use it too.
_PWD = "/proc/self/cwd"

def arch_defines(archs):
    """Returns the macros of compiles for some archs."""
    return {define: None for arch in archs for define in ARCH_DEFINES.get(arch, [])}.keys()

def offload(archs):
    """Returns the flags of compiles for some archs."""
    return ["--offload-arch=" + arch for arch in archs]

def hip_command(ctx, archs, copts, headers):
    """Returns how kernel instances are compiled for some archs, for compile_hip.

    Args:
      ctx: context of a rule with the C++ toolchain.
      archs: list of strings, the archs.
      copts: list of strings, compiler flags of the sources.
      headers: struct(anchor (File in the directory that `include_dirs` are
        relative to), files (depset of File), include_dirs (list of strings)).

    Returns:
      struct(archs, argv (list of strings: compiler arguments of every source),
      cc_toolchain, compiler (string: its path), env (dict: environment of the
      actions), feature_configuration, headers, toolchain_type, tools (depset of File: the
      compiler's files, empty for a compiler outside of Bazel's inputs)).
    """
    return _command(
        cc_features(ctx, requested = ["aiter"]),
        archs,
        copts + SMALL_HOST_CODE + NO_GLOBALS_AA,
        headers,
        preprocessor_defines = depset(arch_defines(archs)),
    )

def own_hip_command(found, archs, copts, context):
    """Returns how sources of a user's own library are compiled for some archs, for compile_hip.

    Args:
      found: result of cc_features for the ROCm toolchain.
      archs: list of strings, the archs.
      copts: list of strings, compiler flags of the sources.
      context: CompilationContext of the headers and macros.

    Returns:
      A struct like that of hip_command.
    """
    return _command(
        found,
        archs,
        copts,
        struct(anchor = None, files = context.headers, include_dirs = []),
        include_directories = context.includes,
        preprocessor_defines = depset(transitive = [context.defines, context.local_defines]),
        quote_include_directories = context.quote_includes,
        system_include_directories = depset(transitive = [context.system_includes, context.external_includes]),
    )

def _command(found, archs, copts, headers, **variables):
    variables = cc_common.create_compile_variables(
        cc_toolchain = found.toolchain,
        feature_configuration = found.features,
        use_pic = True,
        user_compile_flags = offload(archs) + copts,
        **variables
    )
    action = dict(action_name = ACTION_NAMES.cpp_compile, feature_configuration = found.features)
    argv = cc_common.get_memory_inefficient_command_line(variables = variables, **action)
    return struct(
        archs = archs,
        argv = argv,
        cc_toolchain = found.toolchain,
        compiler = cc_common.get_tool_for_action(**action),
        env = cc_common.get_environment_variables(variables = variables, **action) | {"PWD": _PWD},
        feature_configuration = found.features,
        headers = headers,
        toolchain_type = found.type,
        tools = found.toolchain.all_files,
    )

# Functions without a closure: Bazel requires top-level ones.
def _kernel_resources(_os, _inputs):
    return {"cpu": 1, "memory": _KERNEL_MEMORY}

def _batch_resources(_os, _inputs):
    return {"cpu": 1, "memory": _BATCH_MEMORY}

def _large_batch_resources(_os, _inputs):
    return {"cpu": 1, "memory": _LARGE_BATCH_MEMORY}

def _resources(kernels):
    if kernels < 2:
        return _kernel_resources
    return _batch_resources if kernels <= _BATCH else _large_batch_resources

_OUTPUTS = "bazel-out/"

def _with_configuration(word, name):
    """Replaces the name of each configuration in the paths of a word."""
    parts = word.split(_OUTPUTS)
    for i in range(1, len(parts)):
        # Not in an absolute path: that of another directory of this name.
        if "/" in parts[i] and not parts[i - 1].endswith("/"):
            parts[i] = name + "/" + parts[i].partition("/")[2]
    return _OUTPUTS.join(parts)

def _mapped_flags(flags, root):
    """Returns a function from an output to flags, with their paths mapped if the output's is."""

    def flags_for(output):
        mapped = output.root.path
        return flags if mapped == root else [_with_configuration(word, mapped.split("/")[1]) for word in flags]

    return flags_for

def add_flags(args, flags, output):
    """Adds flags to a command line; paths of outputs in them are mapped like those of Files.

    With --experimental_output_paths=strip, Bazel removes the names of configurations from the paths of an action's
    Files, but not from text: include directories would not exist, and keys would depend on these names.

    Args:
      args: Args.
      flags: list of strings.
      output: File, an output of the action.
    """
    if [word for word in flags if _OUTPUTS in word]:
        args.add_all([output], allow_closure = True, map_each = _mapped_flags(flags, output.root.path))
    else:
        args.add_all(flags)

def _include_flags(headers):
    """Returns a function from the anchor of headers to the flags for their include directories.

    Path mapping (--experimental_output_paths=strip) applies to a File's path, not to text.
    """
    return lambda anchor: [
        word
        for directory in headers.include_dirs
        # As system includes: warnings in upstream headers are upstream's to fix.
        for word in ["-isystem", "{}/{}".format(anchor.dirname, directory)]
    ]

def _include_directory(file):
    return ["-isystem", file.dirname]

def precompile_header(ctx, command, side, header):
    """Declares the action that parses a header for one side of a compile.

    Args:
      ctx: the rule context.
      command: result of own_hip_command, with the flags of the sources that include the header first.
      side: string, "host" or an arch.
      header: File.

    Returns:
      PrecompiledHeaderInfo.
    """

    # clang finds it by this name if a source includes the header before anything else.
    precompiled = ctx.actions.declare_file(header.basename + ".pch", sibling = header)
    args = ctx.actions.args()
    add_flags(args, command.argv, precompiled)
    args.add_all([
        "--offload-{}-only".format("host" if side == "host" else "device"),
        "-fsyntax-only",
        "-fpch-instantiate-templates",
        # Those that are for objects.
        "-Wno-unused-command-line-argument",
    ])
    args.add_all(["-emit-pch", "-fno-pch-timestamp", "-o", precompiled], before_each = "-Xclang")
    args.add(header)
    ctx.actions.run(
        arguments = [args],
        env = command.env,
        executable = command.compiler,
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset([header], transitive = [command.headers.files, command.tools]),
        mnemonic = "QolaPrecompile",
        outputs = [precompiled],
        progress_message = "Precompiling headers for %{label}",
        resource_set = _batch_resources,
        toolchain = command.toolchain_type,
    )
    return PrecompiledHeaderInfo(header = header, precompiled = precompiled, side = side)

def compile_hip(ctx, command, src, object, cuid, kernels = [], before = [], includes = [], precompiled = [], compress = False):
    """Declares the compile of one source for the archs of a command.

    Args:
      ctx: the rule context, with the attribute _compile_batch if there are `kernels`.
      command: result of hip_command or own_hip_command.
      src: File, the source.
      object: File to write.
      cuid: the compilation unit's id, which HIP puts into the object; unique within a library.
      kernels: Files of the kernel instances that a batch includes.
      before: Files that the compiler includes before the source.
      includes: Files in further include directories.
      precompiled: PrecompiledHeaderInfo for each side of the compile: headers that the compiler includes first.
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

    # Before other flags: clang uses a precompiled header only if nothing is included before it.
    for found in precompiled:
        args.add("-Xarch_" + found.side)
        args.add(found.header, format = "-include%s")
    add_flags(args, command.argv, object)
    if compress:
        args.add("--offload-compress")
    if command.headers.anchor:
        args.add_all([command.headers.anchor], allow_closure = True, map_each = _include_flags(command.headers))
    args.add_all(includes, map_each = _include_directory)
    for file in before:
        args.add("-include", file)

    # The default id is derived from the unit's path.
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
        inputs = depset(
            [src] + kernels + before + includes +
            [file for found in precompiled for file in [found.header, found.precompiled]],
            transitive = [command.headers.files, command.tools],
        ),
        mnemonic = "QolaCompile",
        outputs = [object],
        progress_message = "Compiling " + cuid + (" ({} kernel instances)".format(len(kernels)) if kernels else ""),
        resource_set = _resources(len(kernels)),
        toolchain = command.toolchain_type,
    )
    return object
