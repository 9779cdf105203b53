"""Kernel instances: their sources and headers, and the actions that compile them under paths common to all manifests.

A manifest's repository declares kernel_sources. compiled_kernels applies the one kernel_objects target of this module
to them: that target links the sources and headers to paths of its own, so that an action's key contains
their content but neither the repository nor the tree that they come from.

The rules, from source to library; each name in parentheses is the provider that the arrow passes on:

    kernel_unit (macro of generated BUILD files: declares the following for a unit: kernel instances with the same flags and headers)
      kernel_sources  --(KernelSourcesInfo)-->  compiled_kernels  --(CompiledKernelsInfo: objects of all instances)
           |                                       |   ^                          |
           |   label_flag //kernels:sources        |   | the same provider        v
           +-------------------------------------->|   |                     hip_object, one for each instance or batch
                                                   v   |                          |
                                 kernel_objects, //kernels                        +--(CcInfo)--> a library
                                 (the only target whose actions compile           |
                                 kernel instances)                                +--(KernelObjectInfo)--> a kernel library

Other sources do not pass here: qola's rules compile dispatch and entry points of a module, and sources of torch modules,
and hip_library (//hip) compiles HIP code without a manifest.
"""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load(":cc.bzl", "KERNEL_TARGET", "object_context")
load(":compile.bzl", "compile_hip", "hip_command")

KernelObjectInfo = provider(
    doc = "One kernel instance, for rules that make a kernel library of it.",
    fields = {
        "commands": "dict from arch to what hip_command returned: how it is compiled for that arch alone",
        "entry": "File: the entry source",
        "name": "string: the kernel instance",
        "kernel_group": "string: the kernel group of its unit in plan.json",
        "src": "File: the source",
    },
)

HeaderSetInfo = provider(
    doc = "Headers of a tree, for a rule that links them to paths of its own.",
    fields = {
        "files": "depset of File: the headers",
        "include_dirs": "list of strings: include directories relative to the tree's root, in search order",
        "root": "string: execution path of the tree's root",
        "strip": "string: a directory that is left out of the headers' common paths, such as wheel/; some trees do not have it",
    },
)

def _header_set_impl(ctx):
    root = ctx.attr.tree.label.workspace_root
    prefix = root + "/" if root else ""
    files = depset(ctx.files.headers)
    context = cc_common.create_compilation_context(
        headers = files,
        # As system includes: warnings in upstream headers are upstream's to fix.
        system_includes = depset([prefix + d for d in ctx.attr.include_dirs], order = "preorder"),
    )
    return [
        CcInfo(compilation_context = context),
        DefaultInfo(files = files),
        HeaderSetInfo(files = files, include_dirs = ctx.attr.include_dirs, root = root, strip = ctx.attr.strip),
    ]

header_set = rule(
    implementation = _header_set_impl,
    attrs = {
        "headers": attr.label_list(
            allow_files = True,
            doc = "The files a compile may read.",
        ),
        "include_dirs": attr.string_list(
            doc = "Include directories relative to the tree's root, in search order.",
        ),
        "strip": attr.string(doc = "Directory, with a slash at its end, that is left out of the common paths of headers: trees with and without it have the same keys."),
        "tree": attr.label(
            allow_single_file = True,
            doc = "Any file at the root of the tree's repository; gives its execution path.",
            mandatory = True,
        ),
    },
    doc = """Headers of a source tree for one group of compiles.

A cache key contains every declared input, so a kernel instance gets only the
headers that its direction includes, not all of Composable Kernel.
""",
    provides = [CcInfo, HeaderSetInfo],
)

KernelSourcesInfo = provider(
    doc = "Sources of a unit, and how to compile them.",
    fields = {
        "archs": "dict from the name of each kernel instance or batch to compile to the list of its archs",
        "batches": "dict from a batch's name to the names of its kernel instances",
        "copts": "list of strings: compiler flags",
        "headers": "HeaderSetInfo of the headers that all sources include; None in a unit without kernel instances",
        "sources": "dict from the name of a kernel instance or a batch to its File",
    },
)

CompiledKernelsInfo = provider(
    doc = "A unit, compiled; KernelObjectInfo is one of its kernel instances.",
    fields = {
        "commands": "dict from an arch to the hip_command for only that arch",
        "objects": "dict from the name of a kernel instance or a batch to its File",
    },
)

def _kernel_sources_impl(ctx):
    sources = {file.basename.removesuffix(".cpp"): file for file in ctx.files.srcs}
    archs = ctx.attr.archs | ctx.attr.batch_archs
    missing = [name for name in archs if name not in sources]
    if missing:
        fail("no source of " + ", ".join(missing))
    return [KernelSourcesInfo(
        archs = archs,
        batches = ctx.attr.batches,
        copts = ctx.attr.copts,
        headers = ctx.attr.headers[HeaderSetInfo],
        sources = sources,
    )]

kernel_sources = rule(
    implementation = _kernel_sources_impl,
    attrs = {
        "archs": attr.string_list_dict(doc = "Archs of each kernel instance that is compiled in an action of its own."),
        "batch_archs": attr.string_list_dict(doc = "Archs of each batch."),
        "batches": attr.string_list_dict(doc = "Kernel instances of each batch."),
        "copts": attr.string_list(doc = "Compiler flags of the sources."),
        "headers": attr.label(doc = "The header_set that all sources include.", mandatory = True, providers = [HeaderSetInfo]),
        "srcs": attr.label_list(allow_files = [".cpp"], doc = "<name>.cpp of each kernel instance and each batch. A batch includes ../<name>.cpp of its kernel instances.", mandatory = True),
    },
    doc = "The sources of a unit, and how they are compiled.",
    provides = [KernelSourcesInfo],
)

def _no_kernel_sources_impl(_ctx):
    return [KernelSourcesInfo(archs = {}, batches = {}, copts = [], headers = None, sources = {})]

no_kernel_sources = rule(
    implementation = _no_kernel_sources_impl,
    doc = "A unit without kernel instances: the default of kernel_objects.",
    provides = [KernelSourcesInfo],
)

def _link(ctx, path, target):
    file = ctx.actions.declare_file(path)
    ctx.actions.symlink(output = file, target_file = target)
    return file

def _linked_headers(ctx, headers):
    anchor = ctx.actions.declare_file("headers/root")
    ctx.actions.write(anchor, "")
    root = headers.root + "/" if headers.root else ""
    return struct(
        anchor = anchor,
        files = depset([anchor] + [
            _link(ctx, "headers/" + file.path.removeprefix(root).removeprefix(headers.strip), file)
            for file in headers.files.to_list()
        ]),
        include_dirs = [directory.removeprefix(headers.strip) for directory in headers.include_dirs],
    )

def _kernel_objects_impl(ctx):
    found = ctx.attr._sources[KernelSourcesInfo]
    if not found.archs:
        return [CompiledKernelsInfo(commands = {}, objects = {})]
    headers = _linked_headers(ctx, found.headers)
    flag = ctx.attr._archs[BuildSettingInfo].value
    commands = {}

    def command_for(archs):
        # A library restricted to some archs has only these archs' code and defines. No such library links a source
        # whose archs are all deselected.
        selected = [arch for arch in archs if not flag or arch in flag] or archs
        key = " ".join(selected)
        if key not in commands:
            commands[key] = hip_command(ctx, selected, found.copts, headers)
        return commands[key]

    objects = {}
    for name, archs in found.archs.items():
        members = found.batches.get(name, [])
        place = "sources/batches/{}.cpp" if members else "sources/{}.cpp"
        objects[name] = compile_hip(
            ctx,
            command_for(archs),
            _link(ctx, place.format(name), found.sources[name]),
            ctx.actions.declare_file(name + ".pic.o"),
            name,
            kernels = [_link(ctx, "sources/{}.cpp".format(member), found.sources[member]) for member in members],
            compress = ctx.attr._compress[BuildSettingInfo].value,
        )
    each = {arch: None for archs in found.archs.values() for arch in archs}
    return [CompiledKernelsInfo(
        commands = {arch: hip_command(ctx, [arch], found.copts, headers) for arch in each},
        objects = objects,
    )]

kernel_objects = rule(
    implementation = _kernel_objects_impl,
    attrs = {
        "_archs": attr.label(default = "//hip:archs", providers = [BuildSettingInfo]),
        "_compile_batch": attr.label(allow_single_file = True, cfg = "exec", default = "//kernels:compile_batch.sh", executable = True),
        "_compress": attr.label(default = "//kernels:compress", providers = [BuildSettingInfo]),
        "_sources": attr.label(default = "//kernels:sources", providers = [KernelSourcesInfo]),
    },
    doc = """Compiles the kernel_sources that @rules_hip//kernels:sources names.

Each kernel instance and each batch is an action, which runs when its object is
requested. One target declares them all: a target for each of 21,800 would
double the cost of Bazel's analysis.
""",
    fragments = ["cpp"],
    provides = [CompiledKernelsInfo],
    toolchains = use_cc_toolchain(),
)

_SOURCES = str(Label("//kernels:sources"))

_sources_transition = transition(
    implementation = lambda _settings, attr: {_SOURCES: attr.sources},
    inputs = [],
    outputs = [_SOURCES],
)

def _compiled_kernels_impl(ctx):
    return [ctx.attr._kernels[0][CompiledKernelsInfo]]

compiled_kernels = rule(
    implementation = _compiled_kernels_impl,
    attrs = {
        "sources": attr.label(doc = "The kernel_sources.", mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
        "_kernels": attr.label(cfg = _sources_transition, default = "//kernels", providers = [CompiledKernelsInfo]),
    },
    doc = "Compiles a unit by the kernel_objects target of this module.",
    provides = [CompiledKernelsInfo],
)

def _hip_object_impl(ctx):
    found = ctx.attr.kernels[CompiledKernelsInfo]
    object = found.objects[ctx.attr.kernel]
    command = found.commands.values()[0]
    context = object_context(ctx, command.cc_toolchain, command.feature_configuration, object)
    return [
        CcInfo(linking_context = context),
        DefaultInfo(files = depset([object])),
        KernelObjectInfo(
            commands = {arch: found.commands[arch] for arch in ctx.attr.archs},
            entry = ctx.file.entry,
            name = ctx.attr.kernel,
            kernel_group = ctx.attr.kernel_group,
            src = ctx.file.src,
        ),
    ]

hip_object = rule(
    implementation = _hip_object_impl,
    attrs = {
        "archs": attr.string_list(doc = "Archs to offer a kernel library for; empty for a batch."),
        "entry": attr.label(allow_single_file = [".cpp"], doc = "The source that makes a kernel library of the object; see kernel_libraries."),
        "kernel": attr.string(doc = "Name of the kernel instance or batch.", mandatory = True),
        "kernels": attr.label(doc = "The compiled_kernels that have it.", mandatory = True, providers = [CompiledKernelsInfo]),
        "kernel_group": attr.string(doc = "The kernel group, as plan.json names it.", mandatory = True),
        "src": attr.label(allow_single_file = [".cpp"], doc = "Its source.", mandatory = True),
    },
    doc = """One kernel instance, or a batch of them, as one position-independent object.

Libraries link it through CcInfo: a cc_library around each of 21,800 would
double the cost of Bazel's analysis.
""",
    fragments = ["cpp"],
    provides = [CcInfo, KernelObjectInfo],
)

def compile_targets(name, sources):
    """Declares the one kernel_objects target, and the flag that it reads.

    Args:
      name: name of the kernel_objects.
      sources: name of the label_flag that compiled_kernels sets to the
        kernel_sources to compile.
    """
    no_kernel_sources(
        name = "no_" + sources,
        visibility = ["//visibility:public"],
    )
    native.label_flag(
        name = sources,
        build_setting_default = "no_" + sources,
        visibility = ["//visibility:public"],
    )
    kernel_objects(
        name = name,
        visibility = ["//visibility:public"],
        **KERNEL_TARGET
    )
