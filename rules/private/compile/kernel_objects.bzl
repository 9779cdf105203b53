"""kernel_objects: the compiles of a package of kernel instances, under paths that are the same for every manifest.

A manifest's repository declares kernel_sources. compiled_kernels has the one kernel_objects target, of the module
qola_compile, compile them: that target sees the sources and headers by links of its own, so that an action's key holds
their content but neither the repository nor the tree that they come from.
"""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("//rules/private:providers.bzl", "KernelObjectInfo")
load(":header_set.bzl", "HeaderSetInfo")
load(":hip_command.bzl", "hip_command")
load(":hip_compile.bzl", "compile_hip")

KernelSourcesInfo = provider(
    doc = "A package of kernel instances, to be compiled.",
    fields = {
        "archs": "dict from the name of a kernel instance or a batch, to be compiled, to the list of its archs",
        "batches": "dict from a batch's name to the names of its kernel instances",
        "copts": "list of strings: compiler flags",
        "headers": "HeaderSetInfo of what all of them include; None in a package without kernel instances",
        "sources": "dict from the name of a kernel instance or a batch to its File",
    },
)

KernelObjectsInfo = provider(
    doc = "A package of kernel instances, compiled.",
    fields = {
        "commands": "dict from an arch to the hip_command for that arch alone",
        "objects": "dict from the name of a kernel instance or a batch to its File",
    },
)

# Where a wheel has all of AITER but its Python: the same tree from git has no such directory.
_WHEEL_ROOT = "aiter_meta/"

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
        "archs": attr.string_list_dict(doc = "From the name of a kernel instance that is compiled alone to its archs."),
        "batch_archs": attr.string_list_dict(doc = "From a batch's name to its archs."),
        "batches": attr.string_list_dict(doc = "From a batch's name to its kernel instances."),
        "copts": attr.string_list(doc = "Compiler flags of the sources."),
        "headers": attr.label(doc = "The header_set that all sources include.", mandatory = True, providers = [HeaderSetInfo]),
        "srcs": attr.label_list(allow_files = [".cpp"], doc = "<name>.cpp of each kernel instance and each batch. A batch includes ../<name>.cpp of its kernel instances.", mandatory = True),
    },
    doc = "The sources of a package of kernel instances, and how they are compiled.",
    provides = [KernelSourcesInfo],
)

def _no_kernel_sources_impl(_ctx):
    return [KernelSourcesInfo(archs = {}, batches = {}, copts = [], headers = None, sources = {})]

no_kernel_sources = rule(
    implementation = _no_kernel_sources_impl,
    doc = "A package without kernel instances: what kernel_objects compiles where no compiled_kernels asks for it.",
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
            _link(ctx, "headers/" + file.path.removeprefix(root).removeprefix(_WHEEL_ROOT), file)
            for file in headers.files.to_list()
        ]),
        include_dirs = [directory.removeprefix(_WHEEL_ROOT) for directory in headers.include_dirs],
    )

def _kernel_objects_impl(ctx):
    found = ctx.attr._sources[KernelSourcesInfo]
    if not found.archs:
        return [KernelObjectsInfo(commands = {}, objects = {})]
    headers = _linked_headers(ctx, found.headers)
    asked = ctx.attr._archs[BuildSettingInfo].value
    commands = {}

    def command_for(archs):
        # A library restricted to some archs has only these archs' code and defines. A source of one arch is asked
        # for by libraries that have the arch alone.
        left = [arch for arch in archs if not asked or arch in asked] or archs
        key = " ".join(left)
        if key not in commands:
            commands[key] = hip_command(ctx, left, found.copts, headers)
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
    alone = {arch: None for archs in found.archs.values() for arch in archs}
    return [KernelObjectsInfo(
        commands = {arch: hip_command(ctx, [arch], found.copts, headers) for arch in alone},
        objects = objects,
    )]

kernel_objects = rule(
    implementation = _kernel_objects_impl,
    attrs = {
        "_archs": attr.label(default = "//:archs", providers = [BuildSettingInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_compile_batch": attr.label(allow_single_file = True, cfg = "exec", default = "@qola_compile//:compile_batch.sh", executable = True),
        "_compress": attr.label(default = "//:compress", providers = [BuildSettingInfo]),
        "_sources": attr.label(default = "@qola_compile//:sources", providers = [KernelSourcesInfo]),
    },
    doc = """Compiles the kernel_sources that @qola_compile//:sources names.

Each kernel instance and each batch is an action, which runs when its object is
asked for. One target declares them all: a target for each of 21,800 would
double what Bazel's analysis costs (bench/scale.py).
""",
    fragments = ["cpp"],
    provides = [KernelObjectsInfo],
    toolchains = use_cc_toolchain(),
)

_SOURCES = str(Label("@qola_compile//:sources"))

_sources_transition = transition(
    implementation = lambda _settings, attr: {_SOURCES: attr.sources},
    inputs = [],
    outputs = [_SOURCES],
)

def _compiled_kernels_impl(ctx):
    return [ctx.attr._kernels[0][KernelObjectsInfo]]

compiled_kernels = rule(
    implementation = _compiled_kernels_impl,
    attrs = {
        "sources": attr.label(doc = "The kernel_sources.", mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
        "_kernels": attr.label(cfg = _sources_transition, default = "@qola_compile//:kernels", providers = [KernelObjectsInfo]),
    },
    doc = "Has the kernel_objects target of the module qola_compile compile a package of kernel instances.",
    provides = [KernelObjectsInfo],
)

def _hip_object_impl(ctx):
    found = ctx.attr.kernels[KernelObjectsInfo]
    object = found.objects[ctx.attr.kernel]
    command = found.commands.values()[0]
    context, _ = cc_common.create_linking_context_from_compilation_outputs(
        # By this name cc_shared_library knows whose object it is; any other one it leaves out.
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = command.cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(pic_objects = depset([object])),
        disallow_dynamic_library = True,
        feature_configuration = command.feature_configuration,
    )
    return [
        CcInfo(linking_context = context),
        DefaultInfo(files = depset([object])),
        KernelObjectInfo(
            commands = {arch: found.commands[arch] for arch in ctx.attr.archs},
            entry = ctx.file.entry,
            name = ctx.attr.kernel,
            package = ctx.attr.package,
            src = ctx.file.src,
        ),
    ]

hip_object = rule(
    implementation = _hip_object_impl,
    attrs = {
        "archs": attr.string_list(doc = "The archs that the kernel instance has a kernel library for; none of a batch."),
        "entry": attr.label(allow_single_file = [".cpp"], doc = "The source that makes a kernel library of the object; see kernel_libraries."),
        "kernel": attr.string(doc = "Name of the kernel instance or batch.", mandatory = True),
        "kernels": attr.label(doc = "The compiled_kernels that have it.", mandatory = True, providers = [KernelObjectsInfo]),
        "package": attr.string(doc = "The package, as plan.json names it.", mandatory = True),
        "src": attr.label(allow_single_file = [".cpp"], doc = "Its source.", mandatory = True),
    },
    doc = """One kernel instance, or a batch of them, as one position-independent object.

It is linked as it is, through CcInfo: a cc_library around each of 21,800 would
double what Bazel's analysis costs (bench/scale.py).
""",
    fragments = ["cpp"],
    provides = [CcInfo, KernelObjectInfo],
)
