"""Lazy libraries: the index and sources of their kernels, kernel libraries, and packs of those."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_hip//hip:toolchain.bzl", "use_hip_toolchain")
load("@rules_hip//lib:cc.bzl", "KERNEL_TARGET", "cc_features")
load("@rules_hip//lib:compile.bzl", "HOST_ONLY", "compile_hip")
load("@rules_hip//lib:finding.bzl", "finding")
load("@rules_hip//lib:kernels.bzl", "KernelObjectInfo")
load("@rules_hip//lib:transitions.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("@rules_hip//rocm:flags.bzl", "ARCH_DEFINES", "COMPILE_LATER")
load(":compile.bzl", "aiter_cc_library")
load(":library.bzl", "shared_form")
load(":link.bzl", "KERNEL_LINK_FLAGS", "LARGE_CODE", "OLDER_SYSTEMS_NAMES")
load(":providers.bzl", "KernelLibrariesInfo", "LazySourcesInfo")
load(":settings.bzl", "by_archs")

def _command(found, action_name):
    variables = cc_common.create_compile_variables(
        cc_toolchain = found.toolchain,
        feature_configuration = found.features,
    )
    return struct(
        argv = cc_common.get_memory_inefficient_command_line(
            action_name = action_name,
            feature_configuration = found.features,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            action_name = action_name,
            feature_configuration = found.features,
            variables = variables,
        ),
        tool = cc_common.get_tool_for_action(action_name = action_name, feature_configuration = found.features),
    )

def _identity(ctx, found):
    # The compiler's identity, determined as the runtime does for the compiler
    # that it finds.
    output = ctx.actions.declare_file(ctx.label.name + ".identity.txt")
    command = _command(found, ACTION_NAMES.cpp_compile)
    args = ctx.actions.args()
    args.add_all(command.argv)
    args.add_all(["--offload-host-only", "-nogpulib", "-Wno-unused-command-line-argument", "-E", "-P"])
    args.add(ctx.file._identity)
    args.add("-o", output)
    ctx.actions.run(
        arguments = [args],
        env = command.env,
        executable = command.tool,
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset([ctx.file._identity], transitive = [found.toolchain.all_files]),
        mnemonic = "QolaCompilerIdentity",
        outputs = [output],
    )
    return output

def _run(ctx, outputs, inputs, arguments, message, transitive = []):
    ctx.actions.run(
        arguments = arguments,
        executable = ctx.executable._tool,
        inputs = depset(inputs, transitive = transitive),
        mnemonic = "QolaLazySources",
        outputs = outputs,
        progress_message = message,
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )

def _lazy_sources_impl(ctx):
    found = cc_features(ctx, requested = ["aiter"])
    identity = _identity(ctx, found)
    objects = [target[KernelObjectInfo] for target in ctx.attr.kernels]
    entries = {object.entry: None for object in objects if object.entry}.keys()
    headers = depset(transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.headers])
    settings = ctx.actions.declare_file(ctx.label.name + ".settings.json")
    index = ctx.actions.declare_file(ctx.label.name + "/kernels.index")
    table = ctx.actions.declare_file(ctx.label.name + "/table.cpp")
    root = ctx.actions.declare_directory(ctx.label.name + ".root")
    ctx.actions.write(settings, json.encode_indent({
        "abi_header": ctx.file._abi_header.path,
        "arch_flags": {arch: ["-D" + define for define in defines] for arch, defines in ARCH_DEFINES.items()},
        "entries": {file.basename.removesuffix(".cpp"): file.path for file in entries},
        "flags": _command(found, COMPILE_LATER).argv,
        "identity": identity.path,
        "link_flags": KERNEL_LINK_FLAGS,
        "link_script": ctx.file._link_script.path,
        "module": ctx.attr.module,
        "place": ctx.attr.place,
        "plan": ctx.file.plan.path,
        "sources": {"{}/{}".format(object.kernel_group, object.name): object.src.path for object in objects},
        "tree": ctx.file.tree.dirname,
    }) + "\n")
    common = [settings, ctx.file.plan, ctx.file._abi_header, ctx.file._link_script] + entries
    _run(
        ctx,
        [index, table],
        common + [identity],
        ["index", "--settings", settings.path, "--index", index.path, "--table", table.path],
        "Indexing %{label}",
        transitive = [headers],
    )
    _run(
        ctx,
        [root],
        common + [index] + [object.src for object in objects],
        ["root", "--settings", settings.path, "--index", index.path, "--output", root.path],
        "Laying out %{label}",
        transitive = [headers],
    )
    return [
        DefaultInfo(files = depset([table])),
        LazySourcesInfo(index = index, place = ctx.attr.place, root = root),
        OutputGroupInfo(index = depset([index]), root = depset([root])),
    ]

lazy_sources = rule(
    implementation = _lazy_sources_impl,
    attrs = {
        "headers": attr.label_list(
            doc = "header_set targets with all headers of the kernel instances.",
            mandatory = True,
            providers = [CcInfo],
        ),
        "kernels": attr.label_list(
            doc = "The hip_object of each kernel instance, each with an entry source.",
            mandatory = True,
            providers = [KernelObjectInfo],
        ),
        "module": attr.string(doc = "The module, such as libmha_fwd.", mandatory = True),
        "place": attr.string(
            doc = "Directory of the sources, relative to the directory above the library's.",
            mandatory = True,
        ),
        "plan": attr.label(allow_single_file = [".json"], doc = "plan.json of the manifest.", mandatory = True),
        "tree": attr.label(
            allow_single_file = True,
            doc = "Any file at the root of the AITER tree.",
            mandatory = True,
        ),
        "_abi_header": attr.label(allow_single_file = True, default = "//runtime/lazy:qola_kernel.h"),
        "_link_script": attr.label(allow_single_file = True, default = LARGE_CODE),
        "_identity": attr.label(allow_single_file = True, default = "//runtime/lazy:identity.hip"),
        "_tool": attr.label(cfg = "exec", default = "//qola/lazy:lazy_sources", executable = True),
    },
    doc = """Index and sources of a lazy library's kernels (docs/guide/lazy.md).

The default output is the library's table, a C++ source. The output group
`index` is kernels.index, `root` the directory with all inputs of a compile.
""",
    fragments = ["cpp"],
    provides = [LazySourcesInfo],
    toolchains = use_cc_toolchain(),
)

def _library(ctx, kernel, arch):
    command = kernel.commands[arch]
    stem = "{}/{}.{}".format(ctx.label.name, kernel.name, arch)
    object = compile_hip(
        ctx,
        command,
        kernel.entry,
        ctx.actions.declare_file(stem + ".pic.o"),
        kernel.name,
        before = [kernel.src],
        includes = [ctx.file._abi_header],
    )
    linked = cc_common.link(
        name = stem,
        actions = ctx.actions,
        cc_toolchain = command.cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(pic_objects = depset([object])),
        feature_configuration = command.feature_configuration,
        link_deps_statically = False,
        linking_contexts = [ctx.attr._older_systems[CcInfo].linking_context],
        output_type = "dynamic_library",
        # No soname: the loader treats two libraries of one name as one.
        additional_inputs = [ctx.file._link_script] + ctx.files._renamed_hip,
        user_link_flags = KERNEL_LINK_FLAGS + ["-Wl,-T," + ctx.file._link_script.path] +
                          ([file.path for file in ctx.files._renamed_hip] or ["-lamdhip64"]),
    )
    return struct(arch = arch, file = linked.library_to_link.dynamic_library, name = kernel.name)

def _kernel_libraries_impl(ctx):
    kernels = [target[KernelObjectInfo] for target in ctx.attr.kernels]
    libraries = [
        _library(ctx, kernel, arch)
        for kernel in kernels
        for arch in kernel.commands
        if arch in ctx.attr.archs
    ]
    return [
        DefaultInfo(files = depset([library.file for library in libraries])),
        KernelLibrariesInfo(
            archs = {arch: None for kernel in kernels for arch in kernel.commands}.keys(),
            index = ctx.attr.sources[LazySourcesInfo].index,
            libraries = libraries,
        ),
    ]

kernel_libraries = rule(
    implementation = _kernel_libraries_impl,
    attrs = {
        "archs": attr.string_list(doc = "Archs to make kernel libraries for.", mandatory = True),
        "kernels": attr.label_list(
            doc = "The hip_object of each kernel instance, each with an entry source.",
            mandatory = True,
            providers = [KernelObjectInfo],
        ),
        "sources": attr.label(doc = "The lazy_sources of the same module.", mandatory = True, providers = [LazySourcesInfo]),
        "_abi_header": attr.label(allow_single_file = True, default = "//runtime/lazy:qola_kernel.h"),
        "_link_script": attr.label(allow_single_file = True, default = LARGE_CODE),
        "_older_systems": attr.label(default = OLDER_SYSTEMS_NAMES, providers = [CcInfo]),
        "_renamed_hip": attr.label(default = "@rules_hip//rocm:renamed_hip"),
    },
    doc = """Kernel instances as kernel libraries (runtime/lazy/qola_kernel.h).

Each kernel instance is compiled by itself, not in a batch. Building the target
builds all of them; qola_kernel_pack selects some.
""",
    fragments = ["cpp"],
    provides = [KernelLibrariesInfo],
    toolchains = use_cc_toolchain(),
)

def lazy_form(name, parts, all_kernels, kernels, kernel_headers, stubs, place, tree, plan, headers, copts, **kwargs):
    """Declares `<name>_lazy`, the lazy library of a module, and `<name>_kernels`, its kernel libraries.

    Args:
      name: the module, such as libmha_fwd.
      parts: labels of the parts of the full library without its kernels: a list
        or a select of lists.
      all_kernels: labels of the hip_objects of all kernel instances, for the
        index, regardless of --@qola//:archs.
      kernels: labels of the hip_objects for kernel libraries: a list or a select
        of lists.
      kernel_headers: labels of the header_sets of kernel instances.
      stubs: C++ files with the functions of the kernel instances.
      place: directory of the library's sources, relative to the directory above
        the library's.
      tree: label of a file at the root of the AITER tree.
      plan: label of plan.json.
      headers: label of a header target for the library's users.
      copts: compiler flags of the module.
      **kwargs: further arguments of shared_form.
    """
    lazy = name + "_lazy"
    lazy_sources(
        name = lazy + ".sources",
        headers = kernel_headers,
        kernels = all_kernels,
        module = name,
        place = place,
        plan = plan,
        target_compatible_with = [Label("@rules_hip//rocm:rocm")],
        tree = tree,
    )
    aiter_cc_library(
        name = lazy + ".table",
        srcs = [lazy + ".sources"],
        copts = HOST_ONLY,
        deps = [Label("//runtime/lazy:lazy")],
    )
    aiter_cc_library(
        name = lazy + ".stubs",
        srcs = stubs,
        copts = HOST_ONLY + copts,
        deps = kernel_headers + [Label("//runtime/lazy:lazy")],
    )
    shared_form(
        name = lazy,
        deps = parts + [
            lazy + ".stubs",
            lazy + ".table",
        ],
        directory = "lazy/",
        headers = headers,
        lazy = lazy + ".sources",
        plan = plan,
        **kwargs
    )
    kernel_libraries(
        name = name + "_kernels",
        archs = by_archs(kwargs["archs"], lambda selected: selected),
        kernels = kernels,
        sources = lazy + ".sources",
        visibility = ["//visibility:public"],
        **KERNEL_TARGET
    )

def _selected(ctx):
    found = {}
    known = {}
    names = {name: None for name in ctx.attr.kernels}
    for target in ctx.attr.modules:
        info = target[KernelLibrariesInfo]
        for library in info.libraries:
            # For all archs, and for one arch.
            aliases = [library.name, library.name + ":" + library.arch]
            known.update({name: None for name in aliases})
            if ctx.attr.archs and library.arch not in ctx.attr.archs:
                continue
            if not names or [name for name in aliases if name in names]:
                found.setdefault(info.index, []).append(library)
    modules = ", ".join([str(target.label) for target in ctx.attr.modules])
    unknown = [name for name in ctx.attr.kernels if name not in known]
    if unknown:
        fail(finding(
            "ManifestError: no such kernel instance",
            place = "{}: kernels".format(ctx.label),
            found = ", ".join(unknown),
            expected = "kernel instances of " + modules,
            fix = "qola list MANIFEST lists them; qola explain MANIFEST NAME explains why a kernel is missing",
        ))
    archs = [arch for target in ctx.attr.modules for arch in target[KernelLibrariesInfo].archs]
    unknown = [arch for arch in ctx.attr.archs if arch not in archs]
    if unknown:
        fail(finding(
            "ManifestError: no such arch",
            place = "{}: archs".format(ctx.label),
            found = ", ".join(unknown),
            expected = "archs of " + modules,
            fix = "add it to [build] architectures of the manifest",
        ))
    return found

def _qola_kernel_pack_impl(ctx):
    pack = ctx.actions.declare_file(ctx.label.name + ".qpack")
    rows = ctx.actions.args()
    rows.set_param_file_format("multiline")
    rows.use_param_file("@%s", use_always = True)
    inputs = []
    for index, libraries in _selected(ctx).items():
        rows.add(index)
        inputs.append(index)
        for library in libraries:
            rows.add(library.file, format = "{}:{}=%s".format(library.name, library.arch))
            inputs.append(library.file)
    args = ctx.actions.args()
    args.add("pack")
    args.add("--output", pack)
    ctx.actions.run(
        arguments = [args, rows],
        executable = ctx.file._tool,
        inputs = inputs,
        mnemonic = "QolaPack",
        outputs = [pack],
        progress_message = "Packing %{label}",
    )
    return [DefaultInfo(files = depset([pack]), runfiles = ctx.runfiles([pack]))]

qola_kernel_pack = rule(
    implementation = _qola_kernel_pack_impl,
    attrs = TRANSITION_ATTRS | {
        "archs": attr.string_list(
            doc = "Archs to pack kernels for; empty: all archs of the modules.",
        ),
        "kernels": attr.string_list(
            doc = "Kernel instances to pack: `<name>`, for all archs, or `<name>:<arch>`; empty: all of the modules.",
        ),
        "modules": attr.label_list(
            allow_empty = False,
            cfg = kernel_transition,
            doc = "Kernel libraries of modules: `@qola_<manifest>//:<module>_kernels`.",
            mandatory = True,
            providers = [KernelLibrariesInfo],
        ),
        "_tool": attr.label(
            allow_single_file = True,
            cfg = kernel_transition,
            default = "//runtime/kernels_tool:qola-kernels",
        ),
    },
    doc = """Kernels for lazy libraries, `<name>.qpack`.

Kernels in packs are compiled with the flags of those in libraries. Lazy
libraries find packs by QOLA_PACKS, or in the directory
share/qola/<namespace>/packs of their bundle (docs/guide/lazy.md). Packs are
reproducible: the same kernels result in the same bytes.

Example:
    qola_kernel_pack(
        name = "te_pack",
        modules = [
            "@qola_te//:libmha_bwd_kernels",
            "@qola_te//:libmha_fwd_kernels",
        ],
    )
""",
    # The tool runs where the compiler runs.
    toolchains = use_hip_toolchain(),
)
