"""hip_library: HIP sources as a C++ library, and the link of relocatable device code."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("//lib:cc.bzl", "cc_features")
load("//lib:compile.bzl", "add_flags")
load("//lib:finding.bzl", "finding")
load(":compile.bzl", "COMPILE_ATTRS", "HEADERS", "SOURCES", "compile_source", "hip_compiler", "selected_archs")
load(":context.bzl", "compilation_contexts", "is_source")
load(":toolchain.bzl", "use_hip_toolchain")

HipInfo = provider(
    doc = "A library with device code.",
    fields = {
        "archs": "list of strings: archs of its device code",
        "rdc_objects": "depset of struct(archs, file, label): objects of the library and of its dependencies whose device code is not linked yet",
    },
)

def _archive(ctx, host, name, objects, disallow_dynamic_library = True, **kwargs):
    """Returns a list with the LibraryToLink of objects and a list with their archive, empty without objects."""
    if not objects:
        return [], []
    _, outputs = cc_common.create_linking_context_from_compilation_outputs(
        name = name,
        actions = ctx.actions,
        cc_toolchain = host.toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(pic_objects = depset(objects)),
        disallow_dynamic_library = disallow_dynamic_library,
        feature_configuration = host.features,
        **kwargs
    )
    library = outputs.library_to_link
    archive = library.pic_static_library
    return [library], ([archive] if archive else [])

def _hip_runtime(ctx):
    """Returns the flags that link HIP's runtime, and the files that they name.

    A cc_shared_library leaves out those of a library without objects, such as that of the runtime itself.
    """
    inputs = ctx.attr._hip[CcInfo].linking_context.linker_inputs.to_list()
    return struct(
        flags = [flag for input in inputs for flag in input.user_link_flags],
        files = [file for input in inputs for file in input.additional_inputs],
    )

def _check_archs(ctx, archs, objects):
    for one in objects:
        if sorted(one.archs) != sorted(archs):
            fail(finding(
                "libraries with rdc = True and different archs",
                place = ctx.label,
                found = "{} for {}, {} for {}".format(ctx.label, " ".join(archs), one.label, " ".join(one.archs)),
                expected = "the same archs in all of them, because their device code is linked together",
                fix = "archs = {} in both".format(json.encode(sorted(archs))),
            ))

def _device_link(ctx, archs, objects):
    """Declares the link of relocatable device code; returns the object that contains the result."""
    _check_archs(ctx, archs, objects)
    files = [one.file for one in objects]
    command = hip_compiler(ctx, archs, ["-fgpu-rdc"], cc_common.create_compilation_context())
    image, assembly, output = [
        ctx.actions.declare_file("_hip/{}/device_link.{}".format(ctx.label.name, end))
        for end in ["hipfb", "s", "pic.o"]
    ]
    args = ctx.actions.args()
    args.add(command.cc_toolchain.nm_executable)
    args.add_all([image, assembly, output])
    args.add_all(files)
    args.add("--")
    args.add(command.compiler)

    # The flags of a compile have paths and archs; objects are not HIP sources.
    words = command.argv
    add_flags(args, [word for place, word in enumerate(words) if word != "-x" and (not place or words[place - 1] != "-x")], output)
    ctx.actions.run(
        arguments = [args],
        env = command.env,
        executable = ctx.executable._device_link,
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset(files, transitive = [command.tools, ctx.attr._llvm_tools[DefaultInfo].files]),
        mnemonic = "QolaDeviceLink",
        outputs = [image, assembly, output],
        progress_message = "Linking device code of %{label}",
        toolchain = command.toolchain_type,
    )
    return output

def _coverage_flags(ctx, host):
    """Returns the flags by which the toolchain of the build, if it is clang, counts executed code, for host code."""
    if not ctx.coverage_instrumented():
        return []
    argv = cc_common.get_memory_inefficient_command_line(
        action_name = ACTION_NAMES.cpp_compile,
        feature_configuration = host.features,
        variables = cc_common.create_compile_variables(cc_toolchain = host.toolchain, feature_configuration = host.features),
    )
    counting = [flag for flag in argv if flag in ["-fprofile-instr-generate", "-fcoverage-mapping"]]
    return [word for flag in counting for word in ["-Xarch_host", flag]]

def library_providers(ctx, archs, copts = [], rdc = False):
    """Declares the compiles and links of a library.

    Args:
      ctx: context of a rule with LIBRARY_ATTRS, the fragment cpp, and the toolchains for C++ and HIP.
      archs: archs to compile device code for.
      copts: flags in addition to those of the attributes.
      rdc: whether the device code is relocatable.

    Returns:
      List of providers.
    """
    host = cc_features(ctx)
    deps = [dep[CcInfo] for dep in ctx.attr.deps]
    implementation_deps = [dep[CcInfo] for dep in ctx.attr.implementation_deps]
    context = compilation_contexts(ctx, deps, implementation_deps)
    flags = copts + _coverage_flags(ctx, host) + (["-fgpu-rdc"] if rdc else [])
    command = hip_compiler(ctx, archs, flags, context.own)
    objects = [compile_source(ctx, command, src, ".pic.o") for src in ctx.files.srcs if is_source(src)]
    runtime = _hip_runtime(ctx)
    located = ctx.attr.additional_linker_inputs + ctx.attr.data + ctx.attr.deps
    link = struct(
        additional_inputs = ctx.files.additional_linker_inputs + runtime.files,
        user_link_flags = [ctx.expand_location(flag, located) for flag in ctx.attr.linkopts] + runtime.flags,
    )
    libraries, archives = _archive(
        ctx,
        host,
        ctx.label.name,
        objects,
        additional_inputs = link.additional_inputs,
        alwayslink = ctx.attr.alwayslink,
        # Objects of relocatable device code refer to hidden symbols of the device link.
        disallow_dynamic_library = ctx.attr.linkstatic or rdc,
        user_link_flags = link.user_link_flags,
    )
    rdc_objects = depset(
        [struct(archs = tuple(archs), file = file, label = str(ctx.label)) for file in objects] if rdc else [],
        transitive = [dep[HipInfo].rdc_objects for dep in ctx.attr.deps + ctx.attr.implementation_deps if HipInfo in dep],
    )
    unlinked = rdc_objects.to_list()
    if unlinked and not rdc:
        object = _device_link(ctx, archs or list(unlinked[0].archs), unlinked)
        device, more = _archive(ctx, host, ctx.label.name + ".device", [object], alwayslink = True)
        libraries += device
        archives += more
        rdc_objects = depset()

    # All of them have the owner of the target: a cc_shared_library leaves out others.
    linker_input = cc_common.create_linker_input(
        additional_inputs = depset(link.additional_inputs),
        libraries = depset(libraries),
        owner = ctx.label,
        user_link_flags = link.user_link_flags,
    )
    own = CcInfo(
        compilation_context = context.public,
        linking_context = cc_common.create_linking_context(linker_inputs = depset([linker_input])),
    )
    only_linked = [CcInfo(linking_context = dep.linking_context) for dep in implementation_deps]
    runfiles = ctx.runfiles(ctx.files.data).merge_all(
        [target[DefaultInfo].default_runfiles for target in ctx.attr.data + ctx.attr.deps + ctx.attr.implementation_deps],
    )
    return [
        cc_common.merge_cc_infos(direct_cc_infos = [own], cc_infos = deps + only_linked + [ctx.attr._hip[CcInfo]]),
        coverage_common.instrumented_files_info(
            ctx,
            dependency_attributes = ["data", "deps", "implementation_deps"],
            source_attributes = ["hdrs", "srcs", "textual_hdrs"],
        ),
        DefaultInfo(files = depset(archives or objects), runfiles = runfiles),
        HipInfo(archs = archs, rdc_objects = rdc_objects),
        OutputGroupInfo(objects = depset(objects)),
    ]

LIBRARY_ATTRS = COMPILE_ATTRS | {
    "additional_linker_inputs": attr.label_list(allow_files = True, doc = "Files that `linkopts` name by `$(location ...)`, such as a version script."),
    "alwayslink": attr.bool(doc = "Whether programs link all objects, even those that nothing refers to."),
    "data": attr.label_list(allow_files = True, doc = "Files that programs need when they run."),
    "deps": attr.label_list(doc = "Libraries: cc_library, hip_library and other targets with CcInfo.", providers = [CcInfo]),
    "hdrs": attr.label_list(allow_files = HEADERS, doc = "Public headers."),
    "host_copts": attr.string_list(doc = "Compiler flags of host code only."),
    "implementation_deps": attr.label_list(doc = "Libraries whose headers only the sources include. Dependents link them, and do not get their headers.", providers = [CcInfo]),
    "include_prefix": attr.string(doc = "Prefix to add to the paths by which `hdrs` are included."),
    "linkopts": attr.string_list(doc = "Linker flags of programs that depend on it. `$(location ...)` is expanded."),
    "linkstatic": attr.bool(default = True, doc = "Whether programs always link it statically; otherwise a shared library is an option, as for cc_library. Libraries with `rdc = True` are always static."),
    "srcs": attr.label_list(allow_files = SOURCES + HEADERS, doc = "HIP sources, whatever their suffix, and private headers."),
    "strip_include_prefix": attr.string(doc = "Prefix to remove from the paths by which `hdrs` are included: relative to the package, or with a slash at its start to the repository."),
    "textual_hdrs": attr.label_list(allow_files = True, doc = "Headers with any suffix, which need not compile on their own."),
    "_device_link": attr.label(allow_single_file = True, cfg = "exec", default = ":device_link.sh", executable = True),
    "_hip": attr.label(default = "@rocm//:hip", providers = [CcInfo]),
    "_llvm_tools": attr.label(cfg = "exec", default = "@rocm//:llvm_tools"),
}

def _hip_library_impl(ctx):
    return library_providers(ctx, selected_archs(ctx), rdc = ctx.attr.rdc)

hip_library = rule(
    implementation = _hip_library_impl,
    attrs = LIBRARY_ATTRS | {
        "rdc": attr.bool(doc = "Whether device code may call functions and use variables of other libraries with `rdc = True`. The first hip_library without it, hip_binary or hip_test that depends on them links their device code."),
    },
    doc = """HIP sources, compiled for host and GPUs, as a library for cc_binary, cc_library and hip_library.

The compiler of the kernels ([ROCm](../guide/bazel.md#rocm)) compiles `srcs`;
the toolchain of the build compiles the dependencies and links. Dependents get
HIP's headers and link its runtime. `-c`, `--copt` and `--cxxopt` apply.

Example:
    hip_library(
        name = "saxpy",
        srcs = ["saxpy.hip"],
        hdrs = ["saxpy.h"],
        archs = ["gfx942", "gfx950"],
    )

    cc_binary(
        name = "main",
        srcs = ["main.cpp"],
        deps = [":saxpy"],
    )
""",
    fragments = ["cpp"],
    provides = [CcInfo, HipInfo],
    toolchains = use_cc_toolchain() + use_hip_toolchain(),
)
